"""The ways of serving a model, as points; and a spec with the choice applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tritonkit.perf.simulation import SimulatedBatcher
from tritonkit.repository.modelspec import Spec, resolve
from tritonkit.repository.modelspec.base import Target
from tritonkit.repository.modelspec.entries import PipelineStep
from tritonkit.repository.modelspec.serving import DynamicBatching, Instances, Serving
from tritonkit.repository.render.batching import PADDED_MAX_BATCH_SIZE
from tritonkit.repository.render.values import ModelPlan

__all__ = [
    "TOKENIZE",
    "InstanceGroup",
    "Point",
    "Space",
    "current",
    "gpu_space_of",
    "other_buckets",
    "space_of",
    "tuned",
]

TOKENIZE = "tokenize"
"""The step that pads texts to `buckets`."""
_SHORTEST = 8

_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_DELAYS_US = (0, 500, 1000, 2000, 5000)
_MOST_CORES = 8
"""Numbers of instances and threads above that are tried in doublings alone."""
_MOST_INSTANCES = 4
"""Instances of a network next to which a GPU has little left: three ResNet-50 used 88 % of an H200."""


@dataclass(frozen=True, order=True)
class InstanceGroup:
    """The factors of a run's cost.

    Args:
        variant: the network's form.
        instances, threads: instances with a number of threads each, which share the cores.
        gpus: the number of GPUs that have these instances each; 0 if they run on the CPU.
    """

    variant: str
    instances: int
    threads: int
    gpus: int = 0

    @property
    def all_instances(self) -> int:
        """Instances on all devices together."""
        return self.instances * max(1, self.gpus)

    def __str__(self) -> str:
        if self.gpus:
            where = "on the GPU" if self.gpus == 1 else f"on each of {self.gpus} GPUs"
            return f"{self.variant}, {self.instances} instance{'' if self.instances == 1 else 's'} {where}"
        return f"{self.variant}, {self.instances} x {self.threads} threads"


@dataclass(frozen=True, order=True)
class Point:
    """One way to serve a model.

    Args:
        group: see `InstanceGroup`.
        max_batch_size: the largest batch.
        preferred: sizes at which a batch leaves immediately; none: any size that waits.
        delay_us: the longest time that a request may wait for others.
        buckets: lengths that texts are padded to before the network; none: those of the spec.
    """

    group: InstanceGroup
    max_batch_size: int
    preferred: tuple[int, ...] = ()
    delay_us: int = 0
    buckets: tuple[int, ...] = ()

    @property
    def batcher(self) -> SimulatedBatcher:
        """The same for the simulation."""
        return SimulatedBatcher(self.group.all_instances, self.max_batch_size, self.preferred, self.delay_us / 1e6)

    def __str__(self) -> str:
        group = self.group
        preferred = f", preferred {','.join(map(str, self.preferred))}" if self.preferred else ""
        delay = f", delay {self.delay_us / 1000:g} ms" if self.delay_us else ""
        lengths = f", lengths {','.join(map(str, self.buckets))}" if self.buckets else ""
        return f"{group}, batches up to {self.max_batch_size}{preferred}{delay}{lengths}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Point:
        """Read what `to_dict` gave."""
        return cls(
            InstanceGroup(**facts["group"]),
            facts["max_batch_size"],
            tuple(facts["preferred"]),
            facts["delay_us"],
            tuple(facts["buckets"]),
        )


@dataclass(frozen=True)
class Space:
    """All points: each group with each of the others; `preferred` sizes among them or not.

    Args:
        buckets: other lengths of texts; they are tried with the best of all points alone.
    """

    groups: tuple[InstanceGroup, ...]
    batches: tuple[int, ...]
    delays_us: tuple[int, ...] = _DELAYS_US
    preferred: bool = True
    buckets: tuple[tuple[int, ...], ...] = ()

    def points(self, group: InstanceGroup) -> Iterator[Point]:
        """Points of one group that differ in their effect.

        A preferred size without a delay cuts the waiting requests into such sizes; with a delay it sends a batch before
        its time is over.
        """
        padded = "openvino" in group.variant
        batches = [b for b in self.batches if not padded or b <= PADDED_MAX_BATCH_SIZE]
        for most in batches:
            yield Point(group, most)
            for delay in self.delays_us[1:] if most > 1 else ():
                yield Point(group, most, (), delay)
                yield from (
                    Point(group, most, (size,), delay) for size in batches if self.preferred and 1 < size < most
                )


def space_of(network: ModelPlan, variants: Sequence[str], cores: int, most_batch: int = _BATCHES[-1]) -> Space:
    """The points for a network.

    Args:
        network: the network's plan, as in the spec.
        variants: the variants that may be served.
        cores: the number of cores of the machine; instances x threads never exceed it.
        most_batch: the largest batch that is tried.
    """
    counts = [k for k in range(1, cores + 1) if k <= _MOST_CORES or cores % k == 0]
    pairs = [(count, cores // count) for count in counts if cores // count]
    if cores > 1:
        pairs.append((1, 1))  # leaves cores to the steps around it
    groups = tuple(
        InstanceGroup(variant, count, threads)
        for variant in variants
        for count, threads in sorted(dict.fromkeys(pairs))
    )
    batches = tuple(size for size in _BATCHES if size <= most_batch)
    return Space(groups, batches if network.max_batch_size else (0,))


def gpu_space_of(
    now: Point, on_cpu: Sequence[str], on_gpu: Sequence[str], cores: int, gpus: int, *, batches: bool
) -> Space:
    """The points of a network for a machine with GPUs: few instances, on them or on its CPU; no delay, or the present.

    Args:
        now: the present point.
        on_cpu, on_gpu: the variants that may be served there.
        cores, gpus: the machine's. A spec that names some of the GPUs keeps those.
        batches: whether the network takes batches.
    """
    counts = range(1, _MOST_INSTANCES + 1)
    on_each = now.group.gpus or gpus
    groups = [InstanceGroup(variant, count, 1, on_each) for variant in on_gpu for count in counts]
    groups += [
        InstanceGroup(variant, count, cores // count) for variant in on_cpu for count in counts if count <= cores
    ]
    most = max(_BATCHES[-1], now.max_batch_size)
    sizes = tuple(sorted({*_BATCHES, most})) if batches else (0,)
    return Space(tuple(groups), sizes, tuple(sorted({0, now.delay_us})), preferred=False)


def current(spec: Spec, network: ModelPlan, variant: str, gpus: int = 0) -> Point:
    """The point at which the spec is now, with its defaults resolved, on a machine with a number of GPUs."""
    own = sum(len(group.gpus) or gpus for group in network.instances if group.kind in ("gpu", "auto"))
    group = InstanceGroup(variant, _instances(network), _threads(network), own)
    batching = network.dynamic_batching
    if batching is None:
        return Point(group, min(network.max_batch_size, 1))
    return Point(group, network.max_batch_size, batching.preferred_batch_size, batching.max_queue_delay)


def other_buckets(spec: Spec) -> tuple[tuple[int, ...], ...]:
    """Lengths that texts could be padded to instead: fine, in doublings, and one alone; none without a tokenizer."""
    step = next((step for step in spec.model.pipeline if _tokenizes(step)), None)
    most = step.parameters.get("max_length") if isinstance(step, PipelineStep) else None
    if not isinstance(step, PipelineStep) or not isinstance(most, int):
        return ()
    doublings = [_SHORTEST << k for k in range(most.bit_length())]
    # Four lengths in each doubling: a text is padded by a quarter of its length at most.
    fine = [n for low in doublings for n in range(low, 2 * low, max(_SHORTEST, low // 4))]
    now = step.parameters.get("buckets")
    present = [n for n in now if isinstance(n, int)] if isinstance(now, list) else []
    choices = [_up_to(most, lengths) for lengths in (fine, doublings, [])]
    return tuple(choice for choice in choices if choice != _up_to(most, present))


def _up_to(most: int, lengths: Sequence[int]) -> tuple[int, ...]:
    """Lengths as the tokenizer takes them: one that reaches the longest text becomes that length."""
    return (*sorted({n for n in lengths if n < most}), most)


def tuned(spec: Spec, point: Point, root: Path, target: Target = "cpu") -> Spec:
    """The spec of a project served in this way on a target; what the point does not say stays."""
    changed: dict[str, Any] = {"serving": _serving(spec, point, target)}
    if point.buckets:
        changed["pipeline"] = tuple(_padded(step, point) for step in spec.model.pipeline)
    made = resolve(spec.folder, spec.model.model_copy(update=changed), root, entry=spec.entry)
    return replace(made, environments=spec.environments)


def _tokenizes(part: object) -> bool:
    return isinstance(part, PipelineStep) and part.step == TOKENIZE


def _padded(part: Any, point: Point) -> Any:
    if not _tokenizes(part):
        return part
    return part.model_copy(update={"parameters": part.parameters | {"buckets": list(point.buckets)}})


def _serving(spec: Spec, point: Point, target: Target) -> Serving:
    serving = spec.model.serving
    batching: DynamicBatching | bool | None = serving.dynamic_batching
    if point.max_batch_size > 1:
        base = batching if isinstance(batching, DynamicBatching) else DynamicBatching()
        batching = base.model_copy(update={"preferred_batch_size": point.preferred, "max_queue_delay": point.delay_us})
    elif point.max_batch_size:
        batching = False
    return serving.model_copy(
        update={
            "variant": point.group.variant,
            "max_batch_size": point.max_batch_size,
            "dynamic_batching": batching,
            "instance_group": (_instance_group(serving, point.group, target),),
            "threads": serving.threads if point.group.gpus else point.group.threads,
        }
    )


def _instance_group(serving: Serving, group: InstanceGroup, target: Target) -> Instances:
    """The group of instances, which names its device where the target has several kinds."""
    own = serving.instance_group[0] if serving.instance_group else Instances()
    device: dict[str, Any] = {} if target == "cpu" else {"kind": "gpu"} if group.gpus else {"kind": "cpu", "gpus": ()}
    return own.model_copy(update={"count": group.instances, **device})


def _instances(network: ModelPlan) -> int:
    return sum(group.count or 1 for group in network.instances) or 1


def _threads(network: ModelPlan) -> int:
    own = network.parameters.get("intra_op_thread_count")
    shared = network.parameters.get("INFERENCE_NUM_THREADS")
    if shared is not None:
        return max(1, int(shared) // _instances(network))
    return int(own or 1)
