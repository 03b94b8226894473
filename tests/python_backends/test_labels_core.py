"""labels without Triton."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from labels_core import Settings, label_logits
from step_scores import sigmoid, softmax

NAMES = np.array(["joy", "Ärger 🙂", "fear"], dtype=object)
NAMES[:] = [name.encode() for name in NAMES]
LOGITS = np.array([[1, 3, 2], [-5, -4, -6], [2, 2, 0]], np.float32)


def test_the_best_label_of_one_class() -> None:
    """Softmax by default; ties go to the lower index."""
    outputs = label_logits(LOGITS, NAMES, Settings(2))
    assert outputs["label"].tolist() == [
        ["Ärger 🙂".encode(), b"fear"],
        ["Ärger 🙂".encode(), b"joy"],
        [b"joy", "Ärger 🙂".encode()],
    ]
    np.testing.assert_allclose(outputs["score"][0], softmax(LOGITS)[0, [1, 2]])
    assert outputs["count"].tolist() == [[2], [2], [2]]
    assert (outputs["label"].dtype, outputs["score"].dtype, outputs["count"].dtype) == (object, np.float32, np.int32)


def test_several_labels_above_a_threshold() -> None:
    """Labels below it leave the rest of an output empty; an item may have none."""
    outputs = label_logits(LOGITS, NAMES, Settings(3, "sigmoid", 0.75))
    assert outputs["count"].tolist() == [[2], [0], [2]]
    assert outputs["label"].tolist()[0] == ["Ärger 🙂".encode(), b"fear", b""]
    assert outputs["label"].tolist()[1] == [b"", b"", b""]
    np.testing.assert_allclose(outputs["score"][0], [*sigmoid(LOGITS)[0, [1, 2]], 0])
    assert outputs["score"][1].tolist() == [0, 0, 0]


def test_scores_as_they_are() -> None:
    """Without a function scores may be negative, and the threshold 0 leaves none out."""
    outputs = label_logits(LOGITS, NAMES, Settings(3, "none"))
    assert outputs["score"].tolist() == [[3, 2, 1], [-4, -5, -6], [2, 2, 0]]
    assert outputs["count"].tolist() == [[3], [3], [3]]
    assert label_logits(LOGITS, NAMES, Settings(3, "none", -5.0))["count"].tolist() == [[3], [2], [3]]


def test_a_certain_score_keeps_the_order_of_logits() -> None:
    """Sigmoids of large logits are equal; the larger logit still is first."""
    outputs = label_logits(np.array([[100, 300, 200]], np.float32), NAMES, Settings(3, "sigmoid"))
    assert outputs["label"].tolist() == [["Ärger 🙂".encode(), b"fear", b"joy"]]
    assert outputs["score"].tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"k": 0}, "k: found 0, wanted at least 1"),
        ({"function": "tanh"}, "function: found 'tanh', wanted one of softmax, sigmoid, none"),
        ({"threshold": float("nan")}, "threshold: found nan"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)
