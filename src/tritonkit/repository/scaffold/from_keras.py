"""`tritonkit new --keras`: a folder for a network of Keras 3, as an ONNX file whose answers are Keras's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError, UsageError
from tritonkit.repository.modelspec.files import SAVED_MODEL
from tritonkit.repository.scaffold import keras_process as process
from tritonkit.repository.scaffold.folder import refuse_taken
from tritonkit.repository.scaffold.from_onnx import new_from_onnx

__all__ = ["new_from_keras"]

_CONFIG = "config.json"
_FILE = "a file that model.save('FILE.keras') wrote"
_MOST_CONFIG = 64 << 20


def new_from_keras(root: Path, name: str, file: Path, say: Callable[[str], None] = lambda _: None) -> Path:
    """A folder below `models/` for a .keras file.

    Raises:
        UsageError: the file is none of Keras 3, or has Python of its own.
        BuildError: Keras cannot export it, or the answers of the ONNX file are not Keras's.
    """
    refuse_taken(root, name)
    _hold_to_layers(file, _config(file))
    with tempfile.TemporaryDirectory(prefix="tritonkit-") as folder:
        say(f"{file.name}: Keras exports it to ONNX, which takes up to a minute ...")
        return new_from_onnx(root, name, _exported(file, Path(folder)), f"--keras {file}")


def _config(file: Path) -> Any:
    """The file's description of its layers; nothing of it is run."""
    if (file / SAVED_MODEL).is_file():
        raise UsageError(
            f"--keras {file}",
            found="a SavedModel of TensorFlow",
            wanted="a .keras file of Keras 3, or an ONNX file",
            todo=f"where TensorFlow is: pip install tf2onnx && python -m tf2onnx.convert --saved-model {file} --output"
            " model.onnx; then tritonkit new NAME --onnx model.onnx",
        )
    if not file.is_file():
        raise UsageError(
            f"--keras {file}", found="a folder" if file.is_dir() else "there is no such file", wanted=_FILE
        )
    try:
        with zipfile.ZipFile(file) as archive:
            info = archive.getinfo(_CONFIG)
            if info.file_size > _MOST_CONFIG:
                raise UsageError(f"--keras {file}", found=f"{_CONFIG} in it has {info.file_size} bytes")
            return json.loads(archive.read(info))
    except UsageError:
        raise
    except Exception:  # those of zipfile and its decompressors have no common root
        raise UsageError(
            f"--keras {file}",
            found="it is not a .keras file of Keras 3",
            wanted=_FILE,
            todo="load a file of HDF5 with the Keras that wrote it, and save it as .keras with Keras 3",
        ) from None


def _hold_to_layers(file: Path, config: Any) -> None:
    """UsageError for a network with Python in it, or with classes that are not Keras's."""
    objects = list(_objects(config))
    if lambdas := [_name(one) for one in objects if one["class_name"] in ("Lambda", "__lambda__")]:
        raise UsageError(
            f"--keras {file}",
            found=f"its layer {lambdas[0]} is a Lambda, which is Python that would run where the file is loaded",
            wanted="layers of Keras alone",
            todo="write it with keras.ops in a Functional model, and save it again",
        )
    own = {str(one["registered_name"]): _name(one) for one in objects if _is_own(one)}
    if own:
        raise UsageError(
            f"--keras {file}",
            found=f"custom objects, whose Python is not in the file: {', '.join(sorted(own))}",
            wanted="layers and functions of Keras alone",
            todo="serve it as PyTorch: KERAS_BACKEND=torch makes a Keras model a torch.nn.Module, which a function of"
            " yours loads: tritonkit new NAME --torch MODULE:FUNCTION",
        )


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    """Every object that a description names, at any depth."""
    left = [config]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if isinstance(one.get("class_name"), str):
                yield one
            left += one.values()
        elif isinstance(one, list):
            left += one


def _is_own(one: dict[str, Any]) -> bool:
    module = one.get("module")
    return one.get("registered_name") is not None and not str(module).startswith("keras.")


def _name(one: dict[str, Any]) -> str:
    config = one.get("config")
    return str(config.get("name", one["class_name"])) if isinstance(config, dict) else str(one["class_name"])


def _exported(file: Path, folder: Path) -> Path:
    """The ONNX file that another process writes into the folder."""
    command = [sys.executable, "-m", process.__name__, str(file.resolve()), str(folder)]
    env = os.environ | {"KERAS_BACKEND": "torch"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=env)
    if (folder / process.REFUSAL).is_file():
        parts = json.loads((folder / process.REFUSAL).read_text())
        raise BuildError(**parts | {"where": parts["where"] or f"--keras {file}"})
    if done.returncode or not (folder / process.NETWORK).is_file():
        lines = done.stderr.strip().splitlines()
        raise BuildError(
            f"--keras {file}",
            found=f"the process that exports it ended with {done.returncode}: {lines[-1] if lines else 'no message'}",
            wanted="an ONNX file",
            details="\n".join(lines[-20:]),
        )
    return folder / process.NETWORK
