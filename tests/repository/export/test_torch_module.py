"""The network that a factory makes: what it may be, and how its inputs are passed."""

from __future__ import annotations

import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError
from tritonkit.repository.export.torch_module import make_module

SPEC = """
name: net
network:
  torch: network:build
  inputs: {inputs}
  outputs: {{y: {{dtype: FP32, shape: [4]}}}}
"""
TENSOR = "{dtype: FP32, shape: [4]}"
NETWORK = """
import warnings

import torch

class Difference(torch.nn.Module):
    def forward(self, ids, mask=None, *, scale=1.0):
        return ids if mask is None else (ids - mask) * scale

def build():
    return Difference()

def scripted():
    warnings.simplefilter("ignore")  # it is deprecated
    return torch.jit.script(torch.nn.Identity())

def nothing():
    return None
"""


def make(write_model: WriteModel, *inputs: str, factory: str = "network:build") -> None:
    """Call the factory for a spec with these inputs."""
    named = ", ".join(f"{name}: {TENSOR}" for name in inputs)
    spec = write_model(SPEC.format(inputs=f"{{{named}}}"), network__py=NETWORK)
    make_module(spec, factory, "network.torch")


@pytest.mark.parametrize("inputs", [("ids", "mask"), ("ids",), ("pixels",), ("pixels", "mask"), ("mask_of", "ids_of")])
def test_inputs_are_passed_by_position(write_model: WriteModel, inputs: tuple[str, ...]) -> None:
    """Their names are the spec's own, as long as none stands where forward has another's."""
    make(write_model, *inputs)


@pytest.mark.parametrize("inputs", [("mask", "ids"), ("mask",), ("x", "ids")])
def test_names_of_forward_in_another_order_are_refused(write_model: WriteModel, inputs: tuple[str, ...]) -> None:
    """Tensors of one shape would be taken for each other without a word."""
    with pytest.raises(BuildError) as caught:
        make(write_model, *inputs)
    assert caught.value.where.endswith("model.yaml network.torch")
    assert caught.value.found == f"forward(ids, mask) and network.inputs {', '.join(inputs)}"
    assert "passed by position" in caught.value.wanted


def test_a_compiled_network_has_its_inputs_checked_by_position_alone(write_model: WriteModel) -> None:
    """TorchScript's forward tells no names to Python."""
    make(write_model, "x", factory="network:scripted")


def test_a_factory_that_makes_no_network_is_refused(write_model: WriteModel) -> None:
    """The message has what it returned."""
    with pytest.raises(BuildError, match="network:nothing returned NoneType"):
        make(write_model, "ids", factory="network:nothing")
