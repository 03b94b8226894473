"""Inputs on a command line: NAME=VALUE, where a value is text, a file, or JSON numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.client import ModelSignature

__all__ = ["read_inputs", "split_inputs"]


def split_inputs(texts: Sequence[str]) -> dict[str, Any]:
    """Names and values of every --input; files are read here, before anything is sent.

    Raises:
        UsageError: no name, a name twice, or a file that cannot be read.
    """
    pairs = [_split(text) for text in texts]
    values = dict(pairs)
    if len(values) < len(pairs):
        raise UsageError("--input", found="one name is given twice", wanted="each input once", todo="drop one")
    return values


def read_inputs(inputs: dict[str, Any], signature: ModelSignature, notes: list[str] | None = None) -> dict[str, Any]:
    """The values for a model: BYTES are taken unchanged, numbers as JSON, arrays in the model's type.

    Args:
        inputs: texts and arrays by name, as `split_inputs` returns them.
        signature: the model's inputs and outputs.
        notes: a list that gets a line for each array that had to be rounded.

    Raises:
        UsageError: a value that does not fit the input's datatype.
    """
    return {name: _value(name, value, signature, [] if notes is None else notes) for name, value in inputs.items()}


def _split(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--input {text}", found="no name", wanted="NAME=VALUE, such as image=@seven.png")
    return name, _read_file(name, Path(value[1:])) if value.startswith("@") else value


def _value(name: str, value: Any, signature: ModelSignature, notes: list[str]) -> Any:
    # An unknown name is passed on: the client suggests the nearest one.
    spec = signature.inputs.get(name)
    if spec is None:
        return value
    if isinstance(value, bytes) and spec.datatype != "BYTES":
        raise UsageError(
            f"--input {name}",
            found="the bytes of a file",
            wanted=f"{spec.datatype} numbers of shape {list(spec.dims)}: @FILE.npy or JSON",
        )
    if not isinstance(value, (str, bytes)):
        return _in_type(name, value, spec.datatype, notes)
    if isinstance(value, bytes) or spec.datatype == "BYTES":
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise UsageError(
            f"--input {name}",
            found=f"{value[:60]!r} is not JSON: {error}",
            wanted=f"{spec.datatype} numbers of shape {list(spec.dims)}, or @FILE.npy",
        ) from None


def _in_type(name: str, array: Any, datatype: str, notes: list[str]) -> Any:
    """A file's array in the model's type: numpy writes float64 and int64 by default.

    Whole numbers are converted if all of them fit; floats are rounded, with a note. No other conversion is made: a
    float never becomes a whole number.
    """
    import numpy as np

    from tritonkit.client.arrays import holds_all
    from tritonkit.client.wire.tensors import FIXED

    target = FIXED.get(datatype, FIXED["FP32"])
    own = array.dtype.name
    kinds = (array.dtype.kind, target.kind)
    if datatype == "BYTES" or array.dtype.kind not in "iuf" or holds_all(datatype, own):
        return array
    with np.errstate(all="ignore"):
        made = array.astype(target)
        lost = int((np.isfinite(array) & ~np.isfinite(made)).sum()) if target.kind == "f" else 0
        same = bool(np.array_equal(made.astype(array.dtype), array, equal_nan=kinds == ("f", "f")))
        fits = same and (made.size == 0 or (made < 0).any() == (array < 0).any())
    if kinds[0] in "iu":
        return made if fits and not lost else array  # otherwise the client names the value that does not fit
    if target.kind != "f" or lost:
        return array
    exact = "" if fits else ", rounded"
    notes.append(f"--input {name}: converted from {own} to {target.name}{exact}")
    return made


def _read_file(name: str, path: Path) -> Any:
    try:
        if path.suffix == ".npy":
            import numpy as np

            return np.load(path, allow_pickle=False)
        return path.read_bytes()
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--input {name}", found=f"{path} cannot be read: {reason}") from None
