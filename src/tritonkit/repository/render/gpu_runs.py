"""The runs of a part on its devices: its `optimization`, the batch sizes on a GPU, and notes about both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.serving import Instances, Optimization, Serving
from tritonkit.repository.render.gpu_memory import GpuPlan, check_limit, memory_note
from tritonkit.repository.render.gpu_network import GpuNetwork
from tritonkit.repository.render.gpu_target import NO_FILLING, plan_filling
from tritonkit.repository.render.gpu_tensorrt import OnTensorRT, plan_tensorrt, wants_tensorrt
from tritonkit.repository.render.resources import Host, plan_optimization

__all__ = ["DeviceRuns", "plan_runs"]

_ENGINE = "onnxruntime"
"""The backend with accelerators."""


@dataclass(frozen=True)
class DeviceRuns:
    """The runs of a part.

    Args:
        sizes: batch sizes to warm up, on a GPU of tritonkit's server; empty where the usual ones do.
    """

    optimization: Optimization
    sizes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def plan_runs(
    spec: Spec, serving: Serving, groups: tuple[Instances, ...], host: Host, artifact: Artifact, max_batch_size: int
) -> DeviceRuns:
    """Plan the runs of a part; RenderError for settings that a GPU of tritonkit's server cannot have."""
    network = host.network
    if network is None:
        return DeviceRuns(plan_optimization(serving, groups, host))
    if all(group.kind == "cpu" for group in groups):
        note = _cpu_note(network, serving)
        return DeviceRuns(plan_optimization(serving, groups, host), notes=(note,) if note else ())
    engines = OnTensorRT()
    if host.backend == _ENGINE and wants_tensorrt(serving):
        filling = NO_FILLING
        engines = plan_tensorrt(spec, serving, artifact, network.variant, max_batch_size, host.field)
        optimization = engines.applied(plan_optimization(serving, groups, host))
    else:
        filling = plan_filling(serving, network, artifact, max_batch_size, host.field)
        optimization = plan_optimization(serving, groups, host, filling)
    check_limit(serving, optimization, network, host.field)
    notes = (
        filling.note,
        *engines.notes,
        *_setting_notes(serving),
        memory_note(network, artifact, GpuPlan.each(groups, max_batch_size, optimization)),
        _quality_note(artifact),
    )
    sizes = tuple(max(1, size) for size in filling.sizes)
    return DeviceRuns(optimization, sizes, tuple(note for note in notes if note))


def _cpu_note(network: GpuNetwork, serving: Serving) -> str:
    """The reason why a network stays on the CPU; empty where the spec says so."""
    if any(group.kind == "cpu" for group in serving.instance_group):
        return ""
    if network.texts:
        return "it runs on the CPU: no GPU takes texts"
    return (
        f"it runs on the CPU: an item takes {(network.work or 0) / 1e6:.1f} million products, which a CPU computes"
        " before a GPU has the item; instance_group: [{kind: gpu}] puts it on the GPU"
    )


def _setting_notes(serving: Serving) -> Iterator[str]:
    batching = serving.dynamic_batching
    if batching and batching.max_queue_delay:
        yield (
            f"max_queue_delay {batching.max_queue_delay}us is the spec's: on a GPU batches form while the one before"
            " runs, and a delay adds to every answer"
        )


def _quality_note(artifact: Artifact) -> str:
    """A note on a form that builds judge on the CPU only, also where there is a GPU."""
    if artifact.quality is None or artifact.form not in ("torchscript", "torch-export"):
        return ""
    return f"{artifact.variant} was compared with its reference on a CPU; how close a GPU comes was not measured here"
