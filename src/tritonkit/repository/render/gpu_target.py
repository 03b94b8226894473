"""Differences between the targets with GPUs: `gpu`, tritonkit's own server, and `nvidia`, NVIDIA's image."""

from __future__ import annotations

from tritonkit.errors import RenderError
from tritonkit.repository.modelspec.serving import Accelerator
from tritonkit.repository.render.values import Target

__all__ = ["accelerators", "check_backend", "default_count"]

_TENSORRT = {"precision_mode": "FP32", "max_workspace_size_bytes": "1073741824"}
"""Defaults of the TensorRT accelerator, written out so that a reader sees them (README of
triton-inference-server/onnxruntime_backend)."""
_CUDA = {"prefer_nhwc": "1"}
"""Options of ONNX Runtime's CUDA provider: the layout that tensor cores compute convolutions in."""
_COUNTS = {"onnxruntime": 2, "pytorch": 2}
"""Instances of a network on each GPU: while one runs, the other's tensors are copied."""


def default_count(backend: str, target: Target) -> int:
    """Number of instances on each GPU of a network whose spec gives none."""
    return _COUNTS.get(backend, 1) if target == "gpu" else 1


def accelerators(given: tuple[Accelerator, ...], target: Target) -> tuple[Accelerator, ...]:
    """The accelerators of ONNX Runtime on a GPU: TensorRT in NVIDIA's image, the CUDA provider in tritonkit's server.

    TensorRT's settings in a spec are for the target nvidia, so the target gpu leaves them out.
    """
    if target == "nvidia":
        return tuple(map(_with_defaults, given or (Accelerator(name="tensorrt"),)))
    own = [accelerator for accelerator in given if accelerator.name != "tensorrt"] or [Accelerator(name="cuda")]
    return tuple(
        Accelerator(name="cuda", parameters=_CUDA | one.parameters) if one.name == "cuda" else one for one in own
    )


def _with_defaults(accelerator: Accelerator) -> Accelerator:
    if accelerator.name != "tensorrt":
        return accelerator
    return Accelerator(name="tensorrt", parameters=_TENSORRT | accelerator.parameters)


def check_backend(backend: str, target: Target, where: str) -> None:
    """RenderError for a backend that tritonkit's server does not have on a GPU."""
    if target == "gpu" and backend == "tensorrt":
        raise RenderError(
            where,
            found="a TensorRT plan, with target gpu",
            wanted="a variant that tritonkit's own server runs, such as onnx-fp16: it has no tensorrt backend",
            todo="choose another serving.variant, or build with --target nvidia",
        )
