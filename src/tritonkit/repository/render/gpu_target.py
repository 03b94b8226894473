"""Differences between the targets with GPUs: `gpu`, tritonkit's own server, and `nvidia`, NVIDIA's image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.modelspec.serving import Accelerator, Cuda, GraphSpec, Serving
from tritonkit.repository.render.gpu_network import GpuNetwork
from tritonkit.repository.render.gpu_tensorrt import TENSORRT, WORKSPACE
from tritonkit.repository.render.values import Target

__all__ = [
    "NO_FILLING",
    "Filling",
    "accelerators",
    "check_accelerators",
    "check_backend",
    "cuda_settings",
    "default_count",
    "plan_filling",
]

_TENSORRT = {"precision_mode": "FP32", **WORKSPACE}
"""Defaults of the TensorRT accelerator in NVIDIA's image (README of triton-inference-server/onnxruntime_backend)."""
_COUNTS = {"onnxruntime": 2, "pytorch": 2}
"""Instances of a network on each GPU: while one runs, the other's tensors are copied."""
_REPLANNED = "a convolution is planned again, for about 0.25 s, whenever the shape of its input changes"
_ONE_SIZE = (
    "every batch is filled up to {size}: {reason}, and "
    f"{_REPLANNED}. Requests of one shape keep the plan; max_batch_size: 1 suits single callers better"
)


_RTX = ": the packages of ONNX Runtime for GPUs have no provider of TensorRT-RTX"


@dataclass(frozen=True)
class Filling:
    """The batch sizes that a network on a GPU of tritonkit's server runs."""

    sizes: tuple[int, ...] = ()
    """Sizes up to which batches are filled, the last the largest batch; empty where batches run as they are."""
    graphs: bool = False
    """Whether each size is a CUDA graph."""
    note: str = ""


NO_FILLING = Filling()


def default_count(backend: str, target: Target) -> int:
    """Number of instances on each GPU of a network whose spec gives none."""
    return _COUNTS.get(backend, 1) if target == "gpu" else 1


def check_backend(backend: str, target: Target, where: str) -> None:
    """RenderError for a backend that tritonkit's server does not have on a GPU."""
    if target == "gpu" and backend == "tensorrt":
        raise RenderError(
            where,
            found="a TensorRT plan, with target gpu",
            wanted="a variant that tritonkit's own server runs, such as onnx-fp16: it has no tensorrt backend",
            todo="choose another serving.variant, or build with --target nvidia",
        )


def check_accelerators(given: Sequence[Accelerator], where: str) -> None:
    """RenderError for an accelerator that tritonkit's server does not have."""
    for one in given:
        if one.name in ("cuda", TENSORRT):
            continue
        raise RenderError(
            f"{where}.optimization.gpu_execution_accelerator",
            found=f"{one.name!r}, with target gpu",
            wanted=f"cuda or tensorrt, those of tritonkit's server{_RTX if 'rtx' in one.name.lower() else ''}",
            todo="remove it, or build with --target nvidia",
        )


def accelerators(given: Sequence[Accelerator], target: Target, options: Mapping[str, str]) -> tuple[Accelerator, ...]:
    """The accelerators of ONNX Runtime on a GPU: TensorRT in NVIDIA's image, the CUDA provider in tritonkit's server.

    There TensorRT runs what a spec says, and the CUDA provider the rest. `options` are the CUDA provider's, unless the
    spec gives others.
    """
    if target == "nvidia":
        return tuple(_with(one, TENSORRT, _TENSORRT) for one in given or (Accelerator(name=TENSORRT),))
    first = [one for one in given if one.name == TENSORRT]
    own = [one for one in given if one.name != TENSORRT] or [Accelerator(name="cuda")]
    return (*first, *(_with(one, "cuda", options) for one in own))


def _with(accelerator: Accelerator, name: str, defaults: Mapping[str, str]) -> Accelerator:
    if accelerator.name != name:
        return accelerator
    return Accelerator(name=name, parameters={**defaults, **accelerator.parameters})


def plan_filling(serving: Serving, network: GpuNetwork, artifact: Artifact, max_batch_size: int, where: str) -> Filling:
    """The batch sizes that a network on a GPU runs, each with a CUDA graph where all its other sizes are fixed.

    Raises:
        RenderError: the spec demands sizes or graphs that the network cannot have, or sizes that do not end with the
            largest batch.
    """
    cuda = serving.optimization.cuda or Cuda()
    unfillable = _unfillable(serving, artifact, max_batch_size)
    obstacle = unfillable or (f"{network.free} has a free size" if network.free else "")
    if (cuda.graphs and obstacle) or (cuda.graph_spec and unfillable):
        raise RenderError(
            f"{where}.optimization.cuda",
            found=f"{'graphs: true' if cuda.graphs else 'graph_spec'}, and {obstacle}",
            wanted="graphs only where all sizes but the batch are fixed, and sizes only where batches can be filled up",
            todo="remove graphs and graph_spec",
        )
    if cuda.graph_spec:
        return Filling(_given_sizes(cuda, max_batch_size, where), cuda.graphs)
    if not obstacle and (cuda.graphs or "graphs" not in cuda.model_fields_set):
        return Filling(_powers(max_batch_size), graphs=True)
    if not network.convolutions or max_batch_size < 2:
        return NO_FILLING
    if unfillable:
        return Filling(note=f"no CUDA graphs: {unfillable}; and {_REPLANNED}")
    reason = f"{obstacle}, so there is no CUDA graph" if obstacle else "CUDA graphs are off"
    return Filling((max_batch_size,), note=_ONE_SIZE.format(size=max_batch_size, reason=reason))


def _unfillable(serving: Serving, artifact: Artifact, max_batch_size: int) -> str:
    """The reason why batches cannot be filled up with rows of zeros; empty if they can."""
    if serving.sequence_batching is not None:
        return "it keeps sequences"
    verdict = artifact.independence
    coupled = verdict is not None and not verdict.holds and max_batch_size > 1
    return "its items are not independent" if coupled else ""


def _given_sizes(cuda: Cuda, max_batch_size: int, where: str) -> tuple[int, ...]:
    sizes = tuple(sorted({one.batch_size for one in cuda.graph_spec}))
    if sizes[-1] != max_batch_size:
        raise RenderError(
            f"{where}.optimization.cuda.graph_spec",
            found=f"batch_size {', '.join(map(str, sizes))}, and max_batch_size is {max_batch_size}",
            wanted="sizes up to max_batch_size: batches are filled up to the next size",
            todo=f"add batch_size: {max_batch_size}, or leave graph_spec out",
        )
    return sizes


def _powers(most: int) -> tuple[int, ...]:
    """1, 2, 4 and so on up to the largest batch; 0 for a network without a batch axis, as Triton has it."""
    sizes = {1 << power for power in range(most.bit_length())} if most else set()
    return tuple(sorted({size for size in sizes if size < most} | {most}))


def cuda_settings(cuda: Cuda | None, filling: Filling) -> Cuda | None:
    """`optimization.cuda` with the sizes and graphs of a network."""
    if not filling.sizes:
        return cuda
    # Shapes that a spec gives graphs are for NVIDIA's image: here all sizes but the batch are fixed.
    specs = tuple(GraphSpec(batch_size=size) for size in filling.sizes)
    return (cuda or Cuda()).model_copy(update={"graphs": filling.graphs, "graph_spec": specs})
