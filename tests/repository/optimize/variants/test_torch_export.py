"""TorchScript files of small networks, as the gate measures them, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
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


def built(spec: Spec, root: Path) -> Result:
    """The result of torchscript."""
    (result,) = evaluate(spec, ["torchscript"], BuildCache(root / "cache"))
    return result


def refused(spec: Spec, root: Path, variant: str = "torchscript") -> BuildError:
    """The error of a form that cannot be made of a spec; its ONNX file is not needed for that."""
    folder = root / "folder"
    folder.mkdir()
    with pytest.raises(BuildError) as caught:
        FORMS[variant].make(job_of(spec, BuildCache(root / "cache")), folder)
    assert list(folder.iterdir()) == []
    return caught.value


@pytest.mark.parametrize("result", ["{'y': y, 'total': y.sum((1, 2))}", "[y, y.sum((1, 2))]"])
def test_torchscript_gives_what_the_module_gives(write_model: WriteModel, root: Path, result: str) -> None:
    """At every batch size and length, for a module that returns a dict or a list."""
    evaluated = built(spec_of(write_model, result=result), root)
    assert evaluated.problem is None
    assert evaluated.passed
    assert evaluated.artifact is not None
    assert sorted(evaluated.artifact.files) == ["model.pt", "tensors.json"]
    assert evaluated.artifact.quality is not None
    assert evaluated.artifact.quality.max_difference < 1e-5


def test_the_runner_names_its_outputs_and_its_operators(write_model: WriteModel, root: Path) -> None:
    """Outputs by the spec's names; the profile has the matrix product, slowest first."""
    artifact = built(spec_of(write_model), root).artifact
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


def test_a_dtype_without_a_tensor_is_refused(write_model: WriteModel, root: Path) -> None:
    """UINT16 is ONNX's and not the pytorch backend's."""
    outputs = OUTPUTS.replace("total: {dtype: FP32", "total: {dtype: UINT16")
    problem = refused(spec_of(write_model, outputs=outputs), root)
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


def test_without_a_compiler_the_package_is_refused(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch-compile needs g++ or what CXX names, and says how to get it."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    problem = refused(spec_of(write_model), root, "torch-compile")
    assert "'no-such-compiler'" in problem.found
    assert "apt-get install g++" in problem.todo


def test_what_the_compiler_says_is_told(write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's message begins with pages of the command line; the reason is below."""
    import torch._inductor

    def fail(*_: object, **__: object) -> None:
        message = "a.h:1: fatal error: when writing output to a.i: No space left on device"
        raise RuntimeError(f"CppCompileError: C++ compile error\n\nCommand:\ng++ a.h\n\nOutput:\n{message}")

    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", fail)
    problem = refused(spec_of(write_model), root, "torch-compile")
    assert problem.found.startswith("the C++ compiler failed: a.h:1: fatal error: ")
    assert problem.found.endswith("No space left on device")
    assert "TMPDIR" in problem.todo
