"""Recipes of the pages about what exists already: a TorchScript file, a model of Triton's, a library's two versions."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.families.recipes import Answer, Item, Recipe, from_json

if TYPE_CHECKING:
    from bench.families.kitchen import Kitchen
    from tritonkit.client import Reply

__all__ = ["NAMES", "RECIPES", "RULES", "RULES_CONFIG"]

RULES_CONFIG = """
backend: "python"
max_batch_size: 16
input [{ name: "x" data_type: TYPE_FP32 dims: [ 16 ] }]
output [{ name: "allowed" data_type: TYPE_BOOL dims: [ 1 ] }]
dynamic_batching {}
"""
RULES = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("allowed", x.sum(axis=1, keepdims=True) > 0)])
            for x in (pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests)
        ]
"""
NAMES = ("New York", "NEW YORK", "new  york!", "York", "Newark", "São Paulo", "sao paulo", "")
_COLUMNS, _ITEMS = 16, 64
_SCORE = "import json, sys; from rapidfuzz import fuzz; print([fuzz.WRatio(*pair) for pair in json.load(sys.stdin)])"


@contextlib.contextmanager
def _old() -> Iterator[None]:
    """PyTorch warns that TorchScript is deprecated; people have such files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def scores(place: Kitchen, small: bool) -> list[Item]:
    """A TorchScript file, a model in Triton's layout, and rows of numbers."""
    import torch

    torch.manual_seed(0)
    width = 8 if small else 1024
    layers = [torch.nn.Linear(_COLUMNS, width), torch.nn.GELU(), torch.nn.Linear(width, width), torch.nn.GELU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(width, 3)).eval()
    with _old():
        torch.jit.save(torch.jit.trace(network, torch.zeros(2, _COLUMNS)), place.folder / "scores.pt")
    rules = place.folder / "rules"
    (rules / "1").mkdir(parents=True, exist_ok=True)
    (rules / "1" / "model.py").write_text(RULES)
    (rules / "config.pbtxt").write_text(RULES_CONFIG)
    return [{"x": row} for row in np.random.default_rng(5).standard_normal((_ITEMS, _COLUMNS), np.float32)]


def scored(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """PyTorch's own answers."""
    import torch

    with _old(), torch.inference_mode():
        network = torch.jit.load(folder / "scores.pt")
        return [Answer(row) for row in network(torch.from_numpy(np.stack([item["x"] for item in items]))).numpy()]


def pairs(place: Kitchen, small: bool) -> list[Item]:
    """Every pair of some names."""
    return [{"pair": (one, other)} for one in NAMES for other in NAMES]


def alike(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """The library's own scores, in a process that finds the version which the model has."""
    found = folder / "model_repository" / "new" / "1" / "site-packages"
    made = subprocess.run(
        [sys.executable, "-c", _SCORE],
        input=json.dumps([item["pair"] for item in items]),
        env=os.environ | {"PYTHONPATH": str(found)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [Answer([score]) for score in json.loads(made.stdout)]


def first(reply: Reply) -> Answer:
    """The scores of the network, whose output has no name of its own."""
    return Answer(reply["output_0"].ravel())


def score(reply: Reply) -> Answer:
    """The one score."""
    return Answer(reply["score"].ravel())


RECIPES = {
    "torchscript": Recipe(
        "scores", ".", "ready_made:Script", scores, scored, first, from_json, at_most=1e-4, steps=False
    ),
    "two-versions": Recipe(
        "new", "model_repository/new/1", "ready_made:Pairs", pairs, alike, score, from_json, at_most=1e-3, steps=False
    ),
}
