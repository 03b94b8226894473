"""Plans built ahead of time by TensorRT-RTX, which needs no GPU; what is refused, and what is said."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import WriteModel
from tritonkit.errors import RenderError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import Result, evaluate
from tritonkit.repository.optimize.gpu import find_gpu
from tritonkit.repository.optimize.variants import FORMS, tensorrt_library
from tritonkit.repository.optimize.variants.tensorrt_build import build_plan
from tritonkit.repository.optimize.variants.tensorrt_onnx import PRECISIONS
from tritonkit.repository.optimize.variants.tensorrt_plan import trtexec_command
from tritonkit.repository.optimize.variants.tensorrt_profiles import profiles
from tritonkit.repository.render import plan_models

TEXT = """
name: net
network: {onnx: net.onnx}
quality: {max_drop: 0.1}
optimize: {MORE}
serving:
  max_batch_size: 16
  dynamic_batching: {preferred_batch_size: [4, 8]}
"""
DATA = """
import numpy as np
def calibration():
    random = np.random.default_rng(1)
    return [{"x": random.standard_normal((8, 3, 8, 8)).astype(np.float32)} for _ in range(2)]
"""
CALIBRATED = "calibration: data:calibration"


@pytest.fixture(autouse=True)
def without_gpu() -> None:
    """The driver is asked when a test runs, not when it is collected."""
    if find_gpu() is not None:
        pytest.skip("with a GPU, tensorrt builds the plans: see bench gpu")


def convolution() -> bytes:
    """x [n, 3, 8, 8] -> y [n, 4]: a convolution with bias, Relu, mean, and a matrix product."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.standard_normal((6, 3, 3, 3)) * np.arange(1, 7)[:, None, None, None],
        "b": random.standard_normal(6),
        "m": random.standard_normal((6, 4)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    return model_of(nodes, [3, 8, 8], [4], constants)


def model_of(nodes: list[Any], shape: list[int], result: list[int], constants: dict[str, Any]) -> bytes:
    """An ONNX file of x [n, *shape] -> y [n, *result]."""
    made = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", *result])],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def spec_of(write_model: WriteModel, more: str = "", network: bytes | None = None) -> Spec:
    """A spec for a network in ONNX, with calibration data."""
    text = TEXT.replace("MORE", more)
    return write_model(text, net__onnx=network or convolution(), data__py=DATA)


def built(spec: Spec, root: Path, variant: str) -> Result:
    """The result of one variant, with its FP32 file built before it."""
    (result,) = evaluate(spec, [variant], BuildCache(root / "cache"))
    return result


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_plan_is_built_without_a_gpu(write_model: WriteModel, root: Path, precision: str) -> None:
    """It lies next to its typed network, is not measured, and its profiles are those of the batching."""
    spec = spec_of(write_model, CALIBRATED)
    result = built(spec, root, f"tensorrt-{precision}")
    assert result.problem is None
    assert result.artifact is not None
    artifact = result.artifact
    typed = [] if precision == "fp32" else ["network.onnx"]
    assert sorted(artifact.files) == ["model.rtxplan", *typed, "plan.json"]
    assert artifact.quality is None
    record = json.loads((artifact.folder / "plan.json").read_text())
    expected = [{n: asdict(s) for n, s in p.items()} for p in profiles(spec, artifact.signature)]
    assert record["profiles"] == json.loads(json.dumps(expected))
    assert "8.6" in record["compute_capabilities"]
    assert (artifact.folder / "model.rtxplan").stat().st_size > 1000


def test_the_notes_say_what_was_built_and_what_to_run_where(write_model: WriteModel, root: Path) -> None:
    """Not served, for TensorRT-RTX; the command for the GPU machine; the flags left to it."""
    more = "tensorrt: {version_compatible: true, hardware_compatibility: ampere_plus}"
    result = built(spec_of(write_model, more), root, "tensorrt-fp16")
    assert result.artifact is not None
    notes = "\n".join(result.artifact.notes)
    assert "model.rtxplan was built by tensorrt_rtx" in notes
    assert "not served" in notes
    assert "tritonkit build net --variants tensorrt-fp16 --target nvidia" in notes
    assert "version_compatible and hardware_compatibility: left to that build" in notes


def test_a_plan_for_another_runtime_is_never_served(write_model: WriteModel, root: Path) -> None:
    """Rendering it is refused with the files that it consists of, and what to run where."""
    spec = spec_of(write_model)
    artifact = built(spec, root, "tensorrt-fp32").artifact
    assert artifact is not None
    with pytest.raises(RenderError, match=r"tensorrt-fp32 gives model\.rtxplan") as caught:
        plan_models(spec, artifact, "nvidia", 2)
    assert "on the GPU machine: pip install tensorrt" in caught.value.details


def test_fp16_keeps_fp32_in_and_out(write_model: WriteModel, root: Path) -> None:
    """Weights are FP16 in the network that the plan is built from; inputs and outputs are FP32."""
    artifact = built(spec_of(write_model), root, "tensorrt-fp16").artifact
    assert artifact is not None
    graph = onnx.load(artifact.folder / "network.onnx").graph
    ends = [*graph.input, *graph.output]
    assert {value.type.tensor_type.elem_type for value in ends} == {TensorProto.FLOAT}
    weights = {t.name: t.data_type for t in graph.initializer if t.name in ("w", "m")}
    assert set(weights.values()) == {TensorProto.FLOAT16}


def test_int8_follows_the_rules_of_tensorrt(write_model: WriteModel, root: Path) -> None:
    """Symmetric everywhere, int8 weights with a scale per output channel, the bias as it was."""
    result = built(spec_of(write_model, CALIBRATED), root, "tensorrt-int8")
    assert result.artifact is not None
    graph = onnx.load(result.artifact.folder / "network.onnx").graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    pairs = [n for n in graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    zeros = [constants[node.input[2]] for node in pairs]
    assert all(zero.dtype == np.int8 for zero in zeros)
    assert not any(zero.any() for zero in zeros)
    scales = sorted(constants[n.input[1]].size for n in pairs if n.input[0] in constants)
    assert scales == [4, 6]  # output channels of the product and of the convolution
    (conv,) = [node for node in graph.node if node.op_type == "Conv"]
    assert constants[conv.input[2]].dtype == np.float32
    (close,) = [note for note in result.artifact.notes if note.startswith("R2 of INT8")]
    assert float(close.rpartition("minmax ")[2]) > 0.999


def test_int8_without_calibration_data_is_refused(write_model: WriteModel, root: Path) -> None:
    """The message names the field that is missing."""
    problem = built(spec_of(write_model), root, "tensorrt-int8").problem
    assert problem is not None
    assert problem.where.endswith("optimize.calibration")


def test_a_network_without_products_cannot_be_int8(write_model: WriteModel, root: Path) -> None:
    """There is nothing to quantize in it, and the message says what there would have to be."""
    network = model_of([helper.make_node("Relu", ["x"], ["y"])], [3, 8, 8], [3, 8, 8], {})
    problem = built(spec_of(write_model, CALIBRATED, network), root, "tensorrt-int8").problem
    assert problem is not None
    assert "Conv" in problem.wanted


def test_a_memory_limit_that_is_too_low_is_named(write_model: WriteModel, root: Path) -> None:
    """TensorRT's own words, and the field to raise."""
    spec = spec_of(write_model, "tensorrt: {memory_limit: 1B}")
    problem = built(spec, root, "tensorrt-fp32").problem
    assert problem is not None
    assert "workspace" in problem.found + problem.details
    assert "optimize.tensorrt.memory_limit" in problem.todo


def test_an_operator_that_tensorrt_lacks_is_named(write_model: WriteModel, root: Path) -> None:
    """A network of ONNX Runtime's alone is refused with the operator's name."""
    network = model_of([helper.make_node("Det", ["x"], ["y"])], [3, 3], [], {})
    problem = built(spec_of(write_model, "", network), root, "tensorrt-fp32").problem
    assert problem is not None
    assert "Det" in problem.found + problem.details


def test_without_a_library_the_extra_is_named(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither tensorrt nor tensorrt_rtx installed: the command that installs one."""
    monkeypatch.setattr(tensorrt_library, "find_spec", lambda name: None)
    problem = built(spec_of(write_model), root, "tensorrt-fp32").problem
    assert problem is not None
    assert "there is no GPU" in problem.found
    assert "tritonkit[tensorrt]" in problem.todo


def test_trtexec_command(write_model: WriteModel, root: Path) -> None:
    """Every profile with its shapes, then limits and flags, then no timing run."""
    more = "tensorrt: {memory_limit: 2GiB, version_compatible: true, hardware_compatibility: same_compute_capability}"
    spec = spec_of(write_model, more)
    artifact = built(spec, root, "onnx-fp32").artifact
    assert artifact is not None
    assert trtexec_command(spec, artifact.signature, "tensorrt-fp16", Path("a/network.onnx")) == [
        "trtexec",
        "--onnx=a/network.onnx",
        "--saveEngine=model.plan",
        "--stronglyTyped",
        "--profile=0",
        "--minShapes=x:1x3x8x8",
        "--optShapes=x:4x3x8x8",
        "--maxShapes=x:16x3x8x8",
        "--profile=1",
        "--minShapes=x:1x3x8x8",
        "--optShapes=x:8x3x8x8",
        "--maxShapes=x:16x3x8x8",
        "--memPoolSize=workspace:2147483648B",
        "--hardwareCompatibilityLevel=sameComputeCapability",
        "--versionCompatible",
        "--timingCacheFile=timing.cache",
        "--skipInference",
    ]


def test_the_forms_do_not_run_here() -> None:
    """Without a GPU no plan is measured: there is no runtime for it."""
    assert {FORMS[f"tensorrt-{precision}"].runtime for precision in PRECISIONS} == {None}


@pytest.mark.parametrize("left", [b"", b"no timing cache"])
def test_kernel_times_are_kept_for_later_builds(write_model: WriteModel, root: Path, left: bytes) -> None:
    """Kernel times that the library measures are written; a file that cannot be read is replaced.

    TensorRT-RTX stands in for TensorRT here: it has the same calls, and measures nothing.
    """
    spec = spec_of(write_model)
    artifact = built(spec, root, "onnx-fp32").artifact
    assert artifact is not None
    timing = root / "timing.cache"
    timing.write_bytes(left)
    library = tensorrt_library.Library(tensorrt_library.choose_library().module, "a GPU")
    ranges = profiles(spec, artifact.signature)
    _, facts = build_plan(spec, library, artifact.folder / "model.onnx", ranges, timing)
    assert facts["profiles"] == [{n: asdict(s) for n, s in p.items()} for p in ranges]
    assert timing.read_bytes() not in (b"", left)
