"""A hash of everything that goes into a build: what is unchanged need not be built again."""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import sys
from importlib import metadata
from pathlib import Path

from tritonkit.build.artifact import sha256_file
from tritonkit.spec import FileReference, Spec, resolve_file

__all__ = ["fingerprint", "tool_versions"]

_TOOLS = ("numpy", "onnx", "onnxruntime", "onnxscript", "safetensors", "torch")


def fingerprint(spec: Spec, variant: str, tools: dict[str, str]) -> str:
    """Hexadecimal SHA-256 over the spec's network and quality, its folder's files, the files it
    names in packages, the versions of the tools, and the code of this room."""
    network = spec.model.network
    facts = {
        "variant": variant,
        "network": network.model_dump(mode="json"),
        "quality": spec.model.quality.model_dump(mode="json"),
        "batched": spec.model.serving.max_batch_size != 0,
        "folder": _hash_folder(spec.folder, exclude=frozenset({spec.file.name})),
        "named": [sha256_file(resolve_file(file, spec, "network")) for file in _named_files(spec)],
        "tools": tools,
        "builder": _hash_folder(Path(__file__).parent, exclude=frozenset()),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def tool_versions(spec: Spec) -> dict[str, str]:
    """Versions of Python, of the build's libraries and of what the folder's own code imports."""
    imported = set().union(*(_imports(file) for file in spec.folder.glob("*.py")), set())
    third_party = sorted(imported - set(sys.stdlib_module_names))
    distributions = metadata.packages_distributions() if third_party else {}
    named = {name for module in third_party for name in distributions.get(module, ())}
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in sorted(named.union(_TOOLS)):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _named_files(spec: Spec) -> list[FileReference]:
    network = spec.model.network
    return [file for file in (network.weights, network.onnx, *network.files) if file is not None]


def _hash_folder(folder: Path, exclude: frozenset[str]) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): sha256_file(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in exclude and "__pycache__" not in file.parts
    }


def _imports(file: Path) -> set[str]:
    """Top-level modules that a Python file imports; none if it cannot be parsed (its hook will say so)."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # ValueError: a null byte, before Python 3.12
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
