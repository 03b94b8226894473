"""8-bit rounding learned in training: the file's operators, its distance from the reference, and refusals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.export.onnx_file import check_file, open_session, run_session
from tritonkit.repository.export.torch_module import run_module
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.variants.int8_cpu import largest_weight
from tritonkit.repository.optimize.variants.onnx_int8_qat import make
from tritonkit.repository.optimize.weights import WeightCache

SPEC = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [3, 16, 16]}}
  outputs: {y: {dtype: FP32, shape: [5]}}
optimize: {training: data:training, epochs: 40, learning_rate: 0.005}
"""
DATA = """
import numpy as np
def training():
    random = np.random.default_rng(0)
    return [({"x": random.standard_normal((16, 3, 16, 16)).astype(np.float32)}, None) for _ in range(4)]
"""
# Normalization, a residual addition, pooling, dropout and a layer without bias: what rules must see through.
RESIDUAL = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.m, self.n = (nn.BatchNorm2d(8) for _ in range(2))
    def forward(self, x):
        return torch.relu(x + self.n(self.b(torch.relu(self.m(self.a(x))))))
def build():
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(2), Block(), Block(),
        nn.MaxPool2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(32, 5))
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.running_mean, -0.3, 0.3)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.3, 2)
    return network
"""


def job_of(write_model: WriteModel, folder: Path, network: str, spec: str = SPEC) -> Job:
    """A job that exports nothing itself."""

    def no_artifact() -> Artifact:
        raise AssertionError("the FP32 file is not needed")

    written = write_model(spec, network__py=network, data__py=DATA)
    return Job(written, WeightCache(folder, written), no_artifact)


def optimized_operators(file: Path) -> Counter[str]:
    """What ONNX Runtime makes of the file."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(file.with_suffix(".optimized"))
    ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    graph = onnx.load(options.optimized_model_filepath).graph
    return Counter(node.op_type for node in graph.node)


@pytest.mark.usefixtures("each_cpu")
def test_every_layer_runs_in_integer_kernels(write_model: WriteModel, tmp_path: Path) -> None:
    """All convolutions, the additions and the linear layer are fused to their 8-bit forms."""
    job = job_of(write_model, tmp_path, RESIDUAL, SPEC.replace("40", "1"))
    notes = make(job, tmp_path)
    file = tmp_path / "model.onnx"
    counts = optimized_operators(file)
    assert notes == ("6 layers in int8, fine-tuned for 1 epochs",)
    assert counts["QLinearConv"] == 5
    assert counts["QLinearAdd"] == 2
    assert counts["QGemm"] == 1
    assert not counts.keys() & {"Conv", "Gemm", "MatMul", "Add", "BatchNormalization", "Relu"}
    assert counts["QuantizeLinear"] == 1, "only the input is rounded on its own"


@pytest.mark.usefixtures("each_cpu")
def test_weights_are_int8_with_a_scale_per_channel(write_model: WriteModel, tmp_path: Path) -> None:
    """The file is valid, holds no FP32 weights and no traces of Python, and keeps the batch free."""
    make(job_of(write_model, tmp_path, RESIDUAL, SPEC.replace("40", "1")), tmp_path)
    model = check_file(tmp_path / "model.onnx", "test")
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    by_output = {node.output[0]: node for node in model.graph.node}
    assert len(layers) == 6
    for layer in layers:
        weight = by_output[layer.input[1]]
        assert stored[weight.input[0]].data_type == onnx.TensorProto.INT8
        assert list(stored[weight.input[1]].dims) == [stored[weight.input[0]].dims[0]]
        largest = np.abs(onnx.numpy_helper.to_array(stored[weight.input[0]]).astype(int)).max()
        assert largest == largest_weight(), "of what this CPU multiplies exactly, all is used"
    floats = [t for t in stored.values() if t.data_type == onnx.TensorProto.FLOAT]
    assert max(int(np.prod(tensor.dims)) for tensor in floats) <= 8, "scales alone"
    assert not any(node.metadata_props for node in model.graph.node)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param


@pytest.mark.usefixtures("each_cpu")
def test_the_file_gives_what_the_network_gives(write_model: WriteModel, tmp_path: Path) -> None:
    """Its outputs differ from the FP32 network's by rounding alone, at other batch sizes too."""
    job = job_of(write_model, tmp_path, RESIDUAL, SPEC.replace("40", "1"))
    make(job, tmp_path)
    session = open_session(tmp_path / "model.onnx", "test")
    images = np.random.default_rng(7).standard_normal((64, 3, 16, 16)).astype(np.float32)
    for count in (1, 64):
        batch = {"x": images[:count]}
        expected: Any = run_module(job.spec, job.module(), batch)["y"]
        output = run_session(session, batch, "test")["y"]
        assert ((output - expected) ** 2).mean() < 1e-2 * (expected**2).mean()


def test_a_network_without_layers_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    """Nothing to quantize is an error of its own, and leaves no file."""
    nothing = "from torch import nn\ndef build():\n    return nn.Flatten()\n"
    with pytest.raises(BuildError) as caught:
        make(job_of(write_model, tmp_path, nothing), tmp_path / "out")
    assert "no parameter" in caught.value.found or "no convolution" in caught.value.found
    assert not (tmp_path / "out").exists()


def test_a_network_that_cannot_be_traced_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    """Control flow on values is told as it is for the plain export."""
    network = RESIDUAL.replace("return torch.relu(x +", "return x if x.sum() > 0 else torch.relu(x +")
    with pytest.raises(BuildError) as caught:
        make(job_of(write_model, tmp_path, network), tmp_path)
    assert caught.value.where.endswith("network.torch")
