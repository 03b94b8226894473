"""ONNX Runtime's TensorRT provider in tritonkit's server on a GPU, for a network whose spec names that accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.serving import Accelerator, Cuda, Optimization, Serving
from tritonkit.repository.optimize.variants.tensorrt_profiles import Profile, profiles

__all__ = ["TENSORRT", "WORKSPACE", "OnTensorRT", "plan_tensorrt", "wants_tensorrt"]

TENSORRT = "tensorrt"
"""The accelerator's name, as NVIDIA's onnxruntime backend has it."""
WORKSPACE = {"max_workspace_size_bytes": str(1 << 30)}
"""Default of the accelerator's scratch memory, written out so that a reader sees it."""

_FP32 = {"precision_mode": "FP32"}
_PRECISIONS: Mapping[str, Mapping[str, str]] = {
    "onnx-fp16": {"precision_mode": "FP16"},
    "onnx-bf16-products": {"precision_mode": "BF16"},
    "onnx-int8-qdq": {"precision_mode": "INT8", "trt_fp16_enable": "1"},
}
"""Form of a network -> the precisions that its file has, which an engine may use; FP32 for all others."""
_NO_PRECISION = ("onnx-fp8",)
_FOLDER = "trt_engine_cache_path"
_CACHE = ".tritonkit/cache/tensorrt"
_SEPARATORS = ",:"
"""Characters that divide a profile's text, so that no input's name may have them."""


@dataclass(frozen=True)
class OnTensorRT:
    """The settings of the accelerator, unless the spec has others, and notes."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def applied(self, optimization: Optimization) -> Optimization:
        """`optimization` with these settings, and without CUDA graphs: an engine runs each batch as it is."""
        accelerators = tuple(
            Accelerator(name=TENSORRT, parameters={**self.parameters, **one.parameters})
            if one.name == TENSORRT
            else one
            for one in optimization.gpu_execution_accelerator
        )
        cuda = optimization.cuda and optimization.cuda.model_copy(update={"graphs": False, "graph_spec": ()})
        return optimization.model_copy(
            update={"gpu_execution_accelerator": accelerators, "cuda": None if cuda == Cuda() else cuda}
        )


def wants_tensorrt(serving: Serving) -> bool:
    """Whether a spec names the accelerator."""
    return any(one.name == TENSORRT for one in serving.optimization.gpu_execution_accelerator)


def plan_tensorrt(
    spec: Spec, serving: Serving, artifact: Artifact, variant: str, max_batch_size: int, where: str
) -> OnTensorRT:
    """The accelerator's settings for a network.

    Args:
        variant: the network's variant, whose file decides on the precision.
        where: the section of model.yaml, for errors.

    Raises:
        RenderError: the provider has no such precision, or the spec names a relative folder for the engines.
        BuildError: the spec does not state the sizes of a free axis.
    """
    form = variant.rpartition("+")[2]
    if form in _NO_PRECISION:
        raise RenderError(
            f"{where}.optimization.gpu_execution_accelerator",
            found=f"tensorrt, with the variant {variant}",
            wanted="a variant in FP32, FP16, BF16 or INT8: ONNX Runtime's TensorRT provider has no FP8",
            todo="choose onnx-fp16, or remove the accelerator",
        )
    _check_folder(serving, where)
    built_for = profiles(spec, artifact.signature, max_batch_size)
    shapes, unnamed = _shapes(built_for[-1]) if built_for else ({}, "")
    precision = _PRECISIONS.get(form, _FP32)
    return OnTensorRT({**precision, **WORKSPACE, **shapes}, tuple(_notes(serving, precision, unnamed)))


def _check_folder(serving: Serving, where: str) -> None:
    for one in serving.optimization.gpu_execution_accelerator:
        folder = one.parameters.get(_FOLDER, "") if one.name == TENSORRT else ""
        if folder and not PurePosixPath(folder).is_absolute():
            raise RenderError(
                f"{where}.optimization.gpu_execution_accelerator",
                found=f"{_FOLDER} {folder!r}",
                wanted="an absolute path: a server runs in a folder of its own",
                todo=f"correct it, or remove it: `tritonkit serve` has a folder for engines ({_CACHE})",
            )


def _shapes(profile: Profile) -> tuple[dict[str, str], str]:
    """The options with the shapes of all inputs with a free axis; and an input whose name no profile can have."""
    free = {name: shapes for name, shapes in profile.items() if shapes.min != shapes.max}
    unnamed = next((name for name in free if set(_SEPARATORS) & set(name)), "")
    if unnamed or not free:
        return {}, unnamed
    return {
        f"trt_profile_{which}_shapes": ",".join(
            f"{name}:{'x'.join(map(str, getattr(shapes, which)))}" for name, shapes in free.items()
        )
        for which in ("min", "opt", "max")
    }, ""


def _notes(serving: Serving, precision: Mapping[str, str], unnamed: str) -> Iterator[str]:
    yield (
        "TensorRT runs it, and has its own kernels: the build judged it by ONNX Runtime's CUDA provider"
        + (", in FP32, and TensorRT computes products in TF32" if precision is _FP32 else "")
    )
    cuda = serving.optimization.cuda
    if cuda is not None and (cuda.graphs or cuda.graph_spec):
        yield "graphs and graph_spec of the spec are left out: TensorRT's engine runs each batch as it is"
    if unnamed:
        yield (
            f"no profile can name the input {unnamed!r}, because ',' and ':' divide a profile: engines are built again"
            " for shapes that are smaller or larger than all before"
        )
