"""`tritonkit new --keras`: a folder for a network of Keras 3, or for a SavedModel of TensorFlow.

It becomes an ONNX file, whose answers are those of Keras or TensorFlow.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tritonkit.errors import UsageError
from tritonkit.repository.modelspec.files import SAVED_MODEL
from tritonkit.repository.scaffold import keras_process, saved_model_process
from tritonkit.repository.scaffold.exporting import export_in_process
from tritonkit.repository.scaffold.folder import refuse_taken
from tritonkit.repository.scaffold.from_onnx import new_from_onnx

__all__ = ["new_from_keras"]

_CONFIG = "config.json"
_FILE = "a file that model.save('FILE.keras') wrote, or the folder of a SavedModel"
_MOST_CONFIG = 64 << 20
_KERAS = (keras_process.__name__, {"KERAS_BACKEND": "torch"}, "Keras exports")
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""TensorFlow on the CPU, in its own order of sums."""
_TENSORFLOW = (saved_model_process.__name__, _QUIET, "tf2onnx converts")
"""Module of the process, its variables, and what is said meanwhile."""


def new_from_keras(root: Path, name: str, file: Path, say: Callable[[str], None] = lambda _: None) -> Path:
    """A folder below `models/` for a .keras file, or for the folder of a SavedModel.

    Raises:
        UsageError: the file is none of Keras 3, or has Python of its own.
        BuildError: it cannot be exported, or the answers of the ONNX file are not the framework's.
    """
    refuse_taken(root, name)
    where, is_saved = f"--keras {file}", (file / SAVED_MODEL).is_file()
    if is_saved:
        _require_tensorflow(where)
    else:
        _hold_to_layers(file, _config(file))
    module, env, who = _TENSORFLOW if is_saved else _KERAS
    with tempfile.TemporaryDirectory(prefix="tritonkit-") as folder:
        say(f"{file.name}: {who} it to ONNX, which takes up to a minute ...")
        return new_from_onnx(root, name, export_in_process(module, file, Path(folder), where, env), where)


def _require_tensorflow(where: str) -> None:
    """UsageError where TensorFlow or tf2onnx is not installed; neither is imported, which takes seconds."""
    if missing := [name for name in ("tensorflow", "tf2onnx") if importlib.util.find_spec(name) is None]:
        raise UsageError(
            where,
            found=f"a SavedModel of TensorFlow, and {' and '.join(missing)} not installed",
            wanted="TensorFlow and tf2onnx, which convert it to ONNX",
            todo="pip install 'tritonkit[tensorflow]' (about 270 MB); or convert it in an environment that has them:"
            " python -m tf2onnx.convert --saved-model FOLDER --output model.onnx, then tritonkit new NAME --onnx"
            " model.onnx",
        )


def _config(file: Path) -> Any:
    """The file's description of its layers; nothing of it is run."""
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
