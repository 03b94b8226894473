"""A library of operators for ONNX Runtime (tests/native/operators.c), and networks with its operator `tests.Scale`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fakedriver import Compile
from tests.parts import PROJECT

__all__ = ["FACTOR", "LIBRARY", "WEIGHT", "WriteLibrary", "scaled", "scaled_network"]

SOURCE = PROJECT / "tests" / "native" / "operators.c"
LIBRARY = "libscale.so"
FACTOR = 2.5
WEIGHT = (np.arange(12, dtype=np.float32).reshape(4, 3) - 6) / 4

WriteLibrary = Callable[..., Path]
"""Compiles the library into a folder, under its name and with flags; returns its path."""


@pytest.fixture(scope="session")
def write_library(compile_c: Compile) -> WriteLibrary:
    """Compile the library of operators."""

    def write(folder: Path, *flags: str, name: str = LIBRARY) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        compile_c(folder / name, SOURCE, "-Wno-unused", *flags)
        return folder / name

    return write


def scaled_network(operator: str = "Scale", items: int | str = "n") -> bytes:
    """An ONNX file whose output is its input, scaled by the library's operator, times WEIGHT."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node(operator, ["x"], ["scaled"], domain="tests", factor=FACTOR),
        helper.make_node("MatMul", ["scaled", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [items, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [items, 3])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("tests", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def scaled(x: Any) -> Any:
    """The network's answer."""
    return (x * np.float32(FACTOR)) @ WEIGHT
