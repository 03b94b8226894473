"""BF16 matrix products for GPUs: the file by ONNX's own evaluator, its closeness, its place, and its judge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.conftest import WriteModel
from tests.repository.optimize.fake_cuda import fake_environment
from tests.repository.optimize.variants.onnx_nets import (
    Array,
    cosine,
    folder,
    make_job,
    model,
    perceptron,
    random,
    residual,
    run,
)
from tritonkit.errors import BuildError, RenderError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.optimize.variants.onnx_bf16_products import BF16, make
from tritonkit.repository.optimize.variants.onnx_half import Half
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.render.gpu_network import runs_on_gpu

ROWS = random(16, 32, seed=9)
VARIANT = "onnx-bf16-products"


def made(write_model: WriteModel, tmp_path: Path, network: onnx.ModelProto, x: Array) -> tuple[onnx.ModelProto, str]:
    """The variant's file and its notes."""
    out = folder(tmp_path)
    notes = make(make_job(write_model, network, [x]), out)
    return onnx.load(out / "model.onnx"), "\n".join(notes)


def types_of(network: onnx.ModelProto) -> dict[str, int]:
    """Each tensor's type, as ONNX infers it."""
    inferred = onnx.shape_inference.infer_shapes(network, strict_mode=True, data_prop=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in inferred.initializer}


def test_products_and_what_lies_between_are_bf16(write_model: WriteModel, tmp_path: Path) -> None:
    """The outputs are FP32 and nearly the same; the weights take half the bytes."""
    network = perceptron()
    file, notes = made(write_model, tmp_path, network, ROWS)
    onnx.checker.check_model(file, full_check=True)
    assert (file.graph.input, file.graph.output) == (network.graph.input, network.graph.output)
    types = types_of(file)
    for node in file.graph.node:
        if node.op_type in ("Gemm", "MatMul"):
            assert {types[name] for name in (*node.input, *node.output)} == {TensorProto.BFLOAT16}
    (answer,) = ReferenceEvaluator(file).run(None, {"x": ROWS})
    expected = run(network, ROWS)
    assert cosine(answer, expected) > 0.9995
    assert np.abs(answer - expected).max() > 0
    assert "imitated on the CPU: R2 0.99" in notes
    assert "all others FP32" in notes


def test_the_imitation_rounds_as_the_file_does() -> None:
    """ONNX Runtime does not drop the conversions, so the layers are chosen by what a GPU would round."""
    network = perceptron()
    half = Half(network, BF16)
    expected, imitated = run(network, ROWS), run(half.write([], imitated=True), ROWS)
    (answer,) = ReferenceEvaluator(half.write([])).run(None, {"x": ROWS})
    error = np.abs(imitated - expected).mean()
    assert error > 0
    assert np.abs(answer - expected).mean() == pytest.approx(error, rel=0.5)


def test_convolutions_stay_fp32(write_model: WriteModel, tmp_path: Path) -> None:
    """A convolution has no BF16 kernel below opset 22."""
    file, _ = made(write_model, tmp_path, residual(), random(8, 3, 8, 8, seed=9))
    types = types_of(file)
    convolutions = [node for node in file.graph.node if node.op_type == "Conv"]
    assert convolutions
    assert {types[name] for node in convolutions for name in node.input if name} == {TensorProto.FLOAT}


def test_operators_apart_from_products_stay_fp32(write_model: WriteModel, tmp_path: Path) -> None:
    """An addition before a softmax would only be converted and converted back."""
    node = helper.make_node
    nodes = [
        node("Add", ["x", "one"], ["a"], "lone"),
        node("Softmax", ["a"], ["s"], "softmax"),
        node("MatMul", ["s", "w"], ["m"], "product"),
        node("Relu", ["m"], ["y"], "relu"),
    ]
    weights = {"one": np.ones(32, np.float32), "w": random(32, 32)}
    file, notes = made(write_model, tmp_path, model(nodes, weights, ["batch", 32], ["batch", 32]), ROWS)
    types = types_of(file)
    by_name = {node.name: node for node in file.graph.node}
    assert types[by_name["lone"].output[0]] == types[by_name["softmax"].output[0]] == TensorProto.FLOAT
    assert types[by_name["product"].output[0]] == TensorProto.BFLOAT16
    assert "2 operators BF16" in notes


def test_an_operator_that_loses_too_much_stays_fp32(write_model: WriteModel, tmp_path: Path) -> None:
    """A small difference of large numbers: found on the imitation, and named."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w1"], ["a"], "first"),
        node("Add", ["a", "large"], ["b"], "plus"),
        node("Sub", ["b", "large"], ["c"], "minus"),
        node("MatMul", ["c", "w2"], ["y"], "second"),
    ]
    weights = {"w1": random(32, 32, seed=1), "w2": random(32, 32, seed=2), "large": np.array(30_000, np.float32)}
    file, notes = made(write_model, tmp_path, model(nodes, weights, ["batch", 32], ["batch", 32]), ROWS)
    assert "FP32, because they cost most closeness: " in notes
    (answer,) = ReferenceEvaluator(file).run(None, {"x": ROWS})
    assert np.isfinite(answer).all()


def test_a_network_without_products_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    """The message has the operators and the opset."""
    node = helper.make_node
    network = model([node("Relu", ["x"], ["y"])], {}, ["batch", 32], ["batch", 32])
    with pytest.raises(BuildError, match="no matrix product that can be BF16") as caught:
        made(write_model, tmp_path, network, ROWS)
    assert caught.value.wanted == "Gemm or MatMul of FP32 numbers, in opset 13 or newer"


def spec_of(write_model: WriteModel, serving: str) -> Spec:
    """A tiny network that is served as this variant."""
    text = f"name: net\nnetwork: {{onnx: net.onnx}}\nserving: {{variant: {VARIANT}{serving}}}\n"
    return write_model(text, net__onnx=perceptron().SerializeToString())


def test_it_is_served_on_a_gpu_alone(write_model: WriteModel, root: Path) -> None:
    """Also a tiny network, which a CPU would serve in another variant; a CPU is refused; without a GPU a note says that
    its answers were not compared."""
    spec_of(write_model, ", max_batch_size: 4")
    built = build_repository(root, ["net"], target="gpu", gpu="there is no GPU")
    assert any(f"net: {VARIANT} is served, and the gate has not judged its answers" in note for note in built.notes)
    text = (root / "model_repository_gpu" / "net" / "config.pbtxt").read_text()
    assert "kind: KIND_GPU" in text
    spec_of(write_model, ", instance_group: [{kind: cpu}]")
    with pytest.raises(RenderError, match="the variant's file is for the GPU"):
        build_repository(root, ["net"], target="gpu")


def test_a_provider_without_the_kernels_is_reported(write_model: WriteModel, tmp_path: Path) -> None:
    """The judge opens it as the server will: the stand-in for CUDA computes on the CPU, which has no BF16 products."""
    spec = spec_of(write_model, "")
    judge = GpuJudge(fake_environment(tmp_path / "venv"), runs_on_gpu)
    (result,) = evaluate(spec, [VARIANT], BuildCache(tmp_path / "cache"), gpu=judge)
    assert result.problem is not None
    assert "ONNX Runtime cannot open model.onnx on " in result.problem.found
    assert "NOT_IMPLEMENTED" in result.problem.found
