"""A hash of everything that goes into a build, so that nothing unchanged is built again."""

from __future__ import annotations

import ast
import platform
import sys
from collections.abc import Mapping, Sequence, Set
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tritonkit.repository.export.artifact import sha256_file, sha256_json
from tritonkit.repository.export.onnx_file import data_of
from tritonkit.repository.export.ready.step_runner import importable_code
from tritonkit.repository.modelspec import Network, PackageFile, Spec, resolve_file
from tritonkit.repository.modelspec.contents import imported_modules

__all__ = ["digest", "fingerprint", "folder_digests", "network_facts", "tool_versions"]

_TOOLS = ("numpy", "onnx", "onnxruntime", "onnxscript", "pillow", "safetensors", "tokenizers", "torch")
_ROOM = Path(__file__).parent
_SHARED = (_ROOM.parent / "export", _ROOM.parent / "export" / "ready", _ROOM)
_OF_GPUS = {"cuda_options.py", "gpu.py", "gpu_judging.py"}
"""Modules whose results are in no variant: figures of a GPU lie next to it, in a record that counts them itself."""
# The limits that a variant passes or fails can change without making it again.
_LIMITS = {"at_least", "at_most", "max_drop", "max_latency_ratio", "max_size_ratio"}


def fingerprint(spec: Spec, variant: str, tools: dict[str, str], code: Set[Path]) -> str:
    """Hexadecimal SHA-256 of everything a variant is made from.

    That is the spec's network, data and metric, the files of its folder, and the files it names in packages. The
    versions of the tools and the code count too. `code` has the modules that make this variant; modules that all
    variants share are always included.
    """
    model = spec.model
    facts: dict[str, Any] = {
        "variant": variant,
        "network": network_facts(model.network),
        "quality": model.quality.model_dump(mode="json", exclude=_LIMITS),
        # Padding is tried at build, so it decides whether there is an artifact, and not its content.
        "pad": [axis.pad for axis in model.network.free_axes.values() if axis.pad],
        "batched": model.serving.max_batch_size != 0,
        "independent_items": model.serving.independent_items,
        # Batches are proven up to 64 in any case.
        "largest": max(64, model.serving.max_batch_size or 0),
        "folder": folder_digests(spec.folder, skip={spec.file.name}),
        "named": [digest(file) for file in _named_files(spec)],
        "steps": _steps_of_samples(spec),
        "tools": tools,
        "shared": [digest(file) for room in _SHARED for file in sorted(room.glob("*.py")) if file.name not in _OF_GPUS],
        "code": [digest(file) for file in sorted(_with_helpers(code))],
    }
    if variant not in ("onnx-fp32", "python"):
        # The batching decides the profiles of a plan, and `optimize` all the others.
        batching = {"max_batch_size", "dynamic_batching"}
        # The required closeness of INT8 forms follows from the allowed drop.
        facts["max_drop"] = model.quality.max_drop
        facts["serving"] = model.serving.model_dump(mode="json", include=batching)
        facts["optimize"] = model.optimize.model_dump(mode="json", exclude={"variants"})
    return sha256_json(facts)


def _steps_of_samples(spec: Spec) -> list[Any]:
    """The steps that turn samples in files into the network's inputs, and its outputs into what a metric measures."""
    if not spec.model.sample_files:
        return []
    return [
        {
            "wiring": entry.model_dump(mode="json", include={"inputs", "outputs"}),
            "parameters": step.parameters,
            "files": {name: digest(file) for name, file in sorted(step.files.items())},
            "contract": digest(step.folder / "step.yaml"),
            "code": [digest(file) for file in importable_code(step)],
        }
        for step, entry in zip(spec.steps, spec.model.pipeline, strict=True)
        if step is not None and entry != "network"
    ]


def network_facts(network: Network) -> dict[str, Any]:
    """The parts of the spec's network that change its file, without the padding of batches and the models it calls."""
    unread: Any = {"free_axes": {"__all__": {"pad"}}, "calls": True}
    return network.model_dump(mode="json", exclude=unread)


def _with_helpers(code: Set[Path]) -> set[Path]:
    """Modules, and the modules in the folders of `optimize` that they import, directly or not."""
    modules: set[Path] = set()
    left = list(code)
    while left:
        file = left.pop()
        if file in modules:
            continue
        modules.add(file)
        left += _helpers(file, file.stat().st_mtime_ns)
    return modules


@cache
def _helpers(file: Path, _changed: int) -> list[Path]:
    """Modules in the folders of `optimize` that a module imports; cached, because every variant's plan needs them."""
    helpers = [
        _ROOM.parents[2].joinpath(*node.module.split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module
    ]
    return [file for file in helpers if file.is_relative_to(_ROOM) and file.parent != _ROOM and file.is_file()]


def tool_versions(spec: Spec, more: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python, of the build's libraries, of packages that the folder's own code imports, and of the
    distributions `more`."""
    imported = set().union(*(imported_modules(file) for file in spec.folder.glob("*.py")), set())
    third_party = sorted(imported - set(sys.stdlib_module_names))
    distributions = _distributions() if third_party else {}
    named = {name for module in third_party for name in distributions.get(module, ())}
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in sorted(named.union(_TOOLS, more)):
        if version := _version(name):
            versions[name] = version
    return versions


@cache
def _version(distribution: str) -> str | None:
    """The installed version, read once in a process."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Import name -> distributions; cached, because it reads every installed package's record."""
    return metadata.packages_distributions()


def digest(file: Path) -> str:
    """SHA-256 of a file, read again only after a change: every plan needs it, and files may have gigabytes."""
    state = file.stat()
    return _digest_of(file, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1 << 16)
def _digest_of(file: Path, *_state: int) -> str:
    return sha256_file(file)


def _named_files(spec: Spec) -> list[Path]:
    """The files that the spec names. For files of a package, the weights next to them are included; the files in the
    model's own folder are all hashed anyway."""
    network = spec.model.network
    files = []
    data = [(files.source[1], files.classes) for files in spec.model.sample_files.values() if files.folder is None]
    own = (network.weights, network.onnx, network.file, *network.op_libraries, *network.files)
    for reference in (*own, *(one for both in data for one in both)):
        if reference is None:
            continue
        file = resolve_file(reference, spec, "network")
        files.append(file)
        if reference is network.onnx and isinstance(reference, PackageFile):
            files += data_of(file, f"{spec.file} network.onnx").values()
        weights = file.with_suffix(".bin")  # OpenVINO's
        if reference is network.file and isinstance(reference, PackageFile) and weights.is_file():
            files.append(weights)
    return files


def folder_digests(folder: Path, skip: Set[str] = frozenset()) -> dict[str, str]:
    """SHA-256 of each file below a folder, by its path there; files named in `skip` are left out."""
    return {
        str(file.relative_to(folder)): digest(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in skip and "__pycache__" not in file.parts
    }
