"""TensorRT's engines of a project: where they are kept, and which models need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.serve.core.tensorrt import engines_folder

if TYPE_CHECKING:
    from tritonkit.serve.repository import ServedModel

__all__ = ["engines_of", "uses_tensorrt"]

_FOLDER = ".tritonkit/cache/tensorrt"
_ENGINE, _ACCELERATOR = "onnxruntime", "tensorrt"


def engines_of(project: Path) -> Path:
    """The folder for engines of a project's models, or the one that the environment names."""
    usual = project / _FOLDER
    return engines_folder(usual) or usual


def uses_tensorrt(model: ServedModel) -> bool:
    """Whether ONNX Runtime runs a model by its TensorRT provider."""
    accelerators = model.config.optimization.execution_accelerators.gpu_execution_accelerator
    on_gpu = any(group.kind == group.KIND_GPU for group in model.config.instance_group)
    return on_gpu and model.backend == _ENGINE and any(one.name == _ACCELERATOR for one in accelerators)
