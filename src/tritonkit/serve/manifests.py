"""Memory and shared memory of a container that serves a repository, and the small file that compose reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tritonkit.repository.environments.environment import read_environment
from tritonkit.repository.publish.integrity import MANIFEST, read_manifest
from tritonkit.serve.core.pools import GpuNeeds
from tritonkit.serve.core.rest import CONTAINER_MIB
from tritonkit.serve.shm import (
    MIB,
    SLACK,
    item_bytes,
    largest_file,
    largest_message,
    plan,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from tritonkit.serve.repository import ServedModel

__all__ = [
    "ContainerNeeds",
    "batch_bytes",
    "compose_text",
    "container_needs",
    "gpu_needs",
    "network_bytes",
    "warm_up_of",
]

SERVER_BYTES = 512 * MIB
"""Memory of tritonserver with a response cache of 64 MiB (50 MiB without one) and its buffers for requests."""

STUB_BYTES = 64 * MIB
"""Memory of a Python stub with numpy, Pillow or tokenizers: 20 to 32 MiB were measured, without shared pages."""

PACKAGES_BYTES = 256 * MIB
"""Memory of a stub's own packages, at most. Importing xgboost, LightGBM, pandas and scikit-learn (220 MB) took 133 MiB
that no other process shares, and importing PyTorch (754 MB) 196 MiB with its pages of the file."""

WEIGHTS = 3
"""Memory over file size of an ONNX model: 2.7 was seen for all-MiniLM-L6-v2 (87 MiB, 238 MiB resident)."""

LANGUAGE_WEIGHTS = 2
"""The same ratio for the backend `llm`, without its cache: 1.9 for 513 MiB of FP32, 2.0 for 129 MiB of INT8."""

ACTIVATIONS_BYTES = 256 * MIB
"""Temporary memory of one run of a network; 32 texts of 256 tokens through that model took 150 MiB."""

MESSAGE_COPIES = 3
"""Copies of a message that Triton holds while it parses it: 1.9 GB took 6.2 GB (2.51)."""

GENERATIONS = 2
"""Number of versions in memory: a new version is loaded before the old one is unloaded."""

_STEP = 64 * MIB
_NETWORK_FILES = ("*.onnx*", "*.bin", "*.pt", "*.pt2", "*.tflite", "*.tl")
_ONNX = "onnxruntime"
"""Backend of ONNX files, whose files of weights may have any name, in any folder."""
_LANGUAGE, _CACHE = "llm", "cache_mib"


@dataclass(frozen=True)
class ContainerNeeds:
    """The limits of a container.

    Args:
        shm_bytes: the size of its /dev/shm, for two generations.
        stubs_bytes: the part of it that one generation needs; with less the container refuses to start.
        memory_bytes: all its memory, /dev/shm included.
        region_bytes: the size each stub's region starts with (`shm-default-byte-size`).
        message_bytes: the largest request.
        file_bytes: the size each stub's region may grow to.
        stub_bytes: model -> the planned size of the region of one of its stubs.
        gpu_models: model -> what it takes of GPUs; models that none runs are left out.
    """

    shm_bytes: int
    stubs_bytes: int
    memory_bytes: int
    region_bytes: int
    message_bytes: int
    file_bytes: int
    stub_bytes: dict[str, int]
    gpu_models: dict[str, GpuNeeds] = field(default_factory=dict)


def container_needs(models: Sequence[ServedModel], python_run: Collection[str]) -> ContainerNeeds:
    """Shared memory as `shm.plan` has it, and the memory of the processes, both for two generations.

    The figures for processes are upper bounds from what was seen, not measurements of these models.
    """
    shm = plan(models, python_run)
    by_name = {model.name: model for model in models}
    stubs = sum(need.stubs for need in shm.models)
    networks = sum(_instances_bytes(model) for model in models)
    packages = sum(need.stubs * _packages_bytes(by_name[need.model]) for need in shm.models)
    message_bytes = largest_message(models)
    server = SERVER_BYTES + CONTAINER_MIB * MIB + MESSAGE_COPIES * message_bytes
    processes = server + GENERATIONS * (stubs * STUB_BYTES + packages + networks)
    shm_bytes = GENERATIONS * shm.total_bytes
    return ContainerNeeds(
        shm_bytes=shm_bytes,
        stubs_bytes=shm.total_bytes,
        memory_bytes=math.ceil((processes + shm_bytes) / _STEP) * _STEP,
        region_bytes=shm.default_bytes,
        message_bytes=message_bytes,
        file_bytes=largest_file(shm, message_bytes),
        stub_bytes={need.model: need.bytes_each for need in shm.models},
        gpu_models={model.name: needs for model in models if (needs := gpu_needs(model)).groups},
    )


def gpu_needs(model: ServedModel) -> GpuNeeds:
    """The needs of a model on the GPUs that run it; no group for one that none runs."""
    groups = tuple(
        (group.count or 1, tuple(group.gpus)) for group in model.config.instance_group if group.kind == group.KIND_GPU
    )
    room = -int(-SLACK * batch_bytes(model) // MIB) * MIB
    return GpuNeeds(groups, len(model.versions) * room)


def batch_bytes(model: ServedModel) -> int:
    """Bytes of a model's largest batch, inputs and outputs together."""
    items: int = max(1, model.config.max_batch_size)
    return items * item_bytes(model)


def compose_text(needs: ContainerNeeds, source: str, cores: int | None) -> str:
    """A compose file with the limits of the service `triton`, for others to extend.

    Args:
        needs: the limits.
        source: the repository, for the header.
        cores: the number of cores its configuration was rendered for, for the header; None if unknown.
    """
    made_for = "" if cores is None else f" (cores {cores})"
    return (
        f"# Written by `tritonkit manifests --target compose` from {source}{made_for}.\n"
        "# Do not edit: run it again.\n"
        "services:\n"
        "  triton:\n"
        f"    shm_size: {needs.shm_bytes // MIB}m\n"
        f"    mem_limit: {needs.memory_bytes // MIB}m\n"
    )


def network_bytes(model: ServedModel) -> int:
    """Size of the files with a model's networks, of every version that is served."""
    return sum(file.stat().st_size for version in model.versions for file in _files(model, version))


def _files(model: ServedModel, version: int) -> set[Path]:
    folder = model.folder / str(version)
    if model.backend == _ONNX:
        return {file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST}
    return {file for pattern in _NETWORK_FILES for file in folder.glob(pattern)}


def _instances_bytes(model: ServedModel) -> int:
    """Memory of a model's networks, in every instance of every version that is served."""
    instances = sum(group.count or 1 for group in model.config.instance_group) or 1
    weights = LANGUAGE_WEIGHTS if model.backend == _LANGUAGE else WEIGHTS
    total = 0
    for version in model.versions:
        if files := _files(model, version):
            size = sum(file.stat().st_size for file in files)
            total += weights * size + _activations(model, version) + _cache_bytes(model)
    return instances * total


def _packages_bytes(model: ServedModel) -> int:
    """Memory of the packages that one stub of a model imports in addition to numpy: PyTorch, and the model's own."""
    if model.runs_pytorch:
        return PACKAGES_BYTES
    found = [read_environment(model.folder / str(version)) for version in model.versions]
    return min(PACKAGES_BYTES, max((one.size_bytes for one in found if one is not None), default=0))


def _activations(model: ServedModel, version: int) -> int:
    """Memory that runs take: the usual amount, or the build's measurement if two generations have no room for it."""
    measured = round(warm_up_of(model, version)[0])
    return measured if measured > (1 + GENERATIONS) * ACTIVATIONS_BYTES else ACTIVATIONS_BYTES


def warm_up_of(model: ServedModel, version: int) -> tuple[float, float]:
    """Cost of warming up one instance by the version's manifest: bytes, and seconds of a core; 0 where it was not
    measured."""
    start = (read_manifest(model.folder / str(version)) or {}).get("start")
    if not isinstance(start, dict):
        return 0.0, 0.0
    needs = (start.get("memory_bytes"), start.get("processor_s"))
    memory, seconds = (float(value) if isinstance(value, int | float) else 0.0 for value in needs)
    return memory, seconds


def _cache_bytes(model: ServedModel) -> int:
    """Memory of the keys and values of a language model's sequences."""
    parameters = model.config.parameters
    if model.backend != _LANGUAGE or _CACHE not in parameters:
        return 0
    return int(parameters[_CACHE].string_value) * MIB
