"""Modules whose inputs and outputs are not plain tensors in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize import build, plan
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.scaffold import new_from_torch

NETWORK = '''
import dataclasses
from collections import OrderedDict, namedtuple

import torch

Pair = namedtuple("Pair", ["low", "high"])

class Cache:
    pass

@dataclasses.dataclass
class Outputs:
    boxes: torch.Tensor
    loss: torch.Tensor = None

class Output(OrderedDict):
    """Like those of transformers."""

def make(value, signature="x"):
    scope = {"torch": torch}
    exec(f"def forward(self, {signature}): return self.value(locals())", scope)
    kind = type("Net", (torch.nn.Module,), {"forward": scope["forward"]})
    net = kind()
    net.value = value
    return net

def nested():
    return make(lambda v: {"logits": v["x"], "heads": [v["x"] + 1, (v["x"] + 2, None)], "cache": Cache()})
def hugging():
    return make(lambda v: Output(logits=v["x"], past_key_values=((v["x"], v["x"]),)))
def named():
    return make(lambda v: Pair(v["x"], v["x"] + 1))
def data():
    return make(lambda v: Outputs(boxes=v["x"]))
def by_name():
    return make(lambda v: v["x"] - v["mask"], "x, *, mask, scale=None")
def behind():
    return make(lambda v: v["x"] - v["mask"], "x, cache=None, mask=None")
def anything():
    return make(lambda v: v["inputs"]["x"] - v["inputs"]["mask"], "**inputs")
def images():
    return make(lambda v: torch.stack([i.sum() for i in v["x"] + []]), "x: list[torch.Tensor]")
def needs_more():
    return make(lambda v: v["x"] + v["size"], "x, size")
'''
SPEC = """
name: net
network:
  torch: network:{factory}
  inputs: {{{inputs}}}
  outputs: {{{outputs}}}
"""
TENSOR = "{dtype: FP32, shape: [4]}"


def spec_text(factory: str, inputs: str, outputs: str) -> str:
    """A spec with inputs and outputs of four numbers."""
    named = [", ".join(f"{n}: {TENSOR}" for n in names.split()) for names in (inputs, outputs)]
    return SPEC.format(factory=factory, inputs=named[0], outputs=named[1])


@pytest.mark.parametrize(
    ("factory", "names", "left_out"),
    [
        (
            "nested",
            ["logits", "heads_0", "heads_1_0"],
            ["heads_1_1 is None, and left out", "cache is of the type Cache, and left out"],
        ),
        ("hugging", ["logits"], ["past_key_values is of the type tuple, and left out"]),
        ("named", ["low", "high"], []),
        ("data", ["boxes"], ["loss is None, and left out"]),
    ],
)
def test_nested_outputs_become_named_tensors(
    root: Path, tmp_path: Path, factory: str, names: list[str], left_out: list[str]
) -> None:
    """`new` writes their names; caches and None are left out, and said."""
    (tmp_path / "network.py").write_text(NETWORK)
    folder = new_from_torch(root, "net", f"network:{factory}", ["x=FP32:4"], None, tmp_path)
    assert list(load(folder, root).model.network.outputs) == names
    text = (folder / "model.yaml").read_text()
    assert all(f"# output {line}" in text for line in left_out)


@pytest.mark.parametrize(
    ("factory", "inputs", "outputs", "added"),
    [
        ("nested", "x", "heads_0 logits", [1, 0]),
        ("nested", "x", "a b c", [0, 1, 2]),
        ("named", "x", "high", [1]),
        ("by_name", "x mask", "y", [-1]),
        ("behind", "x mask", "y", [-1]),
        ("anything", "x mask", "y", [-1]),
    ],
)
def test_outputs_are_chosen_by_name_and_inputs_passed_by_name(
    root: Path, write_model: WriteModel, factory: str, inputs: str, outputs: str, added: list[int]
) -> None:
    """A module around it takes tensors by position and gives a row of them, as exporters want it."""
    import torch

    spec = write_model(spec_text(factory, inputs, outputs), network__py=NETWORK)
    job = job_of(spec, BuildCache(root / "cache"))
    x, ones = torch.zeros(2, 4), torch.ones(2, 4)
    tensors = job.module()(x, ones) if "mask" in inputs else job.module()(x)
    tensors = tensors if isinstance(tensors, tuple) else (tensors,)
    assert [int(tensor[0, 0]) for tensor in tensors] == added
    assert list(job.reference.outputs[0]) == outputs.split()


@pytest.mark.parametrize(
    ("factory", "described", "call"),
    [("images", "x: list[torch.Tensor]", "[x[0]]"), ("needs_more", "x, size", "x, ...")],
)
def test_a_module_of_other_values_is_told_with_a_wrapper(
    root: Path, write_model: WriteModel, factory: str, described: str, call: str
) -> None:
    """A list, or an argument that is not given: the message has the class to write."""
    spec = write_model(spec_text(factory, "x", "y"), network__py=NETWORK)
    with pytest.raises(BuildError) as caught:
        job_of(spec, BuildCache(root / "cache")).module()
    assert "torch: network:wrapped" in caught.value.todo
    assert f"forward({described})" in caught.value.details
    assert f"self.network = {factory}()" in caught.value.details
    assert f"self.network({call})" in caught.value.details
    assert "def wrapped():" in caught.value.details


@pytest.mark.slow
def test_bf16_names_and_nesting_survive_the_export(root: Path, write_model: WriteModel) -> None:
    """One module of all: inputs by name alone, one of them BF16, nested outputs, one of them None."""
    code = (
        "import torch\nclass Net(torch.nn.Module):\n"
        "    def forward(self, *, x, gain):\n"
        "        return {'all': {'y': x * 2, 'none': None}, 'wide': [(gain.float() * 2).bfloat16()]}\n"
        "def build():\n    return Net()\n"
    )
    text = f"""
name: net
network:
  torch: network:build
  inputs: {{x: {TENSOR}, gain: {{dtype: BF16, shape: [4]}}}}
  outputs: {{all_y: {TENSOR}, wide_0: {{dtype: BF16, shape: [4]}}}}
"""
    spec, cache = write_model(text, network__py=code), BuildCache(root / "cache")
    artifact = build(plan(spec, cache), cache)
    assert "output all_none is None, and left out" in artifact.notes
    session = open_session(artifact.folder / "model.onnx", "it")
    batch: dict[str, Any] = {"x": np.ones((5, 4), "f"), "gain": np.full((5, 4), 1.5, "f")}
    outputs = run_session(session, batch, "it")
    assert (outputs["all_y"] == 2).all()
    assert (outputs["wide_0"] == 3).all()
