"""`tritonkit new --file` and `--triton`: folders for networks that are served as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tritonkit.errors import SpecError, TritonkitError, UsageError
from tritonkit.repository.export.describe import network_comments, other_comments
from tritonkit.repository.export.independence import DEFAULT_LARGEST
from tritonkit.repository.export.triton_folder import CONFIG, read_triton_folder
from tritonkit.repository.modelspec import ModelFile, Network, Spec, Tensor
from tritonkit.repository.modelspec.files import SAVED_MODEL
from tritonkit.repository.optimize.files.detect import kind_of
from tritonkit.repository.optimize.files.kinds import open_ready
from tritonkit.repository.optimize.files.ready import ReadyFile
from tritonkit.repository.optimize.files.torch_script import TorchScriptFile, positions
from tritonkit.repository.optimize.variants.tensorrt_plan import RECORD
from tritonkit.repository.scaffold.folder import refuse_taken, write_folder
from tritonkit.repository.scaffold.from_torch import learn_outputs, learned_settings
from tritonkit.repository.scaffold.inputs import as_usage_error, parse_inputs

__all__ = ["new_from_file", "new_from_triton"]

_TAKEN = "triton"
"""The folder of a model in Triton's layout, within the new model's."""


def new_from_file(root: Path, name: str, file: Path, inputs: Sequence[str] = ()) -> Path:
    """A folder below `models/` that serves a file as it is: TorchScript, torch.export or OpenVINO.

    Args:
        inputs: the inputs of a TorchScript file as `--input` writes them; it is run once to learn its outputs.

    Raises:
        UsageError: no backend serves such a file.
    """
    refuse_taken(root, name)
    if file.is_dir():
        option = "--triton" if (file / CONFIG).is_file() else "--keras" if (file / SAVED_MODEL).is_file() else "--hf"
        todo = f"name a file, or give the folder to tritonkit new NAME {option}"
        raise UsageError(f"--file {file}", found="a folder", wanted="a network's file", todo=todo)
    if not file.is_file():
        raise UsageError(f"--file {file}", found="there is no such file", wanted="a network's file")
    with _as_option("--file", file):
        kind = kind_of(_spec(name, file))
        if kind == "tensorrt":
            raise UsageError(
                "--file",
                found=f"{file.name} is a TensorRT plan, whose inputs and outputs only its own TensorRT can tell",
                wanted="a model.yaml that names them",
                todo=f"write models/{name}/model.yaml: network: {{file: {file.name}, inputs: ..., outputs: ...}}",
            )
        if kind == "torchscript":
            return _torchscript(root, name, file, inputs)
        if inputs:
            raise UsageError("--input", found=f"inputs, and {file.name} tells its own", wanted="no --input")
        return _told(root, name, file, open_ready(_spec(name, file)))


def new_from_triton(root: Path, name: str, folder: Path) -> Path:
    """A folder below `models/` with a copy of a model in Triton's layout, which is served as it is."""
    refuse_taken(root, name)
    with _as_option("--triton", folder):
        if not folder.is_dir():
            raise UsageError("--triton", found=f"there is no folder {folder}", wanted="a model in Triton's layout")
        taken = read_triton_folder(folder, "--triton")
        files = {f"{_TAKEN}/{taken.version}/{path}": file for path, file in taken.version_files.items()}
        files |= {f"{_TAKEN}/{path}": file for path, file in taken.model_files.items()}
        files[f"{_TAKEN}/{CONFIG}"] = folder / CONFIG
    notes = [f"# {note}" for note in taken.left_out]
    return write_folder(root, name, {"network": {"folder": _TAKEN}}, files, comments=((), notes))


def _spec(name: str, file: Path, **more: Any) -> Spec:
    return Spec(file.resolve().parent, ModelFile(name=name, network=Network(file=file.name, **more)))


def _told(root: Path, name: str, file: Path, ready: ReadyFile) -> Path:
    """A folder for a file that tells its inputs and outputs."""
    batched = not ready.batch_axis_missing()
    signature = ready.signature(batched)
    settings: dict[str, Any] = {"network": {"file": file.name}}
    if not batched:
        settings["serving"] = {"max_batch_size": 0}
    elif 0 < ready.most_items < DEFAULT_LARGEST:
        settings["serving"] = {"max_batch_size": ready.most_items}
    # Names that the file gives to sizes are its own symbols, which nobody writes.
    own = [replace(tensor, axes=()) for tensor in signature.inputs]
    comments = (network_comments(own), other_comments(own, batched))
    files = {one.name: one for one in (file, file.with_suffix(".bin"), file.with_name(RECORD)) if one.is_file()}
    files = files if file.suffix == ".xml" else {file.name: file}
    return write_folder(root, name, settings, files, comments=comments)


def _torchscript(root: Path, name: str, file: Path, inputs: Sequence[str]) -> Path:
    """A folder for a TorchScript file, which tells the names of its arguments at most."""
    ready = open_ready(_spec(name, file))
    assert isinstance(ready, TorchScriptFile)  # noqa: S101  by its kind
    if not inputs:
        named = " ".join(f"--input {argument}=FP32:..." for argument in ready.arguments)
        raise UsageError(
            "--input",
            found=f"none is given, and {file.name} tells neither types nor shapes",
            wanted="types and shapes, without the batch axis",
            todo=named,
        )
    tensors, axes = parse_inputs(inputs)
    places = positions(list(tensors), ready.arguments)
    tensors = {one: tensors[one] for one in sorted(tensors, key=lambda one: places[one])}
    with as_usage_error("--input"):
        spec = _spec(name, file, inputs=tensors, free_axes=axes, outputs={"unknown": Tensor(dtype="FP32", shape=())})
    learned = learn_outputs(spec, ready.module)
    settings, end = learned_settings({"file": file.name}, tensors, axes, learned)
    return write_folder(root, name, settings, {file.name: file}, comments=((), end))


@contextmanager
def _as_option(option: str, given: Path) -> Iterator[None]:
    """Errors that name a model.yaml which does not exist yet name the option instead."""
    try:
        yield
    except TritonkitError as error:
        if "model.yaml" in error.where or not error.where:
            error.where = f"{option} {given}"
        if isinstance(error, SpecError):
            raise UsageError(error.where, found=error.found, wanted=error.wanted, todo=error.todo) from None
        raise
