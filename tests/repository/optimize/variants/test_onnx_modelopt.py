"""INT8 and FP8 files by NVIDIA's Model Optimizer, which runs here without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.gpu import find_gpu
from tritonkit.repository.optimize.results import Result
from tritonkit.repository.optimize.variants import modelopt_process

CHANNELS = 32
TEXT = """
name: net
network: {onnx: net.onnx}
quality: {samples: data:samples, max_drop: 0.05}
optimize: {calibration: data:calibration}
"""
DATA = f"""
import numpy as np

def batches(seed):
    random = np.random.default_rng(seed)
    return [{{"x": random.normal(size=(count, {CHANNELS}, 8, 8)).astype(np.float32)}} for count in (8, 5)]

def samples():
    return batches(0)

def calibration():
    return batches(1)
"""


def convolutions() -> bytes:
    """Two convolutions, wide enough for FP8: x [batch, 32, 8, 8] -> y of the same shape."""
    random = np.random.default_rng(2)
    shape = (CHANNELS, CHANNELS, 3, 3)
    weights = [random.normal(size=shape).astype(np.float32) / 17 for _ in range(2)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["y"], pads=[1, 1, 1, 1]),
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", CHANNELS, 8, 8]) for name in ("x", "y")]
    initial = [numpy_helper.from_array(weight, f"w{place}") for place, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


@pytest.fixture
def spec(write_model: WriteModel) -> Spec:
    """Convolutions with real input for ranges."""
    return write_model(TEXT, net__onnx=convolutions(), data__py=DATA)


def graph_of(result: Result) -> onnx.GraphProto:
    """The graph of a variant that was made."""
    assert result.artifact is not None, result.problem
    return onnx.load(result.artifact.folder / "model.onnx").graph


@pytest.mark.slow
@pytest.mark.needs("modelopt")
@pytest.mark.parametrize(
    ("variant", "zero"), [("onnx-int8-qdq", TensorProto.INT8), ("onnx-fp8", TensorProto.FLOAT8E4M3FN)]
)
def test_quantized_files_are_judged_on_the_cpu(spec: Spec, cache: BuildCache, variant: str, zero: int) -> None:
    """ONNX Runtime's CPU provider computes both; the network keeps its FP32 inputs and outputs."""
    _, result = evaluate(spec, ("onnx-fp32", variant), cache)
    graph = graph_of(result)
    assert result.passed
    assert result.artifact is not None
    assert result.artifact.quality is not None
    assert result.artifact.quality.max_difference > 0
    assert sum(node.op_type == "DequantizeLinear" for node in graph.node) >= 2
    assert zero in {tensor.data_type for tensor in graph.initializer}
    assert {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} == {TensorProto.FLOAT}
    assert [note for note in result.artifact.notes if "by ranges: minmax" in note]
    assert [*result.artifact.folder.glob("model.*")] == [result.artifact.folder / "model.onnx"]


@pytest.mark.slow
@pytest.mark.needs("modelopt")
def test_a_network_without_such_layers_is_refused(write_model: WriteModel, cache: BuildCache) -> None:
    """A file without a quantized layer would be FP16 under another name."""
    data = DATA.replace(f"{CHANNELS}, 8, 8", "4")
    spec = write_model(TEXT, net__onnx=onnx_file(RELU, ["batch", 4]), data__py=data)
    (result,) = evaluate(spec, ("onnx-int8-qdq",), cache)
    assert result.problem is not None
    assert "quantizes no layer of it to INT8" in result.problem.found


@pytest.mark.slow
@pytest.mark.needs("modelopt")
def test_functions_of_onnxruntime_stay_as_they_are(spec: Spec, cache: BuildCache) -> None:
    """Model Optimizer replaces some of them in its process, by which other variants would be made differently."""
    evaluate(spec, ("onnx-fp8",), cache)
    assert "modelopt" not in sys.modules


@pytest.mark.slow
@pytest.mark.needs("modelopt")
def test_an_fp8_plan_is_built_for_cards_that_have_fp8(spec: Spec, cache: BuildCache) -> None:
    """TensorRT-RTX takes the types as the file has them, and would refuse older cards."""
    if find_gpu() is not None:
        pytest.skip("with a GPU, tensorrt builds the plan")
    (result,) = evaluate(spec, ("tensorrt-fp8",), cache)
    assert result.artifact is not None, result.problem
    folder = result.artifact.folder
    assert sorted(result.artifact.files) == ["model.rtxplan", "network.onnx", "plan.json"]
    capabilities = json.loads((folder / "plan.json").read_text())["compute_capabilities"]
    assert min(map(float, capabilities)) == 8.9
    kinds = {tensor.data_type for tensor in onnx.load(folder / "network.onnx").graph.initializer}
    assert TensorProto.FLOAT8E4M3FN in kinds


def test_without_model_optimizer_the_extra_is_named(
    spec: Spec, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own extra `onnx` would replace onnxruntime."""
    run = subprocess.run

    def run_without(command: list[str], **options: object) -> object:
        if command[2:3] == [modelopt_process.__name__]:
            code = "import sys; sys.modules['modelopt'] = None; sys.path.insert(0, '')\nfrom pathlib import Path\n"
            code += f"from {modelopt_process.__name__} import main; main(Path({command[3]!r}))"
            command = [sys.executable, "-c", code]
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", run_without)
    (result,) = evaluate(spec, ("onnx-fp8",), cache)
    assert isinstance(result.problem, BuildError)
    assert "tritonkit[modelopt]" in result.problem.todo


def test_a_process_that_fails_leaves_its_last_line(
    spec: Spec, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of its log is in the details."""
    run = subprocess.run

    def run_broken(command: list[str], **options: object) -> object:
        if command[2:3] == [modelopt_process.__name__]:
            command = [sys.executable, "-c", "import sys; sys.exit('a first line\\nno kernel for Foo')"]
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", run_broken)
    (result,) = evaluate(spec, ("onnx-int8-qdq",), cache)
    assert result.problem is not None
    assert "cannot quantize it: no kernel for Foo" in result.problem.found
    assert "a first line" in result.problem.details
