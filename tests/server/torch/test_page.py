"""The page about a TorchScript file and a model as somebody wrote it for Triton."""

from __future__ import annotations

import numpy as np

from bench.families.kitchen import Kitchen, Page
from bench.families.recipes import recipes
from tests.server.cookbook.conftest import Answer, assert_equal, batches_of_one


def test_a_torchscript_file_and_a_hand_written_model(place: Kitchen, answers: Answer) -> None:
    """Scores are those of PyTorch, and rules those of their author, for 16 callers at the same time."""
    assert_equal(place, answers, Page.read("torchscript"))
    items = recipes()["torchscript"].prepare(place, True)
    allowed = np.concatenate([reply["allowed"] for reply in answers(place, "rules", batches_of_one(items))])
    sums = np.array([item["x"].sum() for item in items])
    assert (allowed[:, 0] == (sums > 0))[np.abs(sums) > 1e-4].all()
