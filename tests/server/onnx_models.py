"""Published steps and ONNX networks, written straight into a model repository."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import PROJECT
from tritonkit.repository.render.step_code import shipped_imports

SOURCES = PROJECT / "python_backends"
BATCH = 8
MERGING = f"dynamic_batching {{ preferred_batch_size: [{BATCH}] max_queue_delay_microseconds: 300000 }}"
COMPLETE = MERGING.replace("300000", "20000000")
"""A batch leaves when it is complete, however late its requests come."""


def write_model(folder: Path, config: str, *files: Path) -> Path:
    """A model folder with version 1; returns the version's folder."""
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(f'name: "{folder.name}"\n{config}\n')
    for file in files:
        shutil.copy(file, folder / "1")
    return folder / "1"


def tensors(side: str, **named: str) -> str:
    """`input` or `output` fields from name="TYPE dims"."""
    return "\n".join(
        f'{side} {{ name: "{name}" data_type: TYPE_{kind.replace(" ", " dims: ", 1)} }}' for name, kind in named.items()
    )


def through(kind: str) -> str:
    """The fields of a model with input x and output y of one kind."""
    return tensors("input", x=kind) + tensors("output", y=kind)


def step(folder: Path, name: str, io_fields: str, more: str = MERGING, **parameters: str) -> Path:
    """A published step; returns the version's folder."""
    texts = "\n".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in {"tritonkit.step": name, **parameters}.items()
    )
    source = SOURCES / "steps" / name
    config = f'backend: "python"\nmax_batch_size: {BATCH}\n{io_fields}\n{more}\n{texts}'
    files = sorted(source.glob("*.py"))
    return write_model(folder, config, *files, *shipped_imports(files).values())


def onnx_model(
    folder: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[tuple[str, int, list[Any]]],
    outputs: list[tuple[str, int, list[Any]]],
    config: str,
    backend: str = "onnxruntime",
    initializers: Mapping[str, np.ndarray] | None = None,
) -> None:
    """A published network for the onnxruntime backend, or another that reads ONNX files."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(value, name) for name, value in (initializers or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    named = f'backend: "{backend}"\ndefault_model_filename: "model.onnx"\n'
    version = write_model(folder, named + config)
    onnx.save(model, version / "model.onnx")


def identity(folder: Path, dtype: int, dims: list[Any], config: str) -> None:
    """y = x."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    onnx_model(folder, nodes, [("x", dtype, dims)], [("y", dtype, dims)], config)


DECODE_IO = tensors("input", image="STRING [1]") + tensors("output", pixels="FP32 [1, 2, 3]")
TOKENIZE_IO = tensors("input", text="STRING [1]") + tensors(
    "output", input_ids="INT64 [-1]", attention_mask="INT64 [-1]"
)
TOP_K_IO = tensors("input", logits="FP32 [-1]") + tensors("output", label="STRING [2]", score="FP32 [2]")
POOL_IO = tensors("input", last_hidden_state="FP32 [-1, 4]", attention_mask="INT64 [-1]") + tensors(
    "output", embedding="FP32 [4]"
)


def loop(folder: Path, backend: str = "onnxruntime", more: str = "") -> None:
    """y = x, after x rounds of a loop."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_out"]), helper.make_node("Add", ["sum", "one"], ["sum_out"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.INT64, [1]),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum_out", TensorProto.INT64, [1]),
        ],
    )
    onnx_model(
        folder,
        [
            helper.make_node("Constant", [], ["one"], value_ints=[1]),
            helper.make_node("Constant", [], ["zero"], value_ints=[0]),
            helper.make_node("Loop", ["x", "", "zero"], ["y"], body=body),
        ],
        [("x", TensorProto.INT64, [1])],
        [("y", TensorProto.INT64, [1])],
        "max_batch_size: 0\n" + through("INT64 [1]") + more,
        backend,
    )
