"""The PyTorch variants from a spec to answers of a real Triton; torch-compile needs g++ and half a minute."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tests.parts import SERVER
from tritonkit.client import Client
from tritonkit.errors import ServerStartError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve

HAS_TORCH = any(SERVER.glob("lib/python3.*/site-packages/torch"))
TEXT = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [length, 4]}, kept: {dtype: INT64, shape: [length]}}
  outputs: {y: {dtype: FP32, shape: [length, 3]}, total: {dtype: FP32, shape: []}}
  free_axes: {length: {min: 2, max: 64}}
serving:
  variant: VARIANT
  max_batch_size: 16
  dynamic_batching: {max_queue_delay: 20ms}
"""
NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        with torch.no_grad():
            self.layer.weight.copy_(torch.arange(12.0).reshape(3, 4) - 6)
            self.layer.bias.fill_(0.5)

    def forward(self, x, kept):
        y = torch.relu(self.layer(x)) * kept[..., None]
        return {"y": y, "total": y.sum((1, 2))}

def build():
    return Net()
"""
VARIANTS = ["torchscript", "torch-export", "torch-compile"]


def expected(x: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The network in numpy: [batch, length, 4], [batch, length] -> [batch, length, 3]."""
    weight = np.arange(12, dtype=np.float32).reshape(3, 4) - 6
    values: np.ndarray = np.maximum(x @ weight.T + 0.5, 0) * kept[..., None]
    return values


def batch(count: int, length: int) -> dict[str, np.ndarray]:
    """Seeded input of some size."""
    random = np.random.default_rng(count * 100 + length)
    x = random.standard_normal((count, length, 4)).astype(np.float32)
    return {"x": x, "kept": random.integers(0, 2, (count, length))}


def published(write_model: WriteModel, root: Path, variant: str) -> Path:
    """A repository with the variant, built, checked and published."""
    write_model(TEXT.replace("VARIANT", variant), network__py=NETWORK)
    return build_repository(root, ("net",), out=root / "repository").path


def test_a_compiled_package_gives_what_the_module_gives(write_model: WriteModel, root: Path) -> None:
    """At batch sizes and lengths other than those it was compiled with; its fused kernels are profiled."""
    spec = write_model(TEXT.replace("VARIANT", "torch-compile"), network__py=NETWORK)
    (result,) = evaluate(spec, ["torch-compile"], BuildCache(root / "cache"))
    assert result.problem is None
    assert result.passed
    assert result.artifact is not None
    assert {"model.pt2", "model.py", "backend_model.py"} <= set(result.artifact.files)
    runner = RUNTIMES["torch"](result.artifact.folder, 1, "here")
    for count, length in ((1, 2), (5, 64), (16, 7)):
        given = batch(count, length)
        np.testing.assert_allclose(runner.run(given)["y"], expected(**given), atol=1e-5)
    assert any("fused" in operator.name for operator in runner.profile(given, 3))


@pytest.mark.needs("triton")
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not in the server's environment (requirements-torch.txt)")
@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_through_triton(write_model: WriteModel, root: Path, variant: str) -> None:
    """Alone, in batches, and merged from callers whose lengths differ."""
    repository = published(write_model, root, variant)
    with (
        serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=root) as endpoint,
        Client(endpoint.grpc) as client,
        ThreadPoolExecutor(8) as callers,
    ):
        net = client.model("net")
        given = [batch(1 + turn % 3, 5 + turn % 2) for turn in range(24)]
        replies = list(callers.map(lambda inputs: net.predict(**inputs), given))
    for inputs, reply in zip(given, replies, strict=True):
        np.testing.assert_allclose(reply["y"], expected(**inputs), atol=1e-5)
        total = expected(**inputs).sum((1, 2))
        np.testing.assert_allclose(np.ravel(reply["total"]), total, rtol=1e-5)


@pytest.mark.needs("triton")
@pytest.mark.skipif(HAS_TORCH, reason="torch is in the server's environment")
def test_without_torch_the_load_error_says_what_to_install(write_model: WriteModel, root: Path) -> None:
    """The server does not start with a traceback but with a command."""
    repository = published(write_model, root, "torchscript")
    with (
        pytest.raises(ServerStartError, match=r"pip install -r .*requirements-torch\.txt"),
        serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=root),
    ):
        pass
