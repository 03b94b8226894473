"""The files and the configuration of a model's Python: a file, a published model, or a part of a project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.repository.modelspec import Spec
    from tritonkit.repository.render.values import ModelPlan

__all__ = ["ModelSource", "of_project", "published"]


@dataclass(frozen=True)
class ModelSource:
    """A model before it is loaded.

    Args:
        config: its configuration.
        version_files: the files of its version by name.
        model_files: the files next to the version.
        folders: more folders in which its Python finds modules.
    """

    config: dict[str, Any]
    version_files: Mapping[str, Path]
    model_files: Mapping[str, Path]
    folders: tuple[Path, ...] = ()

    @classmethod
    def of_file(cls, file: Path, config: Mapping[str, Any] | str) -> ModelSource:
        """A `model.py` with everything next to it."""
        if not file.is_file():
            raise UsageError(str(file), found="there is no such file", wanted="a model.py")
        read = _read(config, str(file)) if isinstance(config, str) else dict(config)
        read = {"name": "model", "max_batch_size": 0, "backend": "python"} | read
        named = {path.name: path for path in file.parent.iterdir() if path.name != "__pycache__"}
        return cls(read, named | {"model.py": file}, {})

    def with_parameters(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """The configuration with more parameters."""
        more = {name: {"string_value": str(value)} for name, value in parameters.items()}
        return self.config | {"parameters": {**self.config.get("parameters", {}), **more}}

    def place(self, folder: Path) -> Path:
        """Put links to the files into a folder, in the places that they have in a repository."""
        places = {f"1/{name}": file for name, file in self.version_files.items()} | dict(self.model_files)
        for name, file in places.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(file.resolve())
        return folder


def published(folder: Path) -> ModelSource:
    """A model of a repository, with its newest version."""
    from tritonkit.repository.publish.integrity import CONFIG, versions

    if not (folder / CONFIG).is_file() or not versions(folder):
        raise UsageError(str(folder), found="no published model", wanted=f"a folder with {CONFIG} and a version")
    version = folder / str(versions(folder)[-1])
    config = _read((folder / CONFIG).read_text(), str(folder / CONFIG))
    model_files = {path.name: path for path in folder.iterdir() if not path.name.isdigit()}
    return ModelSource(config, {path.name: path for path in version.iterdir()}, model_files)


def of_project(name: str, root: Path) -> ModelSource:
    """A Triton model of a project's specs, with the configuration that a build would render."""
    from tritonkit.repository.inspection import inspect_model
    from tritonkit.repository.modelspec import load_readable
    from tritonkit.repository.render.config import render_config

    specs, _ = load_readable(root.resolve(), every=True)
    known = []
    for spec in specs:
        if name != spec.name and not name.startswith(f"{spec.name}_"):
            continue
        inspection = inspect_model(spec, "cpu", 1)
        for plan in inspection.models:
            known.append(plan.name)
            if plan.name == name and plan.backend == "python":
                text = render_config(plan, source=str(spec.file), target="cpu", cores=1)
                return ModelSource(_read(text, name), _version_files(plan, spec), plan.model_files)
        if not inspection.models and inspection.unknown:
            raise UsageError(name, found=inspection.unknown[0], wanted="a model that could be built")
    raise UsageError(
        f"model {name!r}",
        found="no Python model of that name" if name in known else "no spec of the project has such a model",
        wanted=f"one of {', '.join(known)}" if known else "SPEC_STEP, or the name of a spec whose network is Python",
    )


def _version_files(plan: ModelPlan, spec: Spec) -> Mapping[str, Path]:
    """The files of a version. Those of a network are not copied yet, as nothing was built."""
    from tritonkit.repository.modelspec import resolve_file

    network = spec.model.network
    if plan.name != spec.network_name or network.python is None:
        return plan.version_files
    more = [resolve_file(file, spec, "network.files") for file in network.files]
    return {file.name: file for file in more} | {"model.py": resolve_file(network.python, spec, "network.python")}


def _read(text: str, where: str) -> dict[str, Any]:
    """A configuration's text as Triton hands it to Python."""
    from google.protobuf import json_format

    from tritonkit.repository.render.message import parse_text

    message = parse_text(text, where)
    config: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    for tensor in (*config.get("input", []), *config.get("output", [])):
        tensor["dims"] = [int(size) for size in tensor.get("dims", [])]
    return {"max_batch_size": 0} | config
