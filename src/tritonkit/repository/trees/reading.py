"""Tell the kinds of tree files apart, and read each."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from tritonkit.errors import UsageError
from tritonkit.repository.trees.catboost_file import read_catboost
from tritonkit.repository.trees.forest import Forest
from tritonkit.repository.trees.lightgbm_file import read_lightgbm
from tritonkit.repository.trees.ubjson import read_ubjson
from tritonkit.repository.trees.xgboost_file import read_xgboost

__all__ = ["kind_of", "read_forest"]

MAX_BYTES = 1 << 30
MAX_JSON = 1 << 28
"""Bytes of JSON, whose numbers take many times as many in memory."""
_KNOWN = "a file of XGBoost (JSON, UBJSON), LightGBM (text), CatBoost (JSON, ONNX) or scikit-learn (skops, ONNX)"
_SAVE_XGBOOST = 'save the model itself: booster.save_model("model.json")'
_NO_PICKLE = (
    "write another format with the Python that trained it."
    ' scikit-learn: skops.io.dump(pipeline, "model.skops"), or skl2onnx.to_onnx(pipeline, X).'
    ' XGBoost: model.save_model("model.json"). LightGBM: model.booster_.save_model("model.txt").'
    ' CatBoost: model.save_model("model.json", format="json")'
)
_BEGINNINGS = (
    (b"CBM1", "CatBoost's own binary format", 'save it as JSON: model.save_model("model.json", format="json")'),
    (b"binf", "XGBoost's old binary format", "load it with XGBoost 3.0 or older and " + _SAVE_XGBOOST),
    (b"bs64", "XGBoost's old binary format", "load it with XGBoost 3.0 or older and " + _SAVE_XGBOOST),
    (b"\x89HDF", "an HDF5 file", "save a network of Keras as .keras, and use --keras"),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
)
_ENDINGS = {
    ".safetensors": ("weights of a neural network", "use --hf, --llm, or --torch with --weights"),
    ".keras": ("a network of Keras", "use --keras"),
    ".pt": ("PyTorch's format", "use --torch with --weights, or --file for TorchScript"),
    ".pt2": ("a program of torch.export", "use --file"),
    ".pth": ("PyTorch's format", "use --torch with --weights, or --file for TorchScript"),
    ".xml": ("a network of OpenVINO", "use --file"),
}
"""Endings of neural networks' files -> the kind, and the option for it."""


def kind_of(file: Path) -> str:
    """`forest`, `onnx` or `skops`: the way a file is read.

    Raises:
        UsageError: it is something else, or a pickle, which could run any code.
    """
    try:
        state = file.stat()
    except OSError:
        raise UsageError("", found=f"there is no file {file}") from None
    if stat.S_ISDIR(state.st_mode):
        raise UsageError("", found="a folder", wanted=_KNOWN, todo="for a checkpoint use --hf or --llm")
    if not stat.S_ISREG(state.st_mode):
        raise UsageError("", found="not a regular file", wanted=_KNOWN, todo="copy it")
    if not 0 < state.st_size <= MAX_BYTES:
        found = f"{state.st_size} bytes" if state.st_size else "an empty file"
        raise UsageError("", found=found, wanted=f"at most {MAX_BYTES} bytes" if state.st_size else _KNOWN)
    with file.open("rb") as opened:
        first = opened.read(64)
    if file.suffix in _ENDINGS:
        found, todo = _ENDINGS[file.suffix]
        raise UsageError("", found=found, wanted=_KNOWN, todo=todo)
    if file.suffix in (".pkl", ".pickle", ".joblib") or first[:1] == b"\x80":
        raise UsageError("", found="a pickle, which can run any code when it is read", wanted=_KNOWN, todo=_NO_PICKLE)
    for beginning, found, todo in _BEGINNINGS:
        if first.startswith(beginning):
            raise UsageError("", found=found, wanted=_KNOWN, todo=todo)
    if first.startswith(b"PK"):
        return "skops"
    if first[:1] == b"\x08" or file.suffix == ".onnx":
        return "onnx"
    return "forest"


def read_forest(file: Path) -> Forest:
    """The forest of a file.

    Raises:
        UsageError: it cannot be read; the error's place is one in the file.
    """
    data = file.read_bytes()
    text = data.lstrip()
    if text.startswith((b"tree\n", b"tree\r\n")):
        return read_lightgbm(_decoded(data).replace("\r\n", "\n"))
    if text.startswith(b"[") and not text.startswith((b"[$", b"[#")):
        raise UsageError("", found="a list, as dump_model writes it", wanted=_KNOWN, todo=_SAVE_XGBOOST)
    if not text.startswith(b"{"):
        raise UsageError("", found="a file of another format", wanted=_KNOWN)
    document = read_ubjson(data) if data[:2] in (b"{L", b"{i", b"{U", b"{l", b"{I", b"{$", b"{#") else _json(data)
    if not isinstance(document, dict):
        raise UsageError("", found="no object", wanted=_KNOWN)
    if "learner" in document:
        return read_xgboost(document)
    if "features_info" in document:
        return read_catboost(document)
    if "tree_info" in document:
        raise UsageError(
            "", found="LightGBM's dump_model", wanted="its text", todo='save the model: booster.save_model("model.txt")'
        )
    if "nodeid" in document:
        raise UsageError("", found="one tree of XGBoost's dump_model", wanted=_KNOWN, todo=_SAVE_XGBOOST)
    raise UsageError("", found=f"JSON with the keys {', '.join(map(repr, list(document)[:5]))}", wanted=_KNOWN)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"byte {error.start}", found="a byte that is not UTF-8", wanted=_KNOWN) from None


def _json(data: bytes) -> Any:
    if len(data) > MAX_JSON:
        raise UsageError(
            "",
            found=f"JSON of {len(data)} bytes",
            wanted=f"at most {MAX_JSON}",
            todo='XGBoost: save it as UBJSON, model.save_model("model.ubj"). CatBoost: save it as ONNX',
        )
    try:
        return json.loads(_decoded(data))
    except RecursionError:
        raise UsageError("", found="values that lie too deep within each other", wanted=_KNOWN) from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"line {error.lineno}, character {error.colno}", found=f"not JSON: {error.msg}", wanted=_KNOWN
        ) from None
    except ValueError:  # Python bounds the digits of an integer
        raise UsageError("", found="a number with too many digits", wanted=_KNOWN) from None
