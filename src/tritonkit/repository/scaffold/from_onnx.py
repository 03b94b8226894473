"""`tritonkit new --onnx`: a folder for an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tritonkit.errors import UsageError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.describe import network_comments, other_comments
from tritonkit.repository.export.external_data import data_files, flat_names, relocate
from tritonkit.repository.export.onnx_file import check_file, read_signature, tensors
from tritonkit.repository.export.op_library import operators_in
from tritonkit.repository.scaffold.folder import refuse_taken, write_folder

__all__ = ["new_from_onnx"]


def new_from_onnx(root: Path, name: str, file: Path, where: str = "--onnx", libraries: Sequence[Path] = ()) -> Path:
    """A folder below `models/` that serves an ONNX file; it batches if the file's axis 0 is free.

    Files that hold weights of the ONNX file come along.

    Args:
        where: the option of the command line that named the file, for errors.
        libraries: libraries with custom operators of the file, which come along too.
    """
    refuse_taken(root, name)
    if not file.is_file():
        raise UsageError(where, found=f"there is no file {file}")
    for library in libraries:
        if not library.is_file():
            raise UsageError("--op-library", found=f"there is no file {library}")
    # A library is loaded by its whole path: a bare name is looked for where the system has libraries.
    with operators_in([library.resolve() for library in libraries], "--op-library"):
        model = check_file(file, where)
    signature = read_signature(model, where, batched=False)
    batched = all(t.shape and t.shape[0] == -1 for t in (*signature.inputs, *signature.outputs))
    settings: dict[str, Any] = {"network": {"onnx": file.name}}
    if libraries:
        settings["network"]["op_library"] = [library.name for library in libraries]
    if not batched:
        settings["serving"] = {"max_batch_size": 0}
    inputs = _without_batch(signature) if batched else signature.inputs
    comments = (network_comments(inputs), other_comments(inputs, batched))
    external = data_files(tensors(model), file, where)
    names = flat_names(external, file.name)
    files = {names[location]: path for location, path in external.items()}
    for library in libraries:
        if library.name in (file.name, *files):
            raise UsageError(
                "--op-library",
                found=f"{library}, and another file of the model is called {library.name}",
                wanted="distinct names, because all files lie in one folder",
            )
        files[library.name] = library
    code = {}
    if relocate(tensors(model), names):
        code = {file.name: model.SerializeToString()}
    else:
        files[file.name] = file
    return write_folder(root, name, settings, files, code, comments)


def _without_batch(signature: Signature) -> tuple[TensorInfo, ...]:
    return tuple(replace(t, shape=t.shape[1:], axes=t.axis_names[1:]) for t in signature.inputs)
