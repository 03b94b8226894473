"""Networks for the openvino backend, written straight into a model repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as op

from tests.server.onnx_models import write_model

PADS = 'parameters { key: "ENABLE_BATCH_PADDING" value { string_value: "YES" } }\n'


def parameters(**values: str) -> str:
    """`parameters` fields."""
    return "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}\n' for key, text in values.items()
    )


def network(folder: Path, build: Callable[[Any], Any], shape: list[int], config: str, dtype: Any = np.float32) -> Path:
    """A published network y = build(x), whose file says nothing of precision; the version's folder."""
    x = op.parameter(shape, dtype, "x")
    x.output(0).set_names({"x"})
    y = build(x)
    y.output(0).set_names({"y"})
    version = write_model(folder, f'backend: "openvino"\n{config}')
    openvino.save_model(openvino.Model([y], [x]), version / "model.xml", compress_to_fp16=False)
    return version


def picky(x: Any) -> Any:
    """y = x for values up to 4, which divide 12; 5 and 7 make a shape that fails the whole run."""
    largest = op.convert(op.reduce_max(x, op.constant([0, 1]), True), "i64")
    rows = op.concat([op.reshape(largest, op.constant([1]), False), op.constant([-1])], 0)
    twelve = op.constant(np.zeros(12, np.float32))
    nothing = op.reduce_sum(op.reshape(twelve, rows, False), op.constant([0, 1]), False)
    return op.add(x, nothing)


def twice(x: Any) -> Any:
    """y = x + x."""
    return op.add(x, x)
