"""Attention of PyTorch's exporter becomes one operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from tests.conftest import WriteModel
from tests.repository.optimize.variants.onnx_nets import random, run
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.variants.onnx_fuse import fuse, make
from tritonkit.repository.optimize.variants.onnx_graph import tidy

SPEC = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [length, 16]}}
  outputs: {y: {dtype: FP32, shape: [length, 16]}}
  free_axes: {length: {min: 2, max: 64}}
"""
NETWORK = """
import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(16, 48), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
    def forward(self, x):
        parts = self.inner(x).view(*x.shape[:2], 12, 4).transpose(1, 2).split(4, 1)
        heads = scaled_dot_product_attention(*parts).transpose(1, 2).reshape(x.shape)
        return self.down(gelu(self.up(self.norm(x + heads))))

def build():
    return Net()
"""


def test_attention_as_pytorch_exports_it_is_fused(write_model: WriteModel, tmp_path: Path) -> None:
    """The file has one operator for it, gives the same at other sizes, and keeps its free axes."""
    spec = write_model(SPEC, network__py=NETWORK)
    cache = BuildCache(tmp_path / "cache")
    job = job_of(spec, cache)
    out = tmp_path / "made"
    out.mkdir()
    (note,) = make(job, out)
    assert note.startswith("fused: 1 x attention")
    fused, plain = onnx.load(out / "model.onnx"), onnx.load(job.onnx)
    assert "MultiHeadAttention" in {node.op_type for node in fused.graph.node}
    x = random(3, 7, 16)
    assert np.allclose(run(fused, x), run(plain, x), atol=1e-5)
    for side in ("input", "output"):
        (before,), (after,) = getattr(plain.graph, side), getattr(fused.graph, side)
        assert after.name == before.name
        assert after.type == before.type
    tidy(plain)
    assert fuse(plain)[1], "attention is found without the exporter's shapes too"
