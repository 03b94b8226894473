"""Ready metrics of classes: scores of them, their numbers and names, and labels that do not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from tests.conftest import WriteModel
from tests.repository.export.ready.judging import judged, labelled, one_hot, rows, text
from tritonkit.errors import BuildError


def test_accuracy_by_item(write_model: WriteModel) -> None:
    """One score for each item, so that the drop has an interval; the reference is measured too."""
    spec = labelled(write_model, "accuracy", 0, 1, 2, 2)
    result = judged(spec, {"y": one_hot(0, 1, 2, 1)}, {"y": one_hot(0, 1, 2, 2)})
    assert (result.name, result.value, result.reference) == ("accuracy", 0.75, 1.0)
    assert result.items is not None
    assert result.items[0].tolist() == [1, 1, 1, 0]


def test_names_of_classes(write_model: WriteModel) -> None:
    """Labels are names, numbers, or numbers that are names themselves."""
    samples = "{jsonl: a.jsonl, classes: c.txt}"
    for names, labels in (("cat\ndog\n7\n", ["cat", "dog", "7", 1]), ("3\n1\n2\n", [3, 1, 2, 1])):
        lines = rows(*(f'"label": "{label}"' if isinstance(label, str) else f'"label": {label}' for label in labels))
        spec = write_model(text("accuracy", samples), m__onnx=b"", a__jsonl=lines, c__txt=names)
        assert judged(spec, {"y": one_hot(0, 1, 2, 1)}).value == 1.0


@pytest.mark.parametrize(
    ("labels", "message", "wanted"),
    [
        ([0, 3], "a.jsonl:2, label: the class 3 has the number 3", "0 to 2"),
        ([0, "dgo"], "a.jsonl:2, label: there is no class 'dgo'", "'dog'"),
        ([0, 1.5], "a.jsonl:2, label: there is no class '1.5'", ""),
        ([0, None], "a.jsonl:2, label: it is empty", ""),
        ([0, [0, 1, 2, 3]], "a.jsonl:2, label: the label has the shape [4]", "one class for each place"),
        ([0, [[0, 1], [2]]], "a.jsonl:2, label: its lists have different lengths", "one class for each place"),
        ([0, "--1"], "a.jsonl:2, label: there is no class '--1'", ""),
        ([0, "²"], "a.jsonl:2, label: there is no class '²'", ""),
        ([[0], [-1]], "a.jsonl:2, label: there is no class -1", "0 to 2"),
        ([[0], [[1]]], "a.jsonl:2, label: there is no class '[1]'", ""),
    ],
)
def test_labels_that_are_none(write_model: WriteModel, labels: list[object], message: str, wanted: str) -> None:
    """The error names the row, and the class that was probably meant."""
    lines = rows(*(f'"label": {json.dumps(label)}' for label in labels))
    samples = "{jsonl: a.jsonl, classes: c.txt}"
    spec = write_model(text("accuracy", samples), m__onnx=b"", a__jsonl=lines, c__txt="cat\ndog\ncow\n")
    with pytest.raises(BuildError) as caught:
        judged(spec, {"y": one_hot(0, 1)})
    assert message in caught.value.found
    assert wanted in caught.value.wanted


@pytest.mark.parametrize(
    ("label", "message"),
    [(3, "the class 3 has the number 3"), (-1, "there is no class -1"), (["cat"], "it is a list")],
)
def test_labels_beyond_the_names_of_an_output_of_texts(write_model: WriteModel, label: object, message: str) -> None:
    """A number stands for a name in the file, which has no other ones."""
    samples = "{jsonl: a.jsonl, classes: c.txt}"
    lines = rows('"label": "dog"', f'"label": {json.dumps(label)}')
    spec = write_model(text("accuracy", samples), m__onnx=b"", a__jsonl=lines, c__txt="cat\ndog\ncow\n")
    with pytest.raises(BuildError, match=f"a.jsonl:2, label: {message}"):
        judged(spec, {"y": np.array([["dog"], ["cow"]], object)})


@pytest.mark.parametrize(("name", "right"), [("accuracy", 0.0), ("top_5", 0.0), ("f1_macro", 0.0), ("f1_micro", 0.0)])
def test_an_output_without_a_text_is_wrong(write_model: WriteModel, name: str, right: float) -> None:
    """A step that finds no class gives an empty list of names."""
    spec = labelled(write_model, name, "cat", "dog")
    assert judged(spec, {"y": np.zeros((2, 0), object)}).value == right


def test_an_empty_line_in_a_file_of_names(write_model: WriteModel) -> None:
    """The names after it would have the numbers of others."""
    samples = "{jsonl: a.jsonl, classes: c.txt}"
    spec = write_model(text("accuracy", samples), m__onnx=b"", a__jsonl=rows('"label": 0'), c__txt="cat\n\ndog\n")
    with pytest.raises(BuildError) as caught:
        judged(spec, {"y": one_hot(0)})
    assert caught.value.where.endswith("c.txt:2")
    assert caught.value.found == "the line is empty"


def test_tokens_and_pixels(write_model: WriteModel) -> None:
    """Labels below 0 do not count; classes may lie on the first axis of an item, as in segmentation."""
    spec = labelled(write_model, "accuracy", [0, 1, -100], [2, -100, -100])
    tokens = np.stack([one_hot(0, 2, 0), one_hot(2, 0, 0)])
    assert judged(spec, {"y": tokens}).value == pytest.approx(2 / 3)
    spec = labelled(write_model, "accuracy", [[0, 1], [2, 2]], [[0, 0], [0, 1]])
    pixels = np.moveaxis(one_hot(0, 1, 2, 2, 0, 0, 0, 0).reshape(2, 2, 2, 3), 3, 1)
    assert judged(spec, {"y": pixels}).value == pytest.approx(7 / 8)


def test_one_channel_decides_between_two_classes(write_model: WriteModel) -> None:
    """Segmentation of one object: a score above the middle is class 1."""
    spec = labelled(write_model, "accuracy", [[0, 1], [1, 1]])
    pixels = np.array([[[[-1, 2], [3, -1]]]], np.float32)
    assert judged(spec, {"y": pixels}).value == 0.75
    assert judged(labelled(write_model, "auc", [[0, 1], [1, 1]]), {"y": pixels}).value == pytest.approx(2.5 / 3)


def test_one_score_for_two_classes(write_model: WriteModel) -> None:
    """The middle is 0 for logits and 0.5 for probabilities."""
    spec = labelled(write_model, "accuracy", 0, 1, 1)
    assert judged(spec, {"y": np.array([[-2], [0.4], [3]], np.float32)}).value == 1.0
    assert judged(spec, {"y": np.array([0.1, 0.4, 0.9], np.float32)}).value == pytest.approx(2 / 3)


def test_a_network_that_gives_the_class_itself(write_model: WriteModel) -> None:
    """Whole numbers are classes, texts their names; a NaN is never right."""
    spec = labelled(write_model, "accuracy", 0, 2)
    assert judged(spec, {"y": np.array([[0], [1]], np.int64)}).value == 0.5
    spec = labelled(write_model, "accuracy", "cat", "dog")
    assert judged(spec, {"y": np.array([["cat"], ["cat"]], object)}).value == 0.5
    spec = labelled(write_model, "accuracy", 0, 0)
    assert judged(spec, {"y": np.array([[np.nan, 1], [1, 0]], np.float32)}).value == 0.5


@pytest.mark.parametrize("name", ["f1", "f1_macro", "f1_micro"])
def test_f1_says_which(write_model: WriteModel, name: str, random: np.random.Generator) -> None:
    """`f1` alone is macro, and is called so."""
    labels = random.integers(3, size=40)
    predicted = np.where(random.random(40) < 0.7, labels, 0)
    result = judged(labelled(write_model, name, *labels.tolist()), {"y": one_hot(*predicted)})
    average = "micro" if name == "f1_micro" else "macro"
    assert result.value == pytest.approx(f1_score(labels, predicted, average=average))
    assert result.name == f"f1_{average}"


def test_several_labels_for_each_row(write_model: WriteModel) -> None:
    """They are names, or 0 and 1 for each class."""
    truth = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], bool)
    outputs = {"y": np.where([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 1.5, -1.5).astype(np.float32)}
    expected = f1_score(truth, outputs["y"] > 0, average="macro", zero_division=0)
    spec = labelled(write_model, "f1", *truth.astype(int).tolist())
    assert judged(spec, outputs).value == pytest.approx(expected)
    lines = rows('"label": ["a", "c"]', '"label": ["b"]', '"label": []')
    samples = "{jsonl: a.jsonl, classes: c.txt}"
    spec = write_model(text("f1", samples), m__onnx=b"", a__jsonl=lines, c__txt="a\nb\nc\n")
    assert judged(spec, outputs).value == pytest.approx(expected)


def test_auc_of_two_and_of_three_classes(write_model: WriteModel, random: np.random.Generator) -> None:
    """From logits as scikit-learn computes it from probabilities."""
    labels = random.integers(2, size=50)
    logits = random.normal(size=(50, 2)).astype(np.float32)
    result = judged(labelled(write_model, "auc", *labels.tolist()), {"y": logits})
    assert result.value == pytest.approx(roc_auc_score(labels, logits[:, 1] - logits[:, 0]))
    labels = random.integers(3, size=50)
    logits = random.normal(size=(50, 3)).astype(np.float32)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    result = judged(labelled(write_model, "auc", *labels.tolist()), {"y": logits})
    assert result.value == pytest.approx(roc_auc_score(labels, chances, multi_class="ovr"))
    with pytest.raises(BuildError, match="auc of rows of one class"):
        judged(labelled(write_model, "auc", 1, 1), {"y": logits[:2]})


def test_auc_of_a_variant_is_read_as_the_reference_is(write_model: WriteModel, random: np.random.Generator) -> None:
    """Logits of a variant may happen to look like probabilities, and probabilities of one to miss a sum of 1."""
    labels = [0, 1, 2, 0, 1, 2]
    spec = labelled(write_model, "auc", *labels)
    logits = random.normal(size=(6, 3)).astype(np.float32)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    other = random.dirichlet((1, 1, 1), 6).astype(np.float32)

    def area(scores: np.ndarray) -> float:
        return float(np.mean([roc_auc_score(np.equal(labels, c), scores[:, c]) for c in range(3)]))

    softened = np.exp(other) / np.exp(other).sum(axis=1, keepdims=True)
    assert area(softened) != pytest.approx(area(other))
    assert judged(spec, {"y": other}, {"y": logits}).value == pytest.approx(area(softened))
    assert judged(spec, {"y": other * 0.9}, {"y": chances}).value == pytest.approx(area(other))


def test_auc_of_half_precision(write_model: WriteModel) -> None:
    """Logits far apart keep their order, which float16 would round away in a softmax."""
    logits = np.array([[0, 20, 9], [0, 21, 9], [30, 0, 1], [31, 0, 1], [0, 1, 30], [0, 1, 31]], np.float16)
    spec = labelled(write_model, "auc", 0, 1, 0, 0, 2, 2)
    assert judged(spec, {"y": logits}).value == judged(spec, {"y": logits.astype(np.float64)}).value


def test_top_5_of_equal_scores(write_model: WriteModel) -> None:
    """A network whose answers are all the same names the first five classes, and no more."""
    spec = labelled(write_model, "top_5", *range(8))
    result = judged(spec, {"y": np.zeros((8, 8), np.float32)})
    assert result.value == 5 / 8
    assert result.items is not None
    assert result.items[0].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_top_5(write_model: WriteModel) -> None:
    """The right class is among the five with the highest scores."""
    scores = np.tile(np.arange(8, dtype=np.float32), (2, 1))
    assert judged(labelled(write_model, "top_5", 3, 2), {"y": scores}).value == 0.5
    with pytest.raises(BuildError, match="top_5 of an output with 3 classes"):
        judged(labelled(write_model, "top_5", 0), {"y": one_hot(0)})
