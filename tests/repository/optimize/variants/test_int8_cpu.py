"""The largest int8 weights on this CPU."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.repository.optimize.variants.onnx_nets import run
from tritonkit.errors import BuildError
from tritonkit.repository.optimize.variants.int8_cpu import BITS_VARIABLE, cpu_kind, largest_weight


def product(weights: np.ndarray) -> onnx.ModelProto:
    """x uint8 [batch, length] -> int32 sums as FP32 y [batch, width]."""
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["batch", weights.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", weights.shape[1]])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.usefixtures("each_cpu")
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("batch", "length", "width"), [(1, 64, 16), (7, 33, 5), (64, 256, 128)])
def test_the_largest_weights_multiply_exactly(sign: int, batch: int, length: int, width: int) -> None:
    """With the largest activations, too: no sum saturates."""
    weights = np.full((length, width), sign * largest_weight(), np.int8)
    output = run(product(weights), np.full((batch, length), 255, np.uint8))
    assert (output == sign * 255 * length * largest_weight()).all()


def test_an_environment_variable_chooses_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """7 and 8 bits can be had on any machine, and what is cached for one does not count for the other."""
    kinds = set()
    for bits, largest in (("7", 64), ("8", 127)):
        monkeypatch.setenv(BITS_VARIABLE, bits)
        assert largest_weight() == largest
        kinds.add(cpu_kind())
    monkeypatch.delenv(BITS_VARIABLE)
    assert len({*kinds, cpu_kind()}) == 3


def test_other_widths_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable and what it may be."""
    monkeypatch.setenv(BITS_VARIABLE, "4")
    with pytest.raises(BuildError, match="7, for CPUs without VNNI, or 8") as caught:
        largest_weight()
    assert BITS_VARIABLE in caught.value.where
