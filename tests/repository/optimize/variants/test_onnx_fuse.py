"""Fusing a network without attention."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from tests.conftest import WriteModel
from tests.repository.optimize.variants.onnx_nets import make_job, model, random
from tritonkit.errors import BuildError
from tritonkit.repository.optimize.variants.onnx_fuse import make


def test_a_network_without_attention_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    """A Softmax behind a MatMul is none: the error says what to serve instead."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Softmax", ["a"], ["y"], "softmax"),
    ]
    network = model(nodes, {"w": random(8, 4)}, ["batch", 8], ["batch", 4])
    with pytest.raises(BuildError, match="no attention that ONNX Runtime has an operator for"):
        make(make_job(write_model, network, [random(2, 8)]), tmp_path)
