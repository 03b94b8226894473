"""The formulas of the ready metrics, compared with scikit-learn's, SciPy's, and figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import f1_score, ndcg_score, roc_auc_score

from tritonkit.repository.export.ready.detection import Boxes, mean_average_precision
from tritonkit.repository.export.ready.metrics import (
    binary_auc,
    edits,
    f1_of_classes,
    f1_of_columns,
    mean_auc,
    ndcg,
    normalized,
    ranks,
    root_mean_square,
    row_cosines,
    softmax,
    spearman,
)


@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("classes", [2, 5])
def test_f1_of_one_class_each(average: str, classes: int, random: np.random.Generator) -> None:
    """One right class for each item, with a class that is never predicted."""
    labels = random.integers(classes, size=200)
    predicted = np.where(random.random(200) < 0.6, labels, 0)
    expected = f1_score(labels, predicted, average=average)
    assert f1_of_classes(predicted, labels, average) == pytest.approx(expected)


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_f1_of_several_classes_each(average: str, random: np.random.Generator) -> None:
    """Several right classes for each item, and one that no item has."""
    labels = random.random((100, 4)) < [0.5, 0.2, 0.9, 0.0]
    predicted = labels ^ (random.random((100, 4)) < 0.2)
    expected = f1_score(labels, predicted, average=average, zero_division=0)
    assert f1_of_columns(predicted, labels, average) == pytest.approx(expected)


def test_auc_of_two_classes_with_ties(random: np.random.Generator) -> None:
    """Equal scores count half."""
    labels = random.random(100) < 0.4
    scores = np.round(labels + random.normal(size=100), 1)
    assert binary_auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))


def test_auc_of_several_classes(random: np.random.Generator) -> None:
    """Each class against all others, of probabilities."""
    labels = random.integers(3, size=90)
    logits = random.normal(size=(90, 3)) + np.eye(3)[labels]
    chances = softmax(logits)
    expected = roc_auc_score(labels, chances, multi_class="ovr", average="macro")
    assert mean_auc(chances, labels[:, None] == np.arange(3)) == pytest.approx(expected)


def test_softmax_in_float64() -> None:
    """Half precision would round small probabilities to zero; infinite logits give no warning."""
    assert softmax(np.array([[0, 20]], np.float16))[0, 0] == pytest.approx(2.0611536e-9)
    assert np.isnan(softmax(np.array([[np.inf, 0]]))).all()


def test_ranks_and_their_correlation(random: np.random.Generator) -> None:
    """Equal values share their mean rank."""
    left = np.round(random.normal(size=60), 1)
    right = np.round(left + random.normal(size=60), 1)
    assert ranks(left) == pytest.approx(rankdata(left))
    assert spearman(left, right) == pytest.approx(spearmanr(left, right).statistic)
    assert spearman(np.ones(5), np.arange(5)) == 0


@pytest.mark.parametrize("decimals", [6, 0])
@pytest.mark.parametrize("count", [3, 10, 30])
def test_ndcg_with_and_without_ties(count: int, decimals: int, random: np.random.Generator) -> None:
    """Documents of equal score share their places; only the first ten places count."""
    relevance = random.integers(4, size=count)
    scores = np.round(random.normal(size=count), decimals)
    assert ndcg(scores, relevance, 10) == pytest.approx(ndcg_score([relevance], [scores], k=10))


def test_a_constant_score_does_not_profit_from_the_order_of_the_file() -> None:
    """The relevant document comes first in the file; a network that says nothing must not get 1 for it."""
    assert ndcg(np.zeros(20), np.eye(20)[0], 10) < 0.3
    assert ndcg(np.array([np.nan, 0.0]), np.array([1.0, 0.0]), 10) < 1
    assert ndcg(np.arange(3), np.zeros(3), 10) == 0


@pytest.mark.parametrize(
    ("left", "right", "count"),
    [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("aaaa", "aa", 2)],
)
def test_edits(left: str, right: str, count: int) -> None:
    """Insertions, deletions and substitutions."""
    assert edits(left, right) == edits(right, left) == count


def test_edits_of_words() -> None:
    """One substitution and one deletion of six words, the usual example of a word error rate."""
    assert edits(["the", "cat", "sat", "on", "the", "mat"], ["the", "cat", "sit", "on", "mat"]) == 2


def test_normalized_texts() -> None:
    """SQuAD's evaluation also leaves out articles; letters of other scripts stay."""
    assert normalized("The  Cat,  sat!") == "the cat sat"
    assert normalized("The cat: a pet", articles=False) == "cat pet"
    assert normalized("«Ещё раз»") == "ещё раз"


def test_cosines() -> None:
    """Zeros equal zeros; what is not finite is as far as can be."""
    left = np.array([[3, 4], [1, 0], [0, 0], [np.nan, 1], [np.inf, 1]])
    right = np.array([[6, 8], [0, 1], [0, 0], [1, 1], [1, 1]])
    assert row_cosines(left, right).tolist() == pytest.approx([1, 0, 1, -1, -1])


def test_root_mean_square() -> None:
    """Items may differ in size; a value that is not finite is far away, and no error."""
    assert root_mean_square([np.ones(2), np.zeros(1)], [np.zeros(2), np.ones(1)]) == pytest.approx(1)
    assert root_mean_square([np.array([np.nan])], [np.zeros(1)]) > 1e6


def image(*boxes: tuple[float, ...], scores: tuple[float, ...] | None = None) -> Boxes:
    """Boxes of (class, x1, y1, x2, y2)."""
    return Boxes(np.array([box[1:] for box in boxes]).reshape(-1, 4), [int(box[0]) for box in boxes], scores)


def test_precision_of_right_boxes_is_one() -> None:
    """Every object is found where it is, and nothing else."""
    truth = [image((0, 0, 0, 10, 10), (1, 5, 5, 20, 20)), image((0, 1, 1, 4, 4))]
    found = [Boxes(one.boxes, one.classes, np.full(len(one.classes), 0.5)) for one in truth]
    assert mean_average_precision(found, truth) == 1


def test_precision_falls_with_the_overlap() -> None:
    """An overlap of 0.8 counts at the thresholds from 0.5 to 0.8: seven of ten."""
    truth, found = [image((0, 0, 0, 10, 10))], [image((0, 0, 0, 10, 8), scores=(0.9,))]
    assert mean_average_precision(found, truth) == pytest.approx(0.7)


def test_a_missed_object_and_a_wrong_one() -> None:
    """One of two objects is found: recall up to 0.5, that is 51 of the 101 points. A better wrong box halves it."""
    truth = [image((0, 0, 0, 10, 10), (0, 50, 50, 60, 60))]
    assert mean_average_precision([image((0, 0, 0, 10, 10), scores=(0.9,))], truth) == pytest.approx(51 / 101)
    wrong = image((0, 80, 80, 90, 90), (0, 0, 0, 10, 10), scores=(0.95, 0.9))
    assert mean_average_precision([wrong], truth) == pytest.approx(51 / 101 / 2)


def test_an_object_counts_once() -> None:
    """The second box on one object is wrong; the class without an object does not count; nothing found is 0."""
    truth = [image((3, 0, 0, 10, 10), (3, 20, 20, 30, 30))]
    twice = image((3, 0, 0, 10, 10), (3, 0, 0, 10, 10), (3, 20, 20, 30, 30), (7, 0, 0, 5, 5), scores=(0.9, 0.8, 0.7, 1))
    # Precision is 1 up to a recall of 0.5, then 2 / 3.
    assert mean_average_precision([twice], truth) == pytest.approx((51 + 50 * 2 / 3) / 101)
    assert mean_average_precision([image(scores=())], truth) == 0
