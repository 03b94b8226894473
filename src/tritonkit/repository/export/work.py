"""The work of a network for one item, counted instead of timed, so that it is the same on every machine."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.onnx_file import data_of, open_session, run_session, session_options
from tritonkit.repository.export.samples import Batch

__all__ = ["assumed_work", "count_work"]

_EACH_NODE = 200_000
"""Products that a core could compute in the overhead of running one node."""
_EACH_ELEMENT = 100
"""Products that a core could compute while it reads and writes an element."""
_MOST_BYTES = 512 << 20
_RECURRENT = {"GRU", "LSTM", "RNN"}


def count_work(file: Path, item: Batch, where: str) -> int:
    """Products that the network of an ONNX file computes for an item, with other work converted to products.

    ONNX Runtime reports which nodes ran on which shapes. The work of a very large file, or of one that does not run, is
    estimated.
    """
    size = sum(path.stat().st_size for path in (file, *data_of(file, where).values()))
    if size > _MOST_BYTES:
        return assumed_work(item) + 4 * size
    with tempfile.TemporaryDirectory() as folder:
        try:
            return sum(_products(node) for node in _nodes(file, item, where, Path(folder)))
        except BuildError:
            return assumed_work(item) + size


def assumed_work(item: Batch) -> int:
    """An estimate from only the size of the input."""
    return sum(1000 * int(array.size) for array in item.values()) + _EACH_NODE


def _nodes(file: Path, item: Batch, where: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The operators that ran, with the shapes of all inputs and constants."""
    options = session_options()
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "run")
    session = open_session(file, where, optimized=False, options=options)
    try:
        run_session(session, item, where)
    finally:
        profile = Path(session.end_profiling())
    for event in json.loads(profile.read_bytes()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            yield event["args"]


def _products(node: dict[str, Any]) -> int:
    inputs, outputs = _shapes(node["input_type_shape"]), _shapes(node["output_type_shape"])
    elements = sum(math.prod(shape) for shape in outputs)
    kind = node["op_name"]
    products = 0
    if kind in ("MatMul", "Gemm") and inputs and inputs[0]:
        products = inputs[0][-1]
    elif kind in ("Conv", "ConvTranspose") and len(inputs) > 1:
        products = math.prod(inputs[1][1:])
    elif kind in _RECURRENT and len(inputs) > 2:
        steps = math.prod(inputs[0][:2])
        return _EACH_NODE + steps * sum(math.prod(shape) for shape in inputs[1:3])
    return _EACH_NODE + elements * (products + _EACH_ELEMENT)


def _shapes(entries: Sequence[dict[str, Sequence[int]]]) -> list[Sequence[int]]:
    return [shape for entry in entries for shape in entry.values()]
