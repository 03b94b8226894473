"""Observations of GPUs, made from figures of trials on an H100 and an H200: causes that no test here can provoke.

Rates, callers, GPU use, the mean of the batch sizes and memory are the trial's, unless a line says otherwise. The
length of a run follows from them: instances that run all the time have `instances x items / rate` for each. The trial
noted no copies: their shares are assumed, but that of `stubs-bound`, which follows from the copies of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.perf.load.gpu import GPU, look_of
from tritonkit.client import ModelStatistics
from tritonkit.client.status import BatchStatistics
from tritonkit.perf.diagnose import Look, ModelFacts, Observation
from tritonkit.perf.diagnose.clocks import ClockLook

__all__ = ["RECORDED", "Recorded"]

_SECONDS = 10
_FACTS = ModelFacts("resnet50", max_batch_size=64, instances=2, gpu=True, batches=True)


@dataclass(frozen=True)
class Recorded:
    """A trial.

    Args:
        cause: the verdict that is expected.
        how: what was run. evidence: what shows the cause.
        callers: requests under way at any time.
        sizes: the share of the runs by batch size.
        copies: the share of a run before and after the network.
    """

    cause: str
    how: str
    evidence: str
    rate_per_s: float
    callers: int
    gpu_busy: float
    sizes: Mapping[int, float] = field(default_factory=lambda: {63: 1.0})
    copies: float = 0.1
    facts: ModelFacts = _FACTS
    clocks: tuple[ClockLook, ...] = ()

    def observation(self) -> Observation:
        """Half-second looks, as `Watcher` makes them."""
        looks = tuple(self._look(k / 2) for k in range(2 * _SECONDS + 1))
        clocks = {GPU: self.clocks} if self.clocks else {}
        return Observation("resnet50", {"resnet50": self.facts}, {"a:1": looks}, clocks=clocks)

    def _look(self, at_s: float) -> Look:
        energy_j = 577.0 * 2 * (at_s // 2 + 1)
        gpu = replace(look_of(at_s, energy_j), busy=self.gpu_busy)
        return Look("a:1", at_s, {"resnet50": self._counters(at_s)}, pending={}, rejected={}, gpus={GPU: gpu})

    def _counters(self, at_s: float) -> ModelStatistics:
        items = sum(size * share for size, share in self.sizes.items())
        requests = self.rate_per_s * (100 + at_s)
        run_s = min(self.facts.instances, self.callers / items) * items / self.rate_per_s
        in_server_s = self.callers / self.rate_per_s
        runs = {size: int(share * requests / items) for size, share in self.sizes.items()}
        return ModelStatistics(
            "resnet50",
            "1",
            int(requests),
            sum(runs.values()),
            int(requests),
            0,
            queue_s=requests * max(0.0, in_server_s - run_s),
            compute_input_s=requests * run_s * self.copies / 2,
            compute_infer_s=requests * run_s * (1 - self.copies),
            compute_output_s=requests * run_s * self.copies / 2,
            success_s=requests * in_server_s,
            batches=tuple(BatchStatistics(size, count, count * run_s) for size, count in runs.items()),
        )


_ONE_STUB = replace(_FACTS, python=True, instances=1)

RECORDED = (
    Recorded(
        "model-execution",
        "ResNet-50 FP16 with CUDA graphs, two instances, 256 callers, H200: 15,321 requests/s",
        "busy instances, GPU use of 75 %: the GPU itself is the limit",
        15321,
        256,
        0.75,
    ),
    Recorded(
        "rebuilding-plans",
        "ResNet-50 FP16 without graphs, dynamic batches, 128 callers, H100: 360 requests/s, p99 473 ms; which"
        " batch sizes it had was not noted",
        "batch sizes, time of a run, GPU use of 4 %",
        360,
        128,
        0.04,
        {8: 0.2, 24: 0.3, 32: 0.2, 56: 0.3},
        facts=replace(_FACTS, builds_plans=True),
    ),
    Recorded(
        "stubs-bound",
        "ResNet-50 FP16, a CUDA graph in one Python process, 128 callers, H100: 4,189 requests/s",
        "busy processes, batches of 63, GPU use of 33 %",
        4189,
        128,
        0.33,
        copies=0.23,
        facts=_ONE_STUB,
    ),
    Recorded(
        "stubs-bound",
        "a model that does nothing in one Python process, H100: 8,846 requests/s; its GPU use was not noted, none is"
        " assumed",
        "requests of a process, GPU use",
        8846,
        128,
        0.0,
        copies=0.3,
        facts=replace(_ONE_STUB, gpu=False),
    ),
    Recorded(
        "copies-bound",
        "the same network with 602 KB of FP32 for a request, 128 callers, H100: 1,372 requests/s; its GPU use was not"
        " noted, a share as its rate has is assumed",
        "times before and after the network, GPU use",
        1372,
        128,
        0.6,
        copies=0.9,
        facts=_ONE_STUB,
    ),
    Recorded(
        "gpu-idle",
        "ResNet-50 FP16 in batches of 8 at most, H100: 4,976 images/s in process, a third of the rate of batches of 32;"
        " callers and GPU use are assumed",
        "items of a run, GPU use, busy instances",
        4976,
        16,
        0.3,
        {8: 1.0},
        facts=replace(_FACTS, max_batch_size=8),
    ),
    Recorded(
        "gpu-throttled",
        "ResNet-50 FP16 on a GPU at its power limit; assumed, no trial had one",
        "reasons that the driver gives, clock, power",
        12000,
        256,
        0.95,
        clocks=(ClockLook(1200, 1980, ("its power limit",)),) * 5,
    ),
)
"""One for each cause that needs a GPU, and a GPU that is used as well as it can be."""
