"""The ways of serving a model, as points; and a spec with the choice applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tritonkit.perf.simulation import SimulatedBatcher
from tritonkit.repository.modelspec import Spec, resolve
from tritonkit.repository.modelspec.model import PipelineStep
from tritonkit.repository.modelspec.serving import DynamicBatching, Instances, Serving
from tritonkit.repository.render.batching import PADDED_MAX_BATCH_SIZE
from tritonkit.repository.render.values import ModelPlan

__all__ = ["TOKENIZE", "InstanceGroup", "Point", "Space", "current", "other_buckets", "space_of", "tuned"]

TOKENIZE = "tokenize"
"""The step that pads texts to `buckets`."""
_SHORTEST = 8

_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_DELAYS_US = (0, 500, 1000, 2000, 5000)
_MOST_CORES = 8
"""Numbers of instances and threads above that are tried in doublings alone."""


@dataclass(frozen=True, order=True)
class InstanceGroup:
    """The factors of a run's cost: the variant, and the instances and threads that share the cores."""

    variant: str
    instances: int
    threads: int

    def __str__(self) -> str:
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
        return SimulatedBatcher(self.group.instances, self.max_batch_size, self.preferred, self.delay_us / 1e6)

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


def current(spec: Spec, network: ModelPlan, variant: str) -> Point:
    """The point at which the spec is now, with its defaults resolved."""
    group = InstanceGroup(variant, _instances(network), _threads(network))
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


def tuned(spec: Spec, point: Point, root: Path) -> Spec:
    """The spec of a project served in this way; what the point does not say stays."""
    changed: dict[str, Any] = {"serving": _serving(spec, point)}
    if point.buckets:
        changed["pipeline"] = tuple(_padded(step, point) for step in spec.model.pipeline)
    return resolve(spec.folder, spec.model.model_copy(update=changed), root)


def _tokenizes(part: PipelineStep | str) -> bool:
    return isinstance(part, PipelineStep) and part.step == TOKENIZE


def _padded(part: Any, point: Point) -> Any:
    if not _tokenizes(part):
        return part
    return part.model_copy(update={"parameters": part.parameters | {"buckets": list(point.buckets)}})


def _serving(spec: Spec, point: Point) -> Serving:
    serving = spec.model.serving
    batching: DynamicBatching | bool | None = serving.dynamic_batching
    if point.max_batch_size > 1:
        base = batching if isinstance(batching, DynamicBatching) else DynamicBatching()
        batching = base.model_copy(update={"preferred_batch_size": point.preferred, "max_queue_delay": point.delay_us})
    elif point.max_batch_size:
        batching = False
    groups = serving.instance_group or (Instances(),)
    return serving.model_copy(
        update={
            "variant": point.group.variant,
            "max_batch_size": point.max_batch_size,
            "dynamic_batching": batching,
            "instance_group": (groups[0].model_copy(update={"count": point.group.instances}),),
            "threads": point.group.threads,
        }
    )


def _instances(network: ModelPlan) -> int:
    return sum(group.count or 1 for group in network.instances) or 1


def _threads(network: ModelPlan) -> int:
    own = network.parameters.get("intra_op_thread_count")
    shared = network.parameters.get("INFERENCE_NUM_THREADS")
    if shared is not None:
        return max(1, int(shared) // _instances(network))
    return int(own or 1)
