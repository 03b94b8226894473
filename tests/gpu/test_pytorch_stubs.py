"""PyTorch models in Triton's Python on a GPU: graphs give eager answers, and failures leave the process or end it.

Without a GPU, `tests/python_backends/test_pytorch_gpu.py` runs the same code on a stand-in for `torch.cuda`.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.export.passes

import tests.python_backends.conftest  # noqa: F401  # puts the modules of Triton's Python on the path
from tests.conftest import WriteModel
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.runtimes import RUNTIMES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="this PyTorch has no CUDA"),
]
GPU = {"model_instance_kind": "GPU", "model_instance_device_id": "0"}
CONFIG = {"name": "net", "max_batch_size": 8, "optimization": {"cuda": {"graphs": True}}}
PRECISIONS = pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
COMPILER = pytest.mark.needs("c++")
HAS_TIME = pytest.mark.skipif(
    "TRITONKIT_GPU_REPOSITORY" in os.environ, reason="make gpu has no minute to compile; the lane does"
)
SPEC = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [3, 32, 32]}}
  outputs: {y: {dtype: FP32, shape: [16]}}
serving: {max_batch_size: 8}
"""
NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 16, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.convolution(x)).mean((2, 3))

def build():
    return Net()
"""
LOST = """
import torch
from backend_batch import RequestError
from pytorch_device import open_device
from pytorch_engine import Function
from pytorch_gpu import GpuFunction
from pytorch_sizes import Sizes
import numpy as np

device = open_device(torch, {"model_instance_kind": "GPU", "model_instance_device_id": "0"})
table = torch.ones(4, 2, device=device.place)
rows = Function(torch, lambda x: torch.nn.functional.embedding(x, table), {"x": 0}, {"y": 0})
engine = GpuFunction(rows, device, True, Sizes())
try:
    engine.run([{"x": np.array([99])}], ["y"])
except RequestError as error:
    print(error, flush=True)
import threading
threading.Event().wait()
"""


class Net(torch.nn.Module):
    """A convolution, whose plan cuDNN makes again for each batch size, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.convolution = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.layer = torch.nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        """Images to five numbers each."""
        hidden = torch.relu(self.convolution(x.to(self.layer.weight.dtype))).mean((2, 3))
        return self.layer(hidden).float()


def engine(call: Any, config: dict[str, Any] = CONFIG) -> tuple[Any, list[str]]:
    """The engine on the first GPU, and what it logged."""
    from backend_config import TensorSpec
    from pytorch_device import open_device
    from pytorch_engine import Function
    from pytorch_gpu import engine_for

    log: list[str] = []
    function = Function(torch, call, {"x": 0}, {"y": 0})
    specs = {"x": TensorSpec("x", "FP32", (-1, 3, 32, 32))}
    return engine_for(function, open_device(torch, GPU), config, specs, log.append), log


def images(rows: int) -> np.ndarray:
    """Seeded images."""
    return np.random.default_rng(rows).standard_normal((rows, 3, 32, 32)).astype(np.float32)


def check_answers(made: Any, net: Any) -> None:
    """Batches of all sizes, twice, give what the network gives without an engine."""
    for rows in (1, 3, 8, 2, 5, 1):
        x = images(rows)
        answer = made.run([{"x": x[:1]}, {"x": x[1:]}] if rows > 1 else [{"x": x}], ["y"])["y"]
        with torch.inference_mode():
            reference = net(torch.from_numpy(x).to("cuda:0")).cpu().numpy()
        np.testing.assert_allclose(answer, reference, rtol=1e-2, atol=1e-2)


@PRECISIONS
def test_graphs_give_the_answers_of_the_network(half: bool) -> None:
    """A module, at all sizes."""
    net = Net().eval().to("cuda:0", torch.float16 if half else torch.float32)
    made, log = engine(net)
    assert log == ["model 'net': CUDA graphs on cuda:0 for batches of 1, 2, 4, 8"]
    check_answers(made, net)


def test_torchscript_is_captured() -> None:
    """A traced and frozen module, as the variant torchscript has it, loaded onto the GPU."""
    net, content = Net().eval(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and what the pytorch backend loads
        torch.jit.save(torch.jit.freeze(torch.jit.trace(net, torch.from_numpy(images(3)))), content)
        content.seek(0)
        script = torch.jit.load(content, map_location="cuda:0")
    made, log = engine(script)
    assert "CUDA graphs on cuda:0" in log[0]
    check_answers(made, net.to("cuda:0"))


def test_an_exported_program_is_captured() -> None:
    """A program of torch.export, as the variant torch-export has it, moved to the GPU when it is loaded."""
    net, content = Net().eval(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporting uses what PyTorch has deprecated itself
        batch = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(net, (torch.from_numpy(images(3)),), dynamic_shapes=batch), content)
    content.seek(0)
    program = torch.export.passes.move_to_device_pass(torch.export.load(content), "cuda:0")
    made, log = engine(program.module())
    assert "CUDA graphs on cuda:0" in log[0]
    check_answers(made, net.to("cuda:0"))


@COMPILER
@HAS_TIME
def test_a_build_compiles_for_the_gpu(write_model: WriteModel, root: Path) -> None:
    """The variant torch-compile-cuda passes the gate on the GPU, with its kernels in the profile."""
    (result,) = evaluate(write_model(SPEC, network__py=NETWORK), ["torch-compile-cuda"], BuildCache(root / "cache"))
    assert result.problem is None
    assert result.passed
    assert result.artifact is not None
    assert f"for {torch.cuda.get_device_name()}" in result.artifact.notes[0]
    runner = RUNTIMES["torch"](result.artifact.folder, 1, "here")
    batch = {"x": images(5)}
    assert runner.run(batch)["y"].shape == (5, 16)
    assert runner.profile(batch, 3)


@COMPILER
@HAS_TIME
def test_a_compiled_package_is_captured(tmp_path: Path) -> None:
    """AOTInductor's, loaded without its locks."""
    import torch._inductor

    net, file = Net().eval().to("cuda:0"), tmp_path / "model.pt2"
    batch = ({0: torch.export.Dim("batch", min=1, max=8)},)
    program = torch.export.export(net, (torch.from_numpy(images(3)).to("cuda:0"),), dynamic_shapes=batch)
    torch._inductor.aoti_compile_and_package(program, package_path=str(file))
    package = torch._C._aoti.AOTIModelPackageLoader(str(file), "model", True, 1, 0)
    assert package.get_metadata()["AOTI_DEVICE_KEY"] == "cuda"
    made, log = engine(lambda x: package.boxed_run([x]))
    assert "CUDA graphs on cuda:0" in log[0]
    check_answers(made, net)


def test_a_failed_capture_harms_nobody() -> None:
    """A network that waits for the GPU is served without graphs, and the next one has its own."""
    net = Net().eval().to("cuda:0")
    made, log = engine(lambda x: net(x) if x.sum() < 1e9 else None)
    assert "served without CUDA graphs" in log[0]
    assert "previous error" not in log[0]
    check_answers(made, net)
    other, log = engine(net)
    assert "CUDA graphs on cuda:0" in log[0]
    check_answers(other, net)


def test_too_little_memory_is_one_request_s_error() -> None:
    """The message has CUDA's figures, and the next request is answered."""
    from backend_batch import RequestError

    def call(x: Any) -> Any:
        return torch.empty(1 << 45, device=x.device) if len(x) == 3 else x.mean((1, 2, 3))

    made, _ = engine(call, {"name": "net", "max_batch_size": 8})
    with pytest.raises(RequestError, match=r"out of memory.*; wanted memory"):
        made.run([{"x": images(3)}], ["y"])
    assert made.run([{"x": images(2)}], ["y"])["y"].shape == (2,)


def test_a_fault_in_a_kernel_ends_the_process() -> None:
    """An index beyond a table: the answer has CUDA's first line, and the process ends with 1."""
    variables = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", LOST], env=variables, capture_output=True, text=True)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.splitlines()[0].startswith("PyTorch: CUDA error: device-side assert")
