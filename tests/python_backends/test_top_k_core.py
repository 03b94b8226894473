"""top_k without Triton."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_scores import check_logits, read_labels
from top_k_core import Settings, top_k

LABELS = np.array([b"a", b"b", b"c", b"d"], dtype=object)


def ranked(logits: np.ndarray, k: int, softmax: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The labels and scores of logits."""
    outputs = top_k(logits, LABELS, Settings(k, softmax))
    assert list(outputs) == ["label", "score"]
    return outputs["label"], outputs["score"]


def test_best_first_with_probabilities() -> None:
    """Labels come best first; scores are the softmax over all classes, not over the k best."""
    logits = np.array([[0, 3, 1, 2], [9, 0, 0, 0]], dtype=np.float32)
    labels, scores = ranked(logits, k=2)
    assert labels.tolist() == [[b"b", b"d"], [b"a", b"b"]]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :2], rtol=1e-6)
    assert scores.dtype == np.float32


def test_scores_as_they_came() -> None:
    """Without softmax the scores are the logits."""
    logits = np.array([[0, 3, 1, 2]], dtype=np.float32)
    _, scores = ranked(logits, k=3, softmax=False)
    assert scores.tolist() == [[3, 2, 1]]


def test_ties_go_to_the_lower_index() -> None:
    """Equal scores keep the order of the labels file."""
    labels, _ = ranked(np.ones((1, 4), dtype=np.float32), k=4)
    assert labels.tolist() == [[b"a", b"b", b"c", b"d"]]


def test_softmax_is_stable() -> None:
    """Logits around 1e30 and masked ones (-inf) give probabilities, not NaN."""
    logits = np.array([[1e30, 1e30, -np.inf, -1e30]], dtype=np.float32)
    check_logits(logits, 4, True)
    _, scores = ranked(logits, k=4)
    np.testing.assert_allclose(scores, [[0.5, 0.5, 0, 0]])


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=4, max_size=4), st.integers(min_value=1, max_value=4))
def test_scores_fall_and_sum_to_at_most_one(row: list[float], k: int) -> None:
    """For any finite logits the scores are sorted probabilities of k different labels."""
    labels, scores = ranked(np.array([row], dtype=np.float32), k=k)
    assert len(set(labels[0])) == k
    assert (np.diff(scores[0]) <= 0).all()
    assert 0 < scores.sum() <= 1 + 1e-5


@pytest.mark.parametrize(
    ("row", "softmax", "message"),
    [
        ([0, np.nan, 1, 2], True, "item 1: the largest logit is nan"),
        ([0, np.nan, 1, 2], False, "item 1: the largest logit is nan"),
        ([0, np.inf, 1, 2], True, "item 1: the largest logit is inf"),
        ([-np.inf] * 4, True, "item 1: the largest logit is -inf"),
    ],
)
def test_rows_that_cannot_be_ranked_are_refused(row: list[float], softmax: bool, message: str) -> None:
    """NaN always, and with softmax a row without a finite maximum; the message names the item."""
    logits = np.array([[0, 1, 2, 3], row], dtype=np.float32)
    with pytest.raises(ValueError, match=message):
        check_logits(logits, 4, softmax)


def test_infinite_score_can_be_ranked_without_softmax() -> None:
    """Infinity is only a problem for probabilities."""
    check_logits(np.array([[0, np.inf, 1, 2]], dtype=np.float32), 4, False)


def test_width_must_match_the_labels() -> None:
    """A network with another number of classes than labels is refused."""
    with pytest.raises(ValueError, match="found 3 logits, wanted 4"):
        check_logits(np.zeros((1, 3), dtype=np.float32), 4, True)


def test_labels_file(tmp_path: Path) -> None:
    """Lines become bytes; Windows line ends and a missing last line end do not matter."""
    path = tmp_path / "labels.txt"
    path.write_bytes("null\r\neins\r\nzwölf".encode())
    assert read_labels(path, 3).tolist() == [b"null", b"eins", "zwölf".encode()]
    path.write_bytes(b"a\nb\n")
    assert read_labels(path, 1).tolist() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n\nb\n", "line 2 is empty"),
        (b"", "line 1 is empty"),
        (b"a\nb\n", "found 2 labels, wanted at least 3"),
        (b"a\n\xff\nb\n", "not UTF-8 at byte 2"),
    ],
)
def test_unfit_labels_file_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    """Empty lines, other encodings and too few labels are named."""
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_labels(path, 3)


def test_k_must_be_positive() -> None:
    """k counts from 1."""
    with pytest.raises(ValueError, match="k: found 0"):
        Settings(k=0)
