"""Small specs with their networks, and builds of them."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from tritonkit.errors import TritonkitError
from tritonkit.repository.export import Artifact, BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import build, plan

TORCH = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [4]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
"""
LINEAR = """
import torch
def build():
    return torch.nn.Linear(4, 2)
"""


def module(body: str) -> str:
    """A network.py whose forward has the given body."""
    head = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        "
    return f"{head}{body}\ndef build():\n    return Net()\n"


def built(spec: Spec, cache: BuildCache) -> Artifact:
    """Plan and build in one."""
    return build(plan(spec, cache), cache)


def refused(spec: Spec, cache: BuildCache, kind: type[TritonkitError]) -> TritonkitError:
    """The error of a build that must fail, leaving nothing behind."""
    with pytest.raises(kind) as caught:
        built(spec, cache)
    assert type(caught.value) is kind
    assert plan(spec, cache).cached is None, "a refused build must not be cached"
    assert not list(cache.folder.glob("*/.building-*")), "a refused build leaves nothing behind"
    return caught.value


def onnx_file(
    nodes: list[onnx.NodeProto], out_shape: list[int | str], in_shape: list[int | str] | None = None
) -> bytes:
    """A small ONNX file from x: FP32 [batch, 4] to y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, in_shape or ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


RELU = [helper.make_node("Relu", ["x"], ["y"])]
FILE = "name: net\nnetwork: {onnx: m.onnx}\n"
"""A spec for what has nothing to do with PyTorch: exporting takes longest."""
NONZERO = [
    helper.make_node("Relu", ["x"], ["r"]),
    helper.make_node("NonZero", ["r"], ["n"]),
    helper.make_node("Transpose", ["n"], ["t"], perm=[1, 0]),
    helper.make_node("Cast", ["t"], ["y"], to=TensorProto.FLOAT),
]
"""Its output's shape depends on the values of x."""
PYTHON = """
name: net
network:
  python: s.py
  inputs: {x: {dtype: FP32, shape: [1]}}
  outputs: {y: {dtype: FP32, shape: [1]}}
"""
SAMPLES = TORCH + "quality: {samples: data:samples}\n"
