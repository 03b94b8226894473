"""TorchScript files and exported programs of small networks, as the gate measures them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tests.conftest import WriteModel
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import Result, evaluate
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.optimize.variants import FORMS

TEXT = """
name: net
network:
  torch: network:build
  inputs: INPUTS
  outputs: OUTPUTS
  free_axes: {length: {min: 2, max: 64}}
serving: {max_batch_size: 8}
"""
INPUTS = "{x: {dtype: FP32, shape: [length, 4]}, mask: {dtype: INT64, shape: [length]}}"
OUTPUTS = "{y: {dtype: FP32, shape: [length, 4]}, total: {dtype: FP32, shape: []}}"
NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, pixels, kept):
        y = torch.relu(self.layer(pixels * 1.0)) * kept[..., None]
        return RESULT

def build():
    return Net()
"""


def spec_of(
    write_model: WriteModel,
    inputs: str = INPUTS,
    outputs: str = OUTPUTS,
    result: str = "{'y': y, 'total': y.sum((1, 2))}",
) -> Spec:
    """A network of two inputs and two outputs, whose forward has names of its own."""
    text = TEXT.replace("INPUTS", inputs).replace("OUTPUTS", outputs)
    return write_model(text, network__py=NETWORK.replace("RESULT", result))


def built(spec: Spec, root: Path, variant: str = "torchscript") -> Result:
    """The result of a form."""
    (result,) = evaluate(spec, [variant], BuildCache(root / "cache"))
    return result


def refused(spec: Spec, root: Path, variant: str = "torchscript") -> BuildError:
    """The error of a form that cannot be made of a spec; its ONNX file is not needed for that."""
    folder = root / "folder"
    folder.mkdir()
    with pytest.raises(BuildError) as caught:
        FORMS[variant].make(job_of(spec, BuildCache(root / "cache")), folder)
    assert list(folder.iterdir()) == []
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "file"), [("torchscript", "model.pt"), ("torch-export", "program.pt2")], ids=["script", "program"]
)
@pytest.mark.parametrize("result", ["{'y': y, 'total': y.sum((1, 2))}", "[y, y.sum((1, 2))]"])
def test_a_file_gives_what_the_module_gives(
    write_model: WriteModel, root: Path, result: str, variant: str, file: str
) -> None:
    """At every batch size and length, for a module that returns a dict or a list."""
    evaluated = built(spec_of(write_model, result=result), root, variant)
    assert evaluated.problem is None
    assert evaluated.passed
    assert evaluated.artifact is not None
    files = {name for name in evaluated.artifact.files if not name.endswith(".py")}
    assert files == {file, "tensors.json"}
    assert evaluated.artifact.quality is not None
    assert evaluated.artifact.quality.max_difference < 1e-5


def test_a_program_comes_with_the_python_that_serves_it(write_model: WriteModel, root: Path) -> None:
    """And without the example that it was exported with."""
    artifact = built(spec_of(write_model), root, "torch-export").artifact
    assert artifact is not None
    assert {"model.py", "backend_model.py", "pytorch_network.py"} <= set(artifact.files)
    assert "torch.export" in (artifact.folder / "model.py").read_text()
    assert torch.export.load(artifact.folder / "program.pt2").example_inputs is None


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["torchscript", "torch-export"])
def test_the_runner_names_its_outputs_and_its_operators(write_model: WriteModel, root: Path, variant: str) -> None:
    """Outputs by the spec's names; the profile has the matrix product, slowest first."""
    artifact = built(spec_of(write_model), root, variant).artifact
    assert artifact is not None
    runner = RUNTIMES["torch"](artifact.folder, 1, "here")
    batch = {"x": np.ones((5, 7, 4), np.float32), "mask": np.ones((5, 7), np.int64)}
    outputs = runner.run(batch)
    assert {name: array.shape for name, array in outputs.items()} == {"y": (5, 7, 4), "total": (5,)}
    times = runner.profile(batch, 3)
    assert any("mm" in operator.kind for operator in times)
    assert [operator.ms for operator in times] == sorted((operator.ms for operator in times), reverse=True)


def test_names_that_the_backend_would_take_for_other_arguments_are_refused(write_model: WriteModel, root: Path) -> None:
    """They are passed by position, and Triton's pytorch backend goes by forward's names where it knows them all."""
    swapped = INPUTS.replace("x:", "kept:").replace("mask:", "pixels:")
    problem = refused(spec_of(write_model, inputs=swapped), root)
    assert problem.found == "forward(pixels, kept) and network.inputs kept, pixels"


def test_numbered_names_must_count_from_their_place(write_model: WriteModel, root: Path) -> None:
    """`y__1` in front would be answered with the second output."""
    outputs = OUTPUTS.replace("y:", "y__1:").replace("total:", "t__0:")
    problem = refused(spec_of(write_model, outputs=outputs), root)
    assert "network.outputs" in problem.where


@pytest.mark.parametrize("variant", ["torchscript", "torch-export", "torch-compile", "torch-compile-cuda"])
def test_a_dtype_without_a_tensor_is_refused(write_model: WriteModel, root: Path, variant: str) -> None:
    """UINT16 is ONNX's and not the pytorch backend's."""
    outputs = OUTPUTS.replace("total: {dtype: FP32", "total: {dtype: UINT16")
    problem = refused(spec_of(write_model, outputs=outputs), root, variant)
    assert "total is UINT16" in problem.found


def test_an_onnx_file_has_no_torchscript(write_model: WriteModel, root: Path) -> None:
    """The message says that this variant is made from PyTorch."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    spec = write_model("{name: net, network: {onnx: net.onnx}}", net__onnx=model.SerializeToString())
    problem = refused(spec, root)
    assert "network.torch" in problem.wanted
