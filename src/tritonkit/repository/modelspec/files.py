"""Files that a spec names: where they lie, and how large they may be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import SpecError
from tritonkit.repository.modelspec.base import FileReference, PackageFile

if TYPE_CHECKING:
    from tritonkit.repository.modelspec.load import Spec

__all__ = ["hold_to_size", "resolve_file", "resolve_folder", "resolve_inside", "resolve_network_file"]

SAVED_MODEL = "saved_model.pb"
"""The file of a SavedModel's folder that holds its graph."""


def resolve_file(reference: FileReference, spec: Spec, field: str) -> Path:
    """The path of a file that a spec names; it exists, and lies inside the folder or package that the spec names."""
    where = f"{spec.file} {field}"
    if isinstance(reference, PackageFile):
        try:
            package = importlib.util.find_spec(reference.package)
        except ValueError:  # `__main__` and its like have none
            package = None
        if package is None or package.origin is None:
            raise SpecError(
                where,
                found=f"package {reference.package!r} is not installed",
                todo=f"pip install {reference.package.replace('_', '-')}",
            )
        base, inner = Path(package.origin).parent, reference.file
    else:
        base, inner = spec.folder, reference
    return resolve_inside(base, inner, where)


def resolve_inside(base: Path, inner: str, where: str) -> Path:
    """The path of a file that lies inside a folder, also after its links are followed."""
    try:
        path = (base / inner).resolve()
        exists = path.is_file()
    except (OSError, RuntimeError) as error:  # a name too long, a link that leads to itself
        raise SpecError(where, found=f"{inner[:60]!r} cannot be followed: {error}", wanted="a file") from None
    if not path.is_relative_to(base.resolve()):
        raise SpecError(where, found=f"{inner!r} leads out of {base}", wanted="a file inside it")
    if not exists:
        raise SpecError(where, found=f"there is no file {inner!r} in {base}", todo="correct the path, or add the file")
    return path


def resolve_network_file(spec: Spec) -> Path:
    """The path of `network.file`; a folder is refused with the way that it can be served."""
    reference = spec.model.network.file
    where = f"{spec.file} network.file"
    if isinstance(reference, str) and (spec.folder / reference).is_dir():
        _refuse_saved_model(spec.folder / reference, where)
        raise SpecError(
            where,
            found=f"{reference} is a folder",
            wanted="a file; or network: {folder: ...} for a model in Triton's layout, with its config.pbtxt",
        )
    assert reference is not None  # noqa: S101  the caller chose this source
    return resolve_file(reference, spec, "network.file")


def resolve_folder(inner: str, spec: Spec, field: str) -> Path:
    """The path of a folder inside the model's folder."""
    path = (spec.folder / inner).resolve()
    if not path.is_relative_to(spec.folder.resolve()):
        raise SpecError(
            f"{spec.file} {field}", found=f"{inner!r} leads out of {spec.folder}", wanted="a folder inside it"
        )
    if not path.is_dir():
        raise SpecError(
            f"{spec.file} {field}",
            found=f"there is no folder {inner!r} in {spec.folder}",
            todo="correct the path, or add the folder",
        )
    _refuse_saved_model(path, f"{spec.file} {field}")
    return path


def _refuse_saved_model(folder: Path, where: str) -> None:
    if (folder / SAVED_MODEL).is_file():
        raise SpecError(
            where,
            found=f"{folder.name} is a SavedModel of TensorFlow, for which neither tritonkit's server nor Triton since"
            " 25.10 has a backend",
            wanted="an ONNX file of it",
            todo=f"tritonkit new NAME --keras {folder} converts it and compares the answers; or where TensorFlow is:"
            f" python -m tf2onnx.convert --saved-model {folder} --output model.onnx, then network: {{onnx:"
            " model.onnx}",
        )


def hold_to_size(path: Path, most_mib: int, where: str, todo: str = "") -> None:
    """SpecError for a file that is too large for its purpose; its content is not read."""
    size = path.stat().st_size
    if size > most_mib << 20:
        raise SpecError(
            where,
            found=f"{path.name} has {size} bytes",
            wanted=f"at most {most_mib} MiB ({most_mib << 20} bytes)",
            todo=todo or "name the right file, or a part of it",
        )
