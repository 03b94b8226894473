"""TensorRT's engines of a project: where they are kept, which models need them, and a start that builds them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import ServerError
from tritonkit.serve.core.devices import find_driver
from tritonkit.serve.core.tensorrt import engines_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tritonkit.serve.repository import ServedModel

__all__ = ["engines_of", "fill_engines", "uses_tensorrt"]

_FOLDER = ".tritonkit/cache/tensorrt"
_ENGINE, _ACCELERATOR = "onnxruntime", "tensorrt"
_LATER = "TensorRT's engines of {} are built at the first start, for seconds to minutes: {}"


def engines_of(project: Path) -> Path:
    """The folder for engines of a project's models, or the one that the environment names."""
    return engines_folder() or project / _FOLDER


def uses_tensorrt(model: ServedModel) -> bool:
    """Whether ONNX Runtime runs a model by its TensorRT provider."""
    accelerators = model.config.optimization.execution_accelerators.gpu_execution_accelerator
    on_gpu = any(group.kind == group.KIND_GPU for group in model.config.instance_group)
    return on_gpu and model.backend == _ENGINE and any(one.name == _ACCELERATOR for one in accelerators)


def _kept(model: ServedModel, folder: Path) -> Path | None:
    """The folder in which a model's engines are kept; None if it keeps none."""
    accelerators = model.config.optimization.execution_accelerators.gpu_execution_accelerator
    settings = {
        name: value for one in accelerators if one.name == _ACCELERATOR for name, value in one.parameters.items()
    }
    if settings.get("trt_engine_cache_enable", "1").lower() in ("0", "false"):
        return None
    return Path(settings.get("trt_engine_cache_path") or folder) / model.name


def _has_engines(folder: Path) -> bool:
    return any(folder.glob("*/*.engine"))


def fill_engines(root: Path, repository: Path, changed: Collection[str]) -> Iterator[str]:
    """Start the models that TensorRT runs once, as `serve` will, so that the next start finds their engines.

    Yield a note for each model, or one with the reason why nothing was built. Models without changes, whose engines are
    there, are not started.

    Args:
        changed: the names of the models with a new version or configuration.
    """
    from tritonkit.serve.repository import read_models

    folder = engines_of(root)
    kept = {model.name: _kept(model, folder) for model in read_models(repository) if uses_tensorrt(model)}
    missing = {name: place for name, place in kept.items() if place and (name in changed or not _has_engines(place))}
    if not missing:
        return
    driver = find_driver()
    if not driver.devices:
        yield _LATER.format(", ".join(missing), driver.wrong)
        return
    for name, place in missing.items():
        yield _fill(root, repository, name, place)


def _fill(root: Path, repository: Path, name: str, folder: Path) -> str:
    from tritonkit.serve.server import Server

    begun_at = time.monotonic()
    try:
        with Server(repository, models=(name,), root=root, grpc_port=0, metrics_port=0, finalize_timeout_s=0):
            pass
    except ServerError as error:
        return f"TensorRT's engines of {name} could not be built now: {error.in_a_line()}"
    took = f"a start took {time.monotonic() - begun_at:.0f} s"
    if not _has_engines(folder):
        return f"TensorRT runs no part of {name}, or keeps no engine in {folder}: {took}"
    return f"TensorRT's engines of {name} are in {folder}: {took}"
