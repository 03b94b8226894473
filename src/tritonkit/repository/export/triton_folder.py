"""A model in Triton's own layout: its config.pbtxt, and the files of its newest version. Nothing of it is run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.client.wire.protos import data_type_name, schema
from tritonkit.datatypes import BY_CONFIG
from tritonkit.errors import SpecError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.plain_files import plain_file

__all__ = ["CONFIG", "TritonFolder", "read_triton_folder"]

CONFIG = "config.pbtxt"
_MOST_BYTES = 1 << 20
_MOST_FILES = 10_000
_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "tensorrt_plan": "tensorrt",
}
"""Older names in a configuration -> backend (Triton's `GetBackendFromPlatform`)."""
_FILES = {
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "python": "model.py",
    "pytorch": "model.pt",
    "tensorrt": "model.plan",
}
"""Backend -> the file that it opens without `default_model_filename`."""


@dataclass(frozen=True)
class TritonFolder:
    """A model that was taken in.

    Args:
        config: its ModelConfig, with the backend written out and without a policy of named versions.
        version: number of the version that is taken, the newest.
        version_files: the files of that version by their paths in it.
        model_files: all other files by their paths, without the configuration.
        left_out: sentences about what is not taken.
    """

    config: Any
    version: int
    version_files: dict[str, Path]
    model_files: dict[str, Path]
    left_out: tuple[str, ...] = ()

    @property
    def signature(self) -> Signature:
        """Inputs and outputs as the configuration has them."""
        config = self.config
        return Signature(
            tuple(_tensor(one, optional=one.optional) for one in config.input),
            tuple(_tensor(one) for one in config.output),
            config.max_batch_size > 0,
        )

    @property
    def main_file(self) -> str:
        """The file that the backend opens; empty for a backend that is not known here."""
        return str(self.config.default_model_filename) or _FILES.get(self.config.backend, "")


def read_triton_folder(folder: Path, where: str) -> TritonFolder:
    """The model in a folder.

    Raises:
        SpecError: it is not one model that can be served.
    """
    config = _config(folder, where)
    versions = sorted(int(path.name) for path in folder.iterdir() if _is_version(path))
    if not versions:
        raise SpecError(where, found=f"{folder} has no version", wanted="a folder 1/ with the files of the model")
    version = versions[-1]
    left_out = []
    if len(versions) > 1:
        left_out.append(f"version {version} is taken; older ones are not: {', '.join(map(str, versions[:-1]))}")
    if config.version_policy.HasField("specific"):
        left_out.append("version_policy specific is left out: a build numbers versions itself")
        config.ClearField("version_policy")
    inner = folder / str(version)
    taken = TritonFolder(
        config,
        version,
        dict(_files(inner, folder)),
        {
            name: path
            for name, path in _files(folder, folder)
            if name != CONFIG and name.partition("/")[0] not in map(str, versions)
        },
        tuple(left_out),
    )
    if taken.main_file and taken.main_file not in taken.version_files and not (inner / taken.main_file).is_dir():
        raise SpecError(
            where,
            found=f"{inner} has no {taken.main_file}, which the {config.backend} backend opens",
            wanted=f"that file, or default_model_filename in {CONFIG}",
        )
    _compile(taken, where)
    return taken


def _is_version(path: Path) -> bool:
    return path.is_dir() and path.name.isdecimal() and not path.name.startswith("0")


def _config(folder: Path, where: str) -> Any:
    """The configuration, with its backend written out."""
    from google.protobuf import text_format

    file = folder / CONFIG
    if not file.is_file():
        raise SpecError(where, found=f"there is no {CONFIG} in {folder}", wanted="a model in Triton's layout")
    try:
        text = plain_file(file, folder, _MOST_BYTES).read_text()
        config = text_format.Parse(text, schema().ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{where}: {file}",
            found=f"Triton's schema refuses it: {error}",
            wanted="fields of ModelConfig in protobuf's text format",
        ) from error
    if config.platform == "ensemble" or config.HasField("ensemble_scheduling"):
        raise SpecError(
            f"{where}: {file}",
            found="an ensemble, whose steps are other models",
            wanted="one model of its own",
            todo="take each of its models in, and write `pipeline` in model.yaml",
        )
    config.backend = config.backend or _PLATFORMS.get(config.platform) or _backend_of_files(folder)
    config.ClearField("platform")
    for need in ("backend", "input", "output"):
        if not getattr(config, need):
            raise SpecError(
                f"{where}: {file}", found=f"it has no {need}", wanted=f"{need}, also where Triton could complete it"
            )
    return config


def _backend_of_files(folder: Path) -> str:
    names = {path.name for version in folder.iterdir() if _is_version(version) for path in version.iterdir()}
    return next((backend for backend, file in _FILES.items() if file in names), "")


def _files(place: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below a place by their paths there; each lies in the folder itself."""
    count = 0
    for base, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        for name in sorted((*names, *links)):
            path = Path(base) / name
            count += 1
            if count > _MOST_FILES:
                raise SpecError(str(place), found=f"more than {_MOST_FILES} files", wanted="the files of one model")
            yield path.relative_to(place).as_posix(), plain_file(path, folder)


def _compile(taken: TritonFolder, where: str) -> None:
    """SpecError for a model.py that Python cannot compile; nothing of it is run."""
    if taken.config.backend != "python" or taken.main_file not in taken.version_files:
        return
    file = taken.version_files[taken.main_file]
    try:
        compile(file.read_bytes(), file.name, "exec")
    except (SyntaxError, ValueError) as error:
        raise SpecError(f"{where}: {file}", found=f"Python cannot compile it: {error}", wanted="Python") from error


def _tensor(tensor: Any, *, optional: bool = False) -> TensorInfo:
    name = data_type_name(tensor.data_type)
    if name not in BY_CONFIG:
        raise SpecError(f"{CONFIG} {tensor.name}", found=f"data_type {name}", wanted=f"one of {', '.join(BY_CONFIG)}")
    return TensorInfo(tensor.name, BY_CONFIG[name].name, tuple(tensor.dims), optional=optional)
