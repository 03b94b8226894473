"""A network of PyTorch with a free axis, and its answers in numpy."""

from __future__ import annotations

import numpy as np

from tests.conftest import WriteModel
from tritonkit.repository.modelspec import Spec

__all__ = ["batch", "expected", "write_net"]

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


def write_net(write_model: WriteModel, variant: str) -> Spec:
    """A spec of the network that is served as this variant."""
    return write_model(TEXT.replace("VARIANT", variant), network__py=NETWORK)
