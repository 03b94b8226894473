"""Variants judged on a real GPU, by the server environment's ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import PROJECT, WriteModel
from tests.repository.optimize.test_gpu_judging import PAIRED
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import Result, evaluate
from tritonkit.repository.optimize.cuda_options import session_entries
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.optimize.runtimes.onnxruntime_cuda import CudaRunner
from tritonkit.serve.judge import find_build_gpu

pytestmark = pytest.mark.gpu

CHANNELS, SIZE, LAYERS = 64, 32, 4
DATA = f"""
import numpy as np

def batches(seed):
    random = np.random.default_rng(seed)
    return [{{"x": random.normal(size=(8, {CHANNELS}, {SIZE}, {SIZE})).astype(np.float32)}}]

def samples():
    return batches(0)

def calibration():
    return batches(1)
"""
TEXT = """
name: net
network: {onnx: net.onnx}
quality: {samples: data:samples, max_drop: 0.05}
optimize: {calibration: data:calibration}
"""


def convolutions() -> onnx.ModelProto:
    """Convolutions with Relu between them: x [batch, 64, 32, 32] -> y of the same shape."""
    random = np.random.default_rng(2)
    nodes, initial, name = [], [], "x"
    for place in range(LAYERS):
        weight = random.normal(size=(CHANNELS, CHANNELS, 3, 3)).astype(np.float32) / 24
        initial.append(numpy_helper.from_array(weight, f"w{place}"))
        nodes.append(helper.make_node("Conv", [name, f"w{place}"], [f"c{place}"], pads=[1, 1, 1, 1]))
        name = "y" if place == LAYERS - 1 else f"r{place}"
        nodes.append(helper.make_node("Relu", [f"c{place}"], [name]))
    shape = ["batch", CHANNELS, SIZE, SIZE]
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, shape) for end in ("x", "y")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def difference(result: Result) -> float:
    """The largest difference from the reference, on the GPU."""
    assert result.artifact is not None, result.problem
    assert result.artifact.quality is not None
    return result.artifact.quality.max_difference


def test_precisions_differ_on_the_gpu_as_their_formats_do(write_model: WriteModel, tmp_path: Path) -> None:
    """FP32 is FP32, TF32 and FP16 have ten bits of mantissa, and all are timed with graphs."""
    judge = find_build_gpu(PROJECT).judge
    assert isinstance(judge, GpuJudge), judge
    spec = write_model(TEXT, net__onnx=convolutions().SerializeToString(), data__py=DATA)
    names = ("onnx-fp32", "onnx-tf32", "onnx-fp16")
    results = evaluate(spec, names, BuildCache(tmp_path / "cache"), timed=True, gpu=judge)
    for result in results:
        assert result.passed, result.problem
        assert result.timing is not None
        assert result.timing.gpu == judge.environment.gpu
    fp32, tf32, fp16 = map(difference, results)
    assert 10 * fp32 < tf32
    assert 10 * fp32 < fp16


def products() -> onnx.ModelProto:
    """Matrix products with Relu between them: x [batch, 256] -> y of the same shape."""
    random = np.random.default_rng(2)
    nodes, initial, name = [], [], "x"
    for place in range(LAYERS):
        initial.append(numpy_helper.from_array(random.normal(size=(256, 256)).astype(np.float32) / 16, f"w{place}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{place}"], [f"m{place}"]))
        name = "y" if place == LAYERS - 1 else f"r{place}"
        nodes.append(helper.make_node("Relu", [f"m{place}"], [name]))
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["batch", 256]) for end in ("x", "y")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_products_in_bf16_run_on_the_gpu(write_model: WriteModel, tmp_path: Path) -> None:
    """The provider has their kernels; their answers pass the gate and differ from FP32 more than FP16's do."""
    judge = find_build_gpu(PROJECT).judge
    assert isinstance(judge, GpuJudge), judge
    data = DATA.replace(f"(8, {CHANNELS}, {SIZE}, {SIZE})", "(8, 256)")
    gpu = "serving: {instance_group: [{kind: gpu}]}\n"
    spec = write_model(TEXT + gpu, net__onnx=products().SerializeToString(), data__py=data)
    names = ("onnx-fp32", "onnx-fp16", "onnx-bf16-products")
    results = evaluate(spec, names, BuildCache(tmp_path / "cache"), timed=True, gpu=judge)
    for result in results:
        assert result.passed, result.problem
    _, fp16, bf16 = map(difference, results)
    assert bf16 > 2 * fp16


def test_pairs_leave_every_node_on_the_gpu(tmp_path: Path) -> None:
    """A QDQ file takes CUDA graphs with the entry that target gpu gives its session, and answers as the CPU does."""
    judge = find_build_gpu(PROJECT).judge
    assert isinstance(judge, GpuJudge), judge
    file = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(PAIRED), file)
    entries = session_entries(file)
    assert entries
    runner = CudaRunner(judge.environment, file, {"prefer_nhwc": "1"}, "pairs", entries=entries, graphs=True)
    assert runner.graphs
    x = np.linspace(-1, 1, 36, dtype=np.float32).reshape(4, 1, 3, 3)
    (expected,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(runner.run({"x": x})["y"], expected, atol=0.101)  # one step of the pair
    assert runner.times_ms({"x": x}, warm=2, least=3, most=10, seconds=1.0)


@pytest.mark.needs("modelopt")
def test_quantized_files_run_on_the_gpu(write_model: WriteModel, tmp_path: Path) -> None:
    """Their answers pass the gate; how fast they are is for the table of `build --variants`."""
    judge = find_build_gpu(PROJECT).judge
    assert isinstance(judge, GpuJudge), judge
    spec = write_model(TEXT, net__onnx=convolutions().SerializeToString(), data__py=DATA)
    names = ("onnx-fp32", "onnx-fp16", "onnx-int8-qdq", "onnx-fp8")
    for result in evaluate(spec, names, BuildCache(tmp_path / "cache"), timed=True, gpu=judge):
        assert result.passed, result.problem
