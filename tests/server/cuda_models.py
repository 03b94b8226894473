"""Networks for instances on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.server.onnx_models import BATCH, onnx_model, tensors, write_model

ROWS, COLUMNS = 16, 8
WINDOW = 4
ON_CPU = "instance_group { kind: KIND_CPU count: 1 }\n"
ON_GPU = "instance_group { kind: KIND_GPU count: 1 }\n"
ON_GPU_AFTER = 'parameters { key: "tritonkit.output_memory" value { string_value: "gpu" } }\n'
"""Answers stay on the GPU."""
ACCELERATOR = 'execution_accelerators {{ gpu_execution_accelerator {{ name: "{name}" {parameters} }} }}'


def cuda(sizes: Sequence[int] = (), graphs: bool = True, accelerator: str = "cuda", **options: str) -> str:
    """The field `optimization` of a model on a GPU."""
    parameters = "".join(f'parameters {{ key: "{key}" value: "{value}" }}\n' for key, value in options.items())
    specs = "".join(f"graph_spec {{ batch_size: {size} }}\n" for size in sizes)
    named = ACCELERATOR.format(name=accelerator, parameters=parameters)
    return f"optimization {{ {named} cuda {{ graphs: {str(graphs).lower()} {specs} }} }}\n"


def warm_up(size: int = 1) -> str:
    """A run before the model is ready."""
    tensor = f'inputs {{ key: "x" value {{ data_type: TYPE_FP32 dims: [{ROWS}] zero_data: true }} }}'
    return f'model_warmup {{ name: "first" batch_size: {size} {tensor} }}\n'


def product(folder: Path, more: str, operator: str = "Identity", columns: int = COLUMNS) -> None:
    """y [n, columns] = x [n, ROWS] times a matrix, and another operator on the way."""
    weights = np.random.default_rng(0).random((ROWS, columns), np.float32)
    onnx_model(
        folder,
        [
            helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weights, "w")),
            helper.make_node(operator, ["x"], ["z"], name="between"),
            helper.make_node("MatMul", ["z", "w"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, ["n", ROWS])],
        [("y", TensorProto.FLOAT, ["n", columns])],
        f"max_batch_size: {BATCH}\n"
        + tensors("input", x=f"FP32 [{ROWS}]")
        + tensors("output", y=f"FP32 [{columns}]")
        + more,
    )


def convolution(folder: Path, size: str, more: str) -> None:
    """y = x [1, size, size] folded with one number."""
    kernel = numpy_helper.from_array(np.full((1, 1, 1, 1), 2, np.float32), "w")
    side: int | str = int(size) if size.isdigit() else "side"
    onnx_model(
        folder,
        [
            helper.make_node("Constant", [], ["w"], value=kernel),
            helper.make_node("Conv", ["x", "w"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, ["n", 1, side, side])],
        [("y", TensorProto.FLOAT, ["n", 1, side, side])],
        f"max_batch_size: {BATCH}\n"
        + tensors("input", x=f"FP32 [1, {size}, {size}]")
        + tensors("output", y=f"FP32 [1, {size}, {size}]")
        + more,
    )


def ensemble(folder: Path, *parts: str) -> None:
    """Models with x and y of ROWS numbers, one after another."""
    names = ["x", *(f"between_{place}" for place in range(len(parts) - 1)), "y"]
    steps = "".join(
        f'step {{ model_name: "{part}" model_version: -1 input_map {{ key: "x" value: "{names[place]}" }}'
        f' output_map {{ key: "y" value: "{names[place + 1]}" }} }}\n'
        for place, part in enumerate(parts)
    )
    io = tensors("input", x=f"FP32 [{ROWS}]") + tensors("output", y=f"FP32 [{ROWS}]")
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        f'name: "{folder.name}"\nplatform: "ensemble"\nmax_batch_size: {BATCH}\n{io}ensemble_scheduling {{ {steps} }}\n'
    )


def _rows(folder: Path, nodes: Sequence[NodeProto], more: str, *sums: tuple[str, int, list[Any]]) -> None:
    """A network from x to y, of ROWS numbers each; `sums` are outputs that the configuration leaves out."""
    onnx_model(
        folder,
        list(nodes),
        [("x", TensorProto.FLOAT, ["n", ROWS])],
        [("y", TensorProto.FLOAT, ["n", ROWS]), *sums],
        f"max_batch_size: {BATCH}\n"
        + tensors("input", x=f"FP32 [{ROWS}]")
        + tensors("output", y=f"FP32 [{ROWS}]")
        + more,
    )


def double(folder: Path, more: str) -> None:
    """y = x + x, of ROWS numbers."""
    _rows(folder, [helper.make_node("Add", ["x", "x"], ["y"])], more)


def window(folder: Path, more: str) -> None:
    """y = the four numbers of x, of ROWS, that begin at `starts`: the CPU reads both ends of a Slice."""
    onnx_model(
        folder,
        [
            helper.make_node("Constant", [], ["length"], value_ints=[WINDOW]),
            helper.make_node("Add", ["starts", "length"], ["ends"]),
            helper.make_node("Slice", ["x", "starts", "ends"], ["y"], name="window"),
        ],
        [("x", TensorProto.FLOAT, [ROWS]), ("starts", TensorProto.INT64, [1])],
        [("y", TensorProto.FLOAT, [WINDOW])],
        tensors("input", x=f"FP32 [{ROWS}]", starts="INT64 [1]") + tensors("output", y=f"FP32 [{WINDOW}]") + more,
    )


def unbatched(folder: Path, more: str) -> None:
    """y = x + x, of ROWS numbers, without a batch axis."""
    onnx_model(
        folder,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [("x", TensorProto.FLOAT, [ROWS])],
        [("y", TensorProto.FLOAT, [ROWS])],
        tensors("input", x=f"FP32 [{ROWS}]") + tensors("output", y=f"FP32 [{ROWS}]") + more,
    )


def with_default(folder: Path, more: str) -> None:
    """y = x + bias, of ROWS numbers; the file has a bias of 1 for requests without one."""
    onnx_model(
        folder,
        [helper.make_node("Add", ["x", "bias"], ["y"])],
        [("x", TensorProto.FLOAT, [ROWS]), ("bias", TensorProto.FLOAT, [1])],
        [("y", TensorProto.FLOAT, [ROWS])],
        tensors("input", x=f"FP32 [{ROWS}]")
        + 'input { name: "bias" data_type: TYPE_FP32 dims: [1] optional: true }\n'
        + tensors("output", y=f"FP32 [{ROWS}]")
        + more,
        initializers={"bias": np.ones(1, np.float32)},
    )


def caller(folder: Path, called: str) -> None:
    """A Python model that answers with the called model's answer, read as an array; `x` and `y` have ROWS numbers."""
    text = f"""
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "x")
        call = pb_utils.InferenceRequest(model_name="{called}", inputs=[x], requested_output_names=["y"])
        reply = call.exec()
        if reply.has_error():
            raise pb_utils.TritonModelException(reply.error().message())
        y = pb_utils.get_output_tensor_by_name(reply, "y").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", y)])
"""
    config = (
        f'backend: "python"\nmax_batch_size: {BATCH}\n'
        + tensors("input", x=f"FP32 [{ROWS}]")
        + tensors("output", y=f"FP32 [{ROWS}]")
        + ON_CPU
    )
    (write_model(folder, config) / "model.py").write_text(text)


def branch(folder: Path, more: str) -> None:
    """y = x, of ROWS numbers, by an If."""
    y = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", ROWS])
    same, negative = (
        helper.make_graph([helper.make_node(operator, ["x"], ["z"])], operator, [], [y])
        for operator in ("Identity", "Neg")
    )
    always = numpy_helper.from_array(np.array(True), "always")
    nodes = [
        helper.make_node("Constant", [], ["always"], value=always),
        helper.make_node("If", ["always"], ["y"], then_branch=same, else_branch=negative),
    ]
    _rows(folder, nodes, more)


def summed(folder: Path, more: str) -> None:
    """y = x, of ROWS numbers; the network has a sum of the whole batch too, which the configuration leaves out."""
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0)]
    _rows(folder, nodes, more, ("sum", TensorProto.FLOAT, []))
