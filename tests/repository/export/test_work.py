"""The work of a network, counted from its graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.repository.export.graphs import FLOAT, node, onnx_bytes
from tritonkit.repository.export.work import count_work


def test_work_is_counted_and_not_timed(tmp_path: Path) -> None:
    """Products of a matrix, elements that are written, and nodes; the same each time."""
    file = tmp_path / "m.onnx"
    file.write_bytes(
        onnx_bytes(
            [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])],
            [("x", FLOAT, ["N", 50])],
            [("y", FLOAT, ["N", 70])],
            {"w": np.ones((50, 70), "f")},
        )
    )
    counts = [count_work(file, {"x": np.ones((1, 50), "f")}, "m.onnx") for _ in range(2)]
    assert counts == [2 * 200_000 + 70 * (50 + 100) + 70 * 100] * 2
