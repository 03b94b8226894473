"""Instances, threads and accelerators of a plan: its share of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tritonkit.errors import RenderError
from tritonkit.repository.modelspec.engines import EngineName
from tritonkit.repository.modelspec.serving import Instances, Optimization, Serving
from tritonkit.repository.optimize.cuda_options import default_options
from tritonkit.repository.optimize.variants.tensorrt_profiles import opt_batches
from tritonkit.repository.render.engines import KINDS
from tritonkit.repository.render.gpu_network import GpuNetwork
from tritonkit.repository.render.gpu_target import (
    NO_FILLING,
    Filling,
    accelerators,
    check_accelerators,
    cuda_settings,
    default_count,
)
from tritonkit.repository.render.values import Kind, Target

__all__ = ["Host", "plan_instances", "plan_optimization", "plan_threads"]

# Threads of one instance: within operators, and of the graph.
_COUNTS = {
    "onnxruntime": ("intra_op_thread_count", "inter_op_thread_count"),
    "pytorch": ("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT"),
}
# The openvino backend's instances share these (README of triton-inference-server/openvino_backend).
_ALL_THREADS = "INFERENCE_NUM_THREADS"
_STREAMS = "NUM_STREAMS"
# Threads of a run while no other run is active; a parameter of tritonkit's own backends.
_ALONE = "tritonkit.threads_alone"
# Threads of a network on a GPU: more would wait for one another while the GPU computes.
_ON_GPU = "1"


@dataclass(frozen=True)
class Host:
    """The machine for a model; `field` names the section of model.yaml with its settings, for errors.

    `part` tells whether these cores are only some of the cores for which the spec was written, so that the spec's own
    counts may exceed them.
    """

    field: str
    backend: str
    target: Target
    cores: int
    on_cpu: bool = False
    """Whether the part runs on the CPU of any server, as steps do, which are numpy."""
    part: bool = False
    engine: EngineName | None = None
    network: GpuNetwork | None = None
    """A network that tritonkit's server may run on a GPU; None for all other parts and targets."""
    kinds: tuple[Kind, ...] = ()
    """Kinds of instances that its file is for, where that is not for the backend to say."""

    @property
    def kind(self) -> Literal["cpu", "gpu", "model"]:
        """The kind of an instance group that names none. OpenVINO is on the CPU, because its GPUs are not NVIDIA's."""
        if self.engine is not None:
            return KINDS[self.engine]
        if self.backend == "tensorrt":
            return "gpu"
        if len(self.kinds) == 1:
            return self.kinds[0]
        if self.on_cpu or self.backend in ("openvino", "llm") or self.target == "cpu":
            return "cpu"
        return "cpu" if self.network is not None and self.network.suits_cpu else "gpu"

    def takes_cores(self, group: Instances) -> bool:
        """Whether a group's instances keep the machine's cores busy with threads of their own."""
        if self.backend not in (*_COUNTS, "openvino", "llm") or group.passive:
            return False
        # Triton chooses the CPU for an openvino instance of kind auto on any machine.
        auto_is_cpu = self.target == "cpu" or self.backend == "openvino"
        return group.kind == "cpu" or (group.kind == "auto" and auto_is_cpu)


def plan_instances(serving: Serving, host: Host) -> tuple[Instances, ...]:
    """The instance groups with kind and count resolved; RenderError if they need more cores than there are."""
    requested = tuple(
        group.model_copy(update={"profile": group.profile or _profiles(serving, host)})
        for group in serving.instance_group or (Instances(),)
    )
    groups = tuple(_resolve(group, 1, host) for group in requested)
    threads = _spec_threads(serving, host)
    if len(requested) == 1 and requested[0].count is None and threads and host.takes_cores(groups[0]):
        groups = (_resolve(requested[0], max(1, host.cores // threads), host),)
    _check_cores(_cpu_instances(groups, host), threads or 1, host)
    return groups


def plan_threads(serving: Serving, groups: tuple[Instances, ...], host: Host) -> dict[str, str]:
    """The backend's `parameters`: the spec's own, and thread counts for engines on the CPU."""
    count = _cpu_instances(groups, host)
    if count == 0:
        return _on_gpu(host) | serving.parameters
    threads = _spec_threads(serving, host) or max(1, host.cores // count)
    if host.backend == "openvino":
        shared = {_ALL_THREADS: str(threads * count), _STREAMS: str(count)}
        # With streams of the user's own, the share of an instance is unknown.
        alone = {} if _STREAMS in serving.parameters else _alone(count, threads, host)
        return shared | alone | serving.parameters
    # One graph thread: with the default sequential execution_mode others would only wait.
    if host.backend == "llm":
        return {"threads": str(threads)} | serving.parameters
    intra, inter = _COUNTS[host.backend]
    own = {intra: str(threads), inter: "1"}
    return own | _alone(count, threads, host) | serving.parameters


def _on_gpu(host: Host) -> dict[str, str]:
    """Parameters of a network on a GPU of tritonkit's server."""
    if host.network is None:
        return {}
    return dict.fromkeys(_COUNTS.get(host.backend, ()), _ON_GPU) | dict(host.network.entries)


def _alone(count: int, threads: int, host: Host) -> dict[str, str]:
    """The parameter that gives a lone run all cores, where several instances of tritonkit's own backends share them."""
    ours = host.backend in ("onnxruntime", "openvino") and host.target != "nvidia"
    shares_all = ours and threads < host.cores <= threads * count
    return {_ALONE: str(host.cores)} if shares_all else {}


def plan_optimization(
    serving: Serving, groups: tuple[Instances, ...], host: Host, filling: Filling = NO_FILLING
) -> Optimization:
    """`optimization` without the settings of a device that no instance of the model uses."""
    optimization = serving.optimization
    if host.backend == "openvino":
        # It has neither accelerators nor graph levels; these settings are for the spec's other variants.
        nothing = {"graph_level": None, "cuda": None}
        return optimization.model_copy(
            update={**nothing, "cpu_execution_accelerator": (), "gpu_execution_accelerator": ()}
        )
    kinds = {group.kind for group in groups}
    if kinds == {"cpu"}:
        return optimization.model_copy(update={"gpu_execution_accelerator": (), "cuda": None})
    on_gpu = optimization.gpu_execution_accelerator
    if host.backend == "onnxruntime" and host.target != "cpu":
        network = host.network or GpuNetwork()
        if host.target == "gpu":
            check_accelerators(on_gpu, host.field)
        on_gpu = accelerators(on_gpu, host.target, default_options(network.variant, network.convolutions))
    on_cpu = () if kinds == {"gpu"} else optimization.cpu_execution_accelerator
    return optimization.model_copy(
        update={
            "gpu_execution_accelerator": on_gpu,
            "cpu_execution_accelerator": on_cpu,
            "cuda": cuda_settings(optimization.cuda, filling),
        }
    )


def _profiles(serving: Serving, host: Host) -> tuple[str, ...]:
    """All optimization profiles of a plan that has several; otherwise Triton would use only the first."""
    count = len(opt_batches(serving)) if host.backend == "tensorrt" else 0
    return tuple(map(str, range(count))) if count > 1 else ()


def _resolve(group: Instances, count: int, host: Host) -> Instances:
    """One group with its kind and count; `gpus` without a kind concern the GPU target alone."""
    if group.profile and host.backend != "tensorrt":
        raise RenderError(
            f"{host.field}.instance_group",
            found=f"profile is given for the backend {host.backend}",
            wanted="profiles for TensorRT plans only, as Triton requires",
            todo="remove profile",
        )
    kind = _kind(group, host)
    _check_kind(kind, host)
    if host.backend == "openvino" and kind not in ("cpu", "auto"):
        raise RenderError(
            f"{host.field}.instance_group",
            found=f"kind {kind} is given for the backend openvino",
            wanted="kind cpu or auto, as Triton requires: OpenVINO runs on the CPU",
            todo="remove kind, or choose a variant for the GPU",
        )
    on_gpu = kind in ("gpu", "auto") and host.backend != "openvino"
    count = group.count or (default_count(host.backend, host.target) if kind == "gpu" else count)
    return group.model_copy(update={"kind": kind, "count": count, "gpus": group.gpus if on_gpu else ()})


def _kind(group: Instances, host: Host) -> Literal["auto", "cpu", "gpu", "model"]:
    """The kind of a group. For tritonkit's server on a GPU it is never auto, which Triton takes for the GPU, and a
    network whose GPUs are named runs on them."""
    if group.kind is not None and not (group.kind == "auto" and host.target == "gpu"):
        return group.kind
    return "gpu" if group.gpus and host.network is not None else host.kind


def _check_kind(kind: str, host: Host) -> None:
    """RenderError for instances on a device that the model's file is not for."""
    if not host.kinds or kind in (*host.kinds, "auto"):
        return
    raise RenderError(
        f"{host.field}.instance_group",
        found=f"kind {kind}, and the variant's file is for the {' or the '.join(host.kinds).upper()}",
        wanted=f"kind {' or '.join(host.kinds)}",
        todo="remove kind, or choose another variant (torch-export and the other onnx ones run on both)",
    )


def _cpu_instances(groups: tuple[Instances, ...], host: Host) -> int:
    return sum(group.count or 0 for group in groups if host.takes_cores(group))


def _spec_threads(serving: Serving, host: Host) -> int | None:
    """Threads the spec gives an instance, as `threads` or as the backend's own parameter."""
    own = _COUNTS.get(host.backend, ("",))[0]
    text = serving.parameters.get(own)
    if host.backend == "openvino":
        return _openvino_threads(serving, host)
    if serving.threads is not None and host.backend not in (*_COUNTS, "llm"):
        raise RenderError(
            f"{host.field}.threads",
            found=f"threads are given for the backend {host.backend}, which has no such setting",
            wanted="threads for a network that ONNX Runtime, OpenVINO or PyTorch runs",
            todo="remove threads; a model.py can read a parameter of its own",
        )
    if text is None:
        return serving.threads
    if not text.isdecimal() or (serving.threads is not None and int(text) != serving.threads):
        raise RenderError(
            f"{host.field}.parameters.{own}",
            found=f"{text!r}",
            wanted=f"{serving.threads or 'a whole number'}",
            todo=f"remove it, and say threads: {serving.threads or 'N'}",
        )
    # Both engines take 0 as one thread per core.
    return int(text) or host.cores


def _openvino_threads(serving: Serving, host: Host) -> int | None:
    if _ALL_THREADS in serving.parameters:
        raise RenderError(
            f"{host.field}.parameters.{_ALL_THREADS}",
            found=f"{serving.parameters[_ALL_THREADS]!r}",
            wanted="threads, the number for one instance: this parameter counts those of all instances",
            todo="remove it, and say threads: N",
        )
    return serving.threads


def _check_cores(count: int, threads: int, host: Host) -> None:
    if host.part or count * threads <= host.cores:
        return
    raise RenderError(
        f"{host.field}.instance_group",
        found=f"{_many(count, 'instance')} x {_many(threads, 'thread')} on {_many(host.cores, 'core')}",
        wanted="instances x threads within the number of cores",
        todo="lower count or threads, or give the machine's cores with --cores",
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
