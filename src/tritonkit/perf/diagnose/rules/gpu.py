"""Rules about GPUs that do not work, and why: their thresholds come from trials on an H100 and an H200.

ResNet-50 FP16 in those trials: "ONNX Runtime" is tritonkit's native backend with its CUDA provider.
"""

from __future__ import annotations

from collections.abc import Iterator

from tritonkit.perf.diagnose.evidence import Evidence, ModelEvidence, ServerEvidence
from tritonkit.perf.diagnose.finding import Finding
from tritonkit.perf.diagnose.rules.common import BUSY, GPU_WORKS, at_stake, full, parts

__all__ = ["copies_bound", "gpu_idle", "gpu_throttled", "rebuilding_plans", "stubs_bound"]

_THROTTLED, _WORKS = 0.5, GPU_WORKS
_REBUILDS, _REBUILD_MS, _ONE_SIZE = 0.2, 20.0, 0.8
_STUB_PER_S, _STUB_SHARE, _STUB_GPU = 8846.0, 0.6, 0.5
_COPIES = 0.4
_IDLE, _SMALL = 0.5, 8


def _on_gpu(evidence: Evidence) -> Iterator[tuple[ServerEvidence, ModelEvidence, float]]:
    """Every model that ran on a GPU, with its server and the use of the server's busiest GPU."""
    for server, model in parts(evidence):
        busy = server.gpu_busy
        if model.facts.gpu and busy is not None:
            yield server, model, busy


def gpu_throttled(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A GPU works 70 % of the time or more, and half of the looks at its clock find it lowered: by its power limit, its
    temperature, or a brake of the hardware. Seen where the server runs on this machine. No trial has provoked it.
    """
    for server in {server.address: server for server, _, _ in _on_gpu(evidence)}.values():
        for gpu in server.gpus:
            if gpu.throttled is None or gpu.clock is None or gpu.use.busy is None:
                continue
            if gpu.use.busy < _WORKS or gpu.throttled < _THROTTLED:
                continue
            limit = f" of {gpu.use.power_limit_w:.0f}" if gpu.use.power_limit_w else ""
            power = "" if gpu.use.power_w is None else f", at {gpu.use.power_w:.0f}{limit} W"
            yield Finding(
                "gpu-throttled",
                f"{gpu.use.gpu} of {server.address}",
                min(1.0, max(0.01, 1 - gpu.clock)),
                (
                    f"{gpu.throttled:.0%} of the looks find its clock lowered by {', '.join(gpu.reasons)}",
                    f"the clock is {gpu.clock:.0%} of the highest one{power}",
                ),
                "a higher power limit (nvidia-smi -pl), better cooling, or FP16 instead of FP32: it takes less energy",
                f"at most {1 / max(gpu.clock, 0.1):.2f} times the rate: the highest clock over today's (the bound)",
            )


def rebuilding_plans(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A model of ONNX Runtime on a GPU, without CUDA graphs, gets batches of changing sizes: a convolution keeps the
    plan of its last size only, and builds another whenever the size changes.

    It fires where instances are busy 70 % of the time with runs of 20 ms or more while the GPU is used under 20 %, and
    no size has 80 % of the runs. Measured on an H100: a plan takes 240 to 320 ms, 128 callers got 360 requests/s with a
    p99 of 473 ms, and the GPU was used 4 %. On an H200, batches that were all of one size got 13,713 requests/s.
    """
    for _, model, busy in _on_gpu(evidence):
        run = model.compute_ms or 0.0
        if not model.facts.builds_plans or busy >= _REBUILDS or run < _REBUILD_MS or model.utilization < BUSY:
            continue
        runs = sum(model.sizes.values())
        if not runs or max(model.sizes.values()) >= _ONE_SIZE * runs:
            continue
        yield Finding(
            "rebuilding-plans",
            model.name,
            1 - busy,
            (
                f"runs take {run:.0f} ms, and instances are busy {min(1.0, model.utilization):.0%} of the time, while"
                f" the GPU is used {busy:.0%}",
                f"{len(model.sizes)} batch sizes in {runs} runs, from {min(model.sizes)} to {max(model.sizes)}",
                "no CUDA graphs: optimization.cuda in config.pbtxt does not switch them on",
            ),
            "a CUDA graph for each batch size, as the target gpu renders for fixed shapes (`tritonkit build --target"
            " gpu`); for free shapes with convolutions one batch size",
            f"up to {1 / max(busy, 0.02):.0f} times the rate: the GPU's whole time over what it uses (the bound)",
        )


def stubs_bound(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A Python model's processes are the limit: its instances run nearly all the time, and each answers over 60 % of
    what a process can answer without any network, or batches are half full and the GPU is used less than half.

    Measured on an H100: a process that does nothing answers 8,846 requests/s. A CUDA graph in one process left the GPU
    67 % idle with batches of 63 (4,189 requests/s); two processes got 7,056.
    """
    for server, model in parts(evidence):
        busy = server.gpu_busy
        if not model.facts.python or busy is None or not full(model):
            continue
        per_stub, items = model.rate_per_s / model.facts.instances, model.items_per_run or 0.0
        waits_for_it = model.facts.gpu and busy < _STUB_GPU and 2 * items >= model.facts.max_batch_size > _SMALL
        if per_stub < _STUB_SHARE * _STUB_PER_S and not waits_for_it:
            continue
        more = 2 * model.facts.instances
        yield Finding(
            "stubs-bound",
            model.name,
            1 - busy,
            (
                f"{model.facts.instances} Python processes are busy {min(1.0, model.utilization):.0%} of the time,"
                f" while the GPU is used {busy:.0%}",
                f"each answers {per_stub:.0f} requests/s in batches of {items:.0f}; one that does nothing answered"
                f" {_STUB_PER_S:.0f} on an H100",
            ),
            f"more processes (serving.instance_group: [{{count: {more}}}] in its spec), or the network without Python:"
            " ONNX Runtime on the target gpu",
            f"up to {min(2.0, 1 / max(busy, 0.02)):.1f} times the rate with {more} processes: twice, or until the GPU"
            " is used all the time (the bound)",
        )


def copies_bound(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A model on a GPU spends 40 % of its runs or more on copies of inputs and outputs, and that matters: instances are
    busy 70 % of the time, or requests take longer than they may. The GPU is used less than 70 %.

    Measured on an H100 with one Python process: 602 KB of FP32 for a request got 1,372 requests/s, 150 KB of uint8 for
    the same images 4,189: a quarter of the bytes was three times the rate.
    """
    for _, model, busy in _on_gpu(evidence):
        if model.copies is None or model.copies < _COPIES or busy >= _WORKS or not at_stake(model, target_ms):
            continue
        yield Finding(
            "copies-bound",
            model.name,
            model.copies,
            (
                f"{model.copies:.0%} of a run of {model.compute_ms:.1f} ms gathers inputs and gives out outputs, by"
                " Triton's own times",
                f"the GPU is used {busy:.0%}",
            ),
            "smaller inputs and outputs (uint8 images, normalized in the network; fewer outputs), shared memory of the"
            " system or CUDA from callers on the same machine, or one more instance, which copies while another runs"
            f" (serving.instance_group: [{{count: {model.facts.instances + 1}}}])",
            f"at most {1 / (1 - min(model.copies, 0.95)):.1f} times the rate, if copies took no time (the bound)",
        )


def gpu_idle(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A model on a GPU runs small batches, 8 items or fewer on average, the GPU is used less than half, and that
    matters: instances are busy 70 % of the time, or requests take longer than they may.

    Measured on an H100 in process: batches of 1, 8, 32 and 64 give 669, 4,976, 14,886 and 16,336 images/s. At 8 the
    most part of the GPU is not used, at 32 nearly nothing is left to gain.
    """
    for _, model, busy in _on_gpu(evidence):
        items = model.items_per_run or 0.0
        if busy >= _IDLE or items > _SMALL or not at_stake(model, target_ms):
            continue
        yield Finding(
            "gpu-idle",
            model.name,
            1 - busy,
            (
                f"a run has {items:.1f} items, of at most {model.facts.max_batch_size}, and the GPU is used {busy:.0%}",
                f"instances are busy {min(1.0, model.utilization):.0%} of the time; requests wait {model.queue_ms:.1f}"
                f" ms for a run of {model.compute_ms:.1f} ms",
            ),
            _larger_batches(model),
            "up to three times the rate with batches of 32 instead of 8, as a ResNet-50 on an H100 showed (the bound)",
        )


def _larger_batches(model: ModelEvidence) -> str:
    facts = model.facts
    if (model.items_per_run or 0.0) >= 0.8 * facts.max_batch_size and facts.max_batch_size <= _SMALL:
        return "a larger serving.max_batch_size, up to 64, and batching"
    if not facts.batches:
        return "switch batching on: serving.batching in its spec (dynamic_batching {} in config.pbtxt)"
    return (
        f"fewer than {facts.instances} instances, so that requests meet in the queue;"
        if facts.instances > 1
        else "more concurrent requests;"
    ) + " a queue delay of a run's time if callers can wait; or several items in a request"
