"""Pages about networks that exist in another format: Keras, TorchScript, Triton's own layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.families.kitchen import Kitchen, Page
from tests.parts import SERVER
from tests.repository.optimize.ready_files import script
from tests.server.cookbook.conftest import Answer, assert_equal

HAS_TORCH = any(SERVER.glob("lib/python3.*/site-packages/torch"))
CONFIG = """
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


@pytest.mark.needs("keras")
def test_a_keras_model(place: Kitchen, answers: Answer) -> None:
    """Labels and scores are those of Keras's own network, for 16 callers at the same time."""
    assert_equal(place, answers, Page.read("keras"))


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not in the server's environment (tritonkit server install --torch)")
def test_a_torchscript_file_and_a_hand_written_model(
    place: Kitchen, answers: Answer, random: np.random.Generator
) -> None:
    """Scores are those of PyTorch, and rules those of their author, for 16 callers at the same time."""
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).eval()
    (place.folder / "scores.pt").write_bytes(script(network))
    write_rules(place.folder / "rules")
    place.cook(Page.read("torchscript"))
    items = random.standard_normal((64, 16), np.float32)
    requests = [{"x": item[None]} for item in items]
    with torch.inference_mode():
        expected = network(torch.from_numpy(items)).numpy()
    scores = np.concatenate([reply["output_0"] for reply in answers(place, "scores", requests)])
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    allowed = np.concatenate([reply["allowed"] for reply in answers(place, "rules", requests)])
    sums = items.sum(axis=1)
    assert (allowed[:, 0] == (sums > 0))[np.abs(sums) > 1e-4].all()


def write_rules(folder: Path) -> None:
    """A model as somebody wrote it for Triton."""
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(RULES)
    (folder / "config.pbtxt").write_text(CONFIG)
