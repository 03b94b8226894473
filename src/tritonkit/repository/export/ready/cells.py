"""Cells of sample files as arrays of an input's datatype and shape."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonkit.datatypes import NUMPY_DTYPES

__all__ = ["content_of", "to_array"]

_MOST_BYTES = 256 << 20
_BOOLS = {"true": True, "false": False, "1": True, "0": False}


def to_array(cell: Any, dtype: str, dims: Sequence[int]) -> Any:
    """One item of an input, without a batch axis.

    Raises:
        ValueError: the cell does not fit; says what was found and what was wanted.
    """
    import numpy as np

    if cell is None or (isinstance(cell, str) and not cell.strip() and dtype != "BYTES"):
        raise ValueError(f"the cell is empty; wanted {dtype} {list(dims)}")
    array = _texts(cell) if dtype == "BYTES" else _numbers(cell, dtype)
    if array.ndim != len(dims) and array.size == 1 and all(size in (1, -1) for size in dims):
        array = array.reshape([1] * len(dims))
    fits = array.ndim == len(dims) and all(size in (-1, have) for size, have in zip(dims, array.shape, strict=True))
    if not fits:
        raise ValueError(f"the shape is {list(array.shape)}; wanted {list(dims)}, -1 for any size")
    return np.ascontiguousarray(array) if array.ndim else array


def content_of(cell: Any, folder: Path, root: Path) -> bytes:
    """The content of the file that a cell names.

    Raises:
        ValueError: there is no such file in the folder, it is too large, or cannot be read.
    """
    name = str(cell)
    if not name or "\0" in name:
        raise ValueError("the cell names no file; wanted a path relative to the table")
    path = (folder / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError(f"{name!r} leads out of {root}; wanted a file inside it")
    try:
        if not path.is_file():
            raise ValueError(f"there is no file {name!r} in {folder}; wanted a path relative to the table")
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"{name} has {path.stat().st_size} bytes; wanted at most {_MOST_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name!r} cannot be read: {error.strerror or error}; wanted a readable file") from None


def _texts(cell: Any) -> Any:
    import numpy as np

    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    flat = cell if isinstance(cell, list) else [cell]
    if unfit := [text for text in flat if text is None or isinstance(text, list | dict)]:
        raise ValueError(f"found {_short(unfit[0])}; wanted a text, or a list of texts")
    array = np.empty(len(flat), object)
    array[:] = [text if isinstance(text, bytes) else str(text).encode() for text in flat]
    return array


def _numbers(cell: Any, dtype: str) -> Any:
    import numpy as np

    if isinstance(cell, str):
        cell = _parsed(cell, dtype)
    numpy_dtype: Any = NUMPY_DTYPES.get(dtype, "float32")  # BF16: float32 holds each of its values
    try:
        array = np.asarray(cell)
        if array.dtype.kind not in "biuf":
            raise ValueError
    except ValueError:
        raise ValueError(f"found {_short(cell)}; wanted numbers of {dtype}") from None
    with np.errstate(all="ignore"):
        cast = array.astype(numpy_dtype)
    if np.dtype(numpy_dtype).kind in "biu" and not np.array_equal(cast.astype(np.float64), array.astype(np.float64)):
        raise ValueError(f"found {_short(cell)}; wanted numbers of {dtype}")
    return cast


def _parsed(cell: str, dtype: str) -> Any:
    """The number or the JSON list in a cell of a table."""
    text = cell.strip()
    try:
        if dtype == "BOOL" and text.lower() in _BOOLS:
            return _BOOLS[text.lower()]
        if text.startswith("["):
            return json.loads(text)
        return float(text) if dtype.startswith(("FP", "BF")) else int(text)
    except (ValueError, RecursionError):
        raise ValueError(f"found {_short(cell)}; wanted {dtype}") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
