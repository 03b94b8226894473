"""Ready metrics on a network's outputs: the output that each measures, the right answers, and what does not fit."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn.metrics import f1_score, roc_auc_score

from tests.conftest import WriteModel
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.ready import vector_scores
from tritonkit.repository.export.samples import Batch, read_samples
from tritonkit.repository.export.scores import Score, score, score_rest
from tritonkit.repository.modelspec import Spec

X = Signature((TensorInfo("x", "FP32", (2,)),), (), batched=True)
RANDOM = np.random.default_rng(0)


def text(metric: str, samples: str = "{jsonl: a.jsonl}", more: str = "") -> str:
    """A spec with this metric."""
    return f"name: net\nnetwork: {{onnx: m.onnx}}\nquality:\n  samples: {samples}\n  metric: {metric}\n{more}"


def rows(*values: str) -> str:
    """JSON lines: `x`, and more of each."""
    return "".join(f'{{"x": [{number}, 0], {value}}}\n' for number, value in enumerate(values))


def judged(spec: Spec, outputs: Batch, reference: Batch | None = None) -> Score:
    """The first metric of one batch of outputs."""
    samples = read_samples(spec, X)
    metric = spec.model.quality.metric
    return score(spec, metric, "quality.metric", [outputs], [reference or outputs], True, samples)


def labelled(write_model: WriteModel, metric: str, *labels: object, more: str = "", **files: str) -> Spec:
    """A spec whose rows have these labels."""
    lines = rows(*(f'"label": {json.dumps(label)}' for label in labels))
    return write_model(text(metric, more=more), m__onnx=b"", a__jsonl=lines, **files)


def one_hot(*classes: int, width: int = 3) -> np.ndarray:
    """Scores that are highest for these classes."""
    return np.eye(width, dtype=np.float32)[list(classes)] * 4 - 2


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


@pytest.mark.parametrize(
    ("metric", "labels", "outputs", "value"),
    [
        ("accuracy", np.array([0, 1], np.int64), one_hot(0, 2), 0.5),
        ("accuracy", np.array([[0], [1]]), np.array([[-1.0], [1.0]], np.float32), 1.0),
        ("accuracy", np.array(["cat", "dog"]), np.array([["cat"], ["cat"]], object), 0.5),
        ("accuracy", np.array([b"cat", "Käse".encode()]), np.array([["cat"], ["Käse"]], object), 1.0),
        ("exact_match", np.array(["yes", "no"]), np.array([["yes"], ["yes"]], object), 0.5),
        ("exact_match", np.array([["yes", "ja"], ["no", "nein"]]), np.array([["ja"], ["nein"]], object), 1.0),
        ("rmse", np.array([1.0, 3.0]), np.array([[1], [1]], np.float32), 2**0.5),
    ],
)
def test_right_answers_as_arrays(
    write_model: WriteModel, metric: str, labels: np.ndarray, outputs: np.ndarray, value: float
) -> None:
    """Arrays of numpy give what lists give, with bytes as texts."""
    stream = io.BytesIO()
    np.savez(stream, x=np.zeros((2, 2), np.float32), label=labels)
    spec = write_model(text(metric, "{npz: a.npz}"), m__onnx=b"", a__npz=stream.getvalue())
    assert judged(spec, {"y": outputs}).value == pytest.approx(value)


def test_a_missing_column_names_those_that_are_there(write_model: WriteModel) -> None:
    """Neither a usual name nor the one in the spec."""
    spec = write_model(text("accuracy"), m__onnx=b"", a__jsonl=rows('"answer": 1', '"answer": 2'))
    with pytest.raises(BuildError, match=r"no right answers, which accuracy needs: a.jsonl has 'x', 'answer'"):
        judged(spec, {"y": one_hot(0, 1)})
    spec = write_model(text("{name: accuracy, labels: anser}"), m__onnx=b"", a__jsonl=rows('"answer": 1'))
    with pytest.raises(BuildError, match="no column 'anser' for the right answers; it has 'x', 'answer'"):
        judged(spec, {"y": one_hot(0)})


def test_samples_of_a_function_have_no_labels(write_model: WriteModel) -> None:
    """A metric that needs them says so; one that compares with the reference works."""
    data = "import numpy as np\ndef given(): return [{'x': np.ones((2, 2), np.float32)}]\n"
    outputs = {"y": np.array([[3, 4], [1, 0]], np.float32)}
    spec = write_model(text("accuracy", "data:given"), m__onnx=b"", data__py=data)
    with pytest.raises(BuildError, match="they come from a function"):
        judged(spec, outputs)
    spec = write_model(text("cosine", "data:given"), m__onnx=b"", data__py=data)
    assert judged(spec, outputs, {"y": np.array([[6, 8], [0, 1]], np.float32)}).value == pytest.approx(0.5)


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
def test_f1_says_which(write_model: WriteModel, name: str) -> None:
    """`f1` alone is macro, and is called so."""
    labels = RANDOM.integers(3, size=40)
    predicted = np.where(RANDOM.random(40) < 0.7, labels, 0)
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


def test_auc_of_two_and_of_three_classes(write_model: WriteModel) -> None:
    """From logits as scikit-learn computes it from probabilities."""
    labels = RANDOM.integers(2, size=50)
    logits = RANDOM.normal(size=(50, 2)).astype(np.float32)
    result = judged(labelled(write_model, "auc", *labels.tolist()), {"y": logits})
    assert result.value == pytest.approx(roc_auc_score(labels, logits[:, 1] - logits[:, 0]))
    labels = RANDOM.integers(3, size=50)
    logits = RANDOM.normal(size=(50, 3)).astype(np.float32)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    result = judged(labelled(write_model, "auc", *labels.tolist()), {"y": logits})
    assert result.value == pytest.approx(roc_auc_score(labels, chances, multi_class="ovr"))
    with pytest.raises(BuildError, match="auc of rows of one class"):
        judged(labelled(write_model, "auc", 1, 1), {"y": logits[:2]})


def test_auc_of_a_variant_is_read_as_the_reference_is(write_model: WriteModel) -> None:
    """Logits of a variant may happen to look like probabilities, and probabilities of one to miss a sum of 1."""
    labels = [0, 1, 2, 0, 1, 2]
    spec = labelled(write_model, "auc", *labels)
    logits = RANDOM.normal(size=(6, 3)).astype(np.float32)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    other = RANDOM.dirichlet((1, 1, 1), 6).astype(np.float32)

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


def test_word_and_character_errors(write_model: WriteModel) -> None:
    """Less is better, and a drop is a rise."""
    outputs = {"y": np.array([["the cat sit on mat"], ["Yes."]], object)}
    labels = ("the cat sat on the mat", "yes")
    result = judged(labelled(write_model, "wer", *labels), outputs)
    assert (result.value, result.less_is_better) == (pytest.approx(3 / 7), True)
    assert judged(labelled(write_model, "{name: wer, normalize: true}", *labels), outputs).value == pytest.approx(2 / 7)
    assert judged(labelled(write_model, "cer", "ab", "Yes."), outputs).value > 1
    worse, sentence = result.change_to(Score("wer", 0.5, 0.4, less_is_better=True))
    assert worse == pytest.approx(0.5 - 3 / 7)
    assert sentence.startswith("wer rises from 0.4286")


def test_exact_match_with_several_right_answers(write_model: WriteModel) -> None:
    """Any of them counts; with `normalize` as SQuAD's evaluation compares."""
    outputs = {"y": np.array([["the Eiffel Tower"], ["1889"]], object)}
    labels = (["Eiffel tower", "Tour Eiffel"], "1889")
    assert judged(labelled(write_model, "exact_match", *labels), outputs).value == 0.5
    assert judged(labelled(write_model, "{name: exact_match, normalize: true}", *labels), outputs).value == 1.0


def test_pairs_are_compared_by_their_cosine(write_model: WriteModel) -> None:
    """Two vectors of a row give one similarity, whose rank correlation with the right one counts."""
    lines = "".join(
        f'{{"a": [1, 0], "b": [{x}, {y}], "label": {n}}}\n' for x, y, n in ((1, 0, 5), (1, 1, 3), (0, 1, 0))
    )
    samples = "{jsonl: a.jsonl, pairs: {x: [a, b]}}"
    spec = write_model(text("spearman", samples), m__onnx=b"", a__jsonl=lines)
    [batch] = read_samples(spec, X).batches
    assert batch["x"].shape == (6, 2)
    assert judged(spec, {"y": batch["x"]}).value == pytest.approx(1)
    assert judged(spec, {"y": batch["x"][::-1].copy()}).value == pytest.approx(-1)
    spec = labelled(write_model, "spearman", 1, 2)
    with pytest.raises(BuildError, match="name the two columns of a row"):
        judged(spec, {"y": one_hot(0, 1)})


def test_vectors_of_different_lengths(write_model: WriteModel) -> None:
    """Outputs whose size follows from the input: the cosine of each item, and an error where items are compared."""
    batches = [np.array([[3, 4]], np.float32), np.array([[1, 0, 0]], np.float32)]
    data = "import numpy as np\ndef given(): return [{'x': np.ones((1, 2), np.float32)}] * 2\n"
    reference = [{"y": batches[0] * 2}, {"y": batches[1][:, ::-1].copy()}]
    spec = write_model(text("cosine", "data:given"), m__onnx=b"", data__py=data)
    samples = read_samples(spec, X)
    outputs = [{"y": batch} for batch in batches]
    result = score(spec, "cosine", "quality.metric", outputs, reference, True, samples)
    assert result.value == pytest.approx(0.5)
    with pytest.raises(BuildError, match="the outputs of the items have 2 to 3 numbers"):
        score(spec, "spearman", "quality.metric", outputs, reference, True, samples)
    with pytest.raises(BuildError, match="item 1 of the output has 3 numbers, and 2 from the reference"):
        score(spec, "rmse", "quality.metric", outputs, [outputs[0], outputs[0]], True, samples)


def test_pairs_of_different_lengths(write_model: WriteModel) -> None:
    """The two vectors of a row need one length; the error names the row."""
    lines = '{"a": [1, 0], "b": [1, 0], "label": 1}\n'
    spec = write_model(text("spearman", "{jsonl: a.jsonl, pairs: {x: [a, b]}}"), m__onnx=b"", a__jsonl=lines)
    outputs = [{"y": np.ones((1, 2), np.float32)}, {"y": np.ones((1, 3), np.float32)}]
    with pytest.raises(BuildError, match=r"a.jsonl:1: the outputs of its two items have 2 and 3 numbers"):
        score(spec, "spearman", "quality.metric", outputs, outputs, True, read_samples(spec, X))


def test_similarities_of_many_items_are_bounded(write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number grows with the square, so items are taken evenly from the whole."""
    monkeypatch.setattr(vector_scores, "_MOST_COMPARED", 5)
    values, expected = RANDOM.normal(size=(2, 17, 4)).astype(np.float32)
    spec = write_model(text("spearman"), m__onnx=b"", a__jsonl=rows(*['"z": 0'] * 17))
    result = judged(spec, {"y": values}, {"y": expected})
    taken = [0, 4, 8, 12, 16]
    left, right = (pdist(side[taken], "cosine") for side in (values, expected))
    assert result.value == pytest.approx(spearmanr(left, right).statistic, abs=1e-6)
    scores = judged(spec, {"y": values[:, :1]}, {"y": expected[:, :1]})
    assert scores.value == pytest.approx(spearmanr(values[:, 0], expected[:, 0]).statistic)


@pytest.mark.parametrize("metric", ["spearman", "rmse"])
@pytest.mark.parametrize("label", [float("nan"), float("inf"), 10**400])
def test_right_numbers_are_finite(write_model: WriteModel, metric: str, label: float) -> None:
    """With a NaN among them no score would mean anything; JSON of Python may have one."""
    with pytest.raises(BuildError, match=r"a.jsonl:2, label"):
        judged(labelled(write_model, metric, 1, label), {"y": np.array([[1], [2]], np.float32)})


@pytest.mark.parametrize("label", [[], ["yes", None], {"text": "yes"}])
def test_right_texts_are_texts(write_model: WriteModel, label: object) -> None:
    """JSON's null is not the text None."""
    outputs = {"y": np.array([["yes"], ["None"]], object)}
    with pytest.raises(BuildError, match=r"a.jsonl:2, label: found"):
        judged(labelled(write_model, "exact_match", "yes", label), outputs)


def test_the_nearest_right_text_counts(write_model: WriteModel) -> None:
    """One edit of four letters, by the second text; the first would need four."""
    spec = labelled(write_model, "cer", ["abcdefg", "xyzw"])
    assert judged(spec, {"y": np.array([["xyzv"]], object)}).value == 0.25


def test_ndcg_of_queries(write_model: WriteModel) -> None:
    """The mean over queries, whose spread gives the drop its interval."""
    lines = "".join(f'{{"x": [0, 0], "q": "{q}", "label": {r}}}\n' for q, r in (("a", 1), ("a", 0), ("b", 0), ("b", 2)))
    spec = write_model(text("ndcg_10", "{jsonl: a.jsonl, group: q}"), m__onnx=b"", a__jsonl=lines)
    result = judged(spec, {"y": np.array([[0.9], [0.1], [0.9], [0.1]], np.float32)})
    assert result.value == pytest.approx((1 + 1 / np.log2(3)) / 2)
    assert result.items is not None
    assert len(result.items[0]) == 2
    spec = write_model(text("ndcg_10"), m__onnx=b"", a__jsonl=lines)
    with pytest.raises(BuildError, match="the column that says which rows belong to one query"):
        judged(spec, {"y": np.zeros((4, 1), np.float32)})


def test_numbers(write_model: WriteModel) -> None:
    """The right numbers of a row, one or as many as the output has; the reference's without a column."""
    spec = labelled(write_model, "rmse", 1, 3)
    assert judged(spec, {"y": np.array([[1], [1]], np.float32)}).value == pytest.approx(2**0.5)
    spec = labelled(write_model, "rmse", [1, 3])
    assert judged(spec, {"y": np.array([[1, 1]], np.float32)}).value == pytest.approx(2**0.5)
    with pytest.raises(BuildError, match=r"a.jsonl:1, label: it has 2 numbers"):
        judged(spec, {"y": np.array([[1, 1, 1]], np.float32)})
    spec = write_model(text("rmse"), m__onnx=b"", a__jsonl=rows('"z": 0'))
    result = judged(spec, {"y": np.ones((1, 2), np.float32)}, {"y": np.zeros((1, 2), np.float32)})
    assert (result.value, result.reference) == (1, 0)


def test_boxes(write_model: WriteModel) -> None:
    """Outputs of a detector, filled up to a fixed count; the right boxes as lists, or as lines of YOLO."""
    outputs = {
        "boxes": np.array([[[0, 0, 10, 10], [20, 20, 40, 40], [0, 0, 0, 0]]], np.float32),
        "scores": np.array([[0.9, 0.8, 0.0]], np.float32),
        "classes": np.array([[0, 1, 0]], np.int32),
        "count": np.array([[2]], np.int32),
    }
    right = [[0, 0, 0, 10, 10], ["dog", 20, 20, 40, 40]]
    lines = rows(f'"label": {str(right).replace(chr(39), chr(34))}')
    samples = "{jsonl: a.jsonl, classes: c.txt}"
    spec = write_model(text("map50_95", samples), m__onnx=b"", a__jsonl=lines, c__txt="cat\ndog\n")
    assert judged(spec, outputs).value == pytest.approx(1)
    spec = labelled(write_model, "map50_95", "0 0.05 0.05 0.1 0.1\n1 0.3 0.3 0.2 0.2\n")
    assert judged(spec, {**outputs, "image_size": np.array([[100, 100]])}).value == pytest.approx(1)
    with pytest.raises(BuildError, match="whose size no step gives"):
        judged(spec, outputs)
    unfit = ([[0, 1, 2]], "[", [[0, 5, 5, 1, 1]], [[0, "a", 0, 1, 1]], [[0, 0, 0, 1, float("nan")]])
    for label in unfit:
        with pytest.raises(BuildError, match=r"a.jsonl:1, label"):
            judged(labelled(write_model, "map50_95", label), outputs)
    with pytest.raises(BuildError, match="there are no boxes, scores and classes; the outputs are y"):
        judged(spec, {"y": one_hot(0)})


@pytest.mark.parametrize(
    ("classes", "label", "message"),
    [
        (
            np.array([[0]], np.int32),
            [["dog", 0, 0, 10, 10]],
            "the class 'dog' is a name, and the detector gives numbers",
        ),
        (np.array([["dog"]], object), [[0, 0, 0, 10, 10]], "the class 0 is a number, and the detector gives names"),
        (np.array([["dog"]], object), "0 0.05 0.05 0.1 0.1", "the class '0' is a number, and the detector gives names"),
    ],
)
def test_names_and_numbers_of_classes_cannot_be_compared(
    write_model: WriteModel, classes: np.ndarray, label: object, message: str
) -> None:
    """Without the names in their order no box would be right, and the score 0."""
    outputs = {
        "boxes": np.array([[[0, 0, 10, 10]]], np.float32),
        "scores": np.array([[0.9]], np.float32),
        "classes": classes,
        "image_size": np.array([[100, 100]]),
    }
    with pytest.raises(BuildError, match=r"a.jsonl:1, label") as caught:
        judged(labelled(write_model, "map50_95", label), outputs)
    assert message in caught.value.found
    assert "classes: FILE" in caught.value.wanted
    lines = rows(f'"label": {json.dumps(label)}')
    samples = "{jsonl: a.jsonl, classes: c.txt}"
    spec = write_model(text("map50_95", samples), m__onnx=b"", a__jsonl=lines, c__txt="dog\n")
    assert judged(spec, outputs).value == pytest.approx(1)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("accuracy", "accuracy fits a and b; the outputs are a (floats [3]), b (floats [3])"),
        ("wer", "wer fits no output"),
        ("{name: accuracy, output: c}", "there is no output 'c'"),
    ],
)
def test_an_output_that_does_not_fit(write_model: WriteModel, metric: str, message: str) -> None:
    """The error lists the outputs, and says how to name one."""
    with pytest.raises(BuildError) as caught:
        judged(labelled(write_model, metric, 0), {"a": one_hot(0), "b": one_hot(1)})
    assert message in caught.value.found
    assert "output: NAME" in caught.value.todo


def test_each_output_is_judged(write_model: WriteModel) -> None:
    """Outputs that no ready metric looks at are held to R2."""
    spec = labelled(write_model, "{name: accuracy, output: a}", 0, 1)
    reference = {"a": one_hot(0, 1), "b": one_hot(0, 1), "c": one_hot(1, 2)}
    outputs = {**reference, "b": one_hot(2, 2)}
    main = judged(spec, outputs, reference)
    assert (main.name, main.value) == ("accuracy of a", 1.0)
    rest = {one.name: one.value for one in score_rest(spec, [main], [outputs], [reference], True)}
    assert rest["R2 of c"] == 1.0
    assert rest["R2 of b"] < 0


@pytest.mark.parametrize(
    ("metric", "more", "message"),
    [
        ("acuracy", "", "unknown metric 'acuracy'"),
        ("wer", "  at_least: 0.9\n", "at_least is given"),
        ("accuracy", "  at_most: 0.9\n", "at_most is given"),
        ("f1", "  also: [f1_macro]\n", "two metrics called f1_macro"),
        ("{name: map50_95, output: boxes}", "", "output is given for map50_95"),
        ("{name: accuracy, normalize: true}", "", "normalize is given for accuracy"),
        ("{name: acc}", "", "quality.metric.name"),
        ("{output: y}", "", "quality.metric"),
    ],
)
def test_settings_that_do_not_fit(write_model: WriteModel, metric: str, more: str, message: str) -> None:
    """Found when the spec is read."""
    with pytest.raises(SpecError, match=message):
        write_model(text(metric, more=more), m__onnx=b"", a__jsonl="{}\n")


def test_a_folder_of_classes(write_model: WriteModel, root: Path) -> None:
    """Classes come in turns, and are numbered by their names; hidden files and links are left out."""
    folder = root / "models" / "net" / "test"
    for number, name in enumerate(("b", "a")):
        (folder / name).mkdir(parents=True)
        for file in range(3 - number):
            (folder / name / f"{file}.bin").write_bytes(b"x")
    (folder / "a" / ".hidden").write_bytes(b"x")
    (folder / "a" / "link.bin").symlink_to("/etc/hostname")
    spec = write_model(text("accuracy", "{folder: test}"), m__onnx=b"")
    raw = Signature((TensorInfo("data", "BYTES", (1,)),), (), batched=True)
    samples = read_samples(spec, raw)
    assert samples.rows is not None
    assert [row.values["class"] for row in samples.rows.rows] == ["a", "b", "a", "b", "b"]
    result = score(
        spec,
        "accuracy",
        "",
        [{"y": one_hot(0, 1, 0, 1, 0, width=2)}],
        [{"y": one_hot(0, 1, 0, 1, 0, width=2)}],
        True,
        samples,
    )
    assert result.value == 0.8
    (root / "models" / "net" / "test" / "c").mkdir()
    with pytest.raises(BuildError, match="test/c is empty"):
        read_samples(spec, raw)


def test_a_folder_of_texts_and_an_empty_one(write_model: WriteModel, root: Path) -> None:
    """A text next to each file is its right answer."""
    folder = root / "models" / "net" / "test"
    folder.mkdir(parents=True)
    raw = Signature((TensorInfo("data", "BYTES", (1,)),), (), batched=True)
    spec = write_model(text("exact_match", "{folder: test}"), m__onnx=b"")
    with pytest.raises(BuildError, match="test is empty"):
        read_samples(spec, raw)
    for name in ("one", "two"):
        (folder / f"{name}.wav").write_bytes(b"x")
        (folder / f"{name}.txt").write_text(f"{name}\n")
    outputs = {"y": np.array([["one"], ["three"]], object)}
    samples = read_samples(spec, raw)
    assert score(spec, "exact_match", "", [outputs], [outputs], True, samples).value == 0.5
    (folder / "two.txt").unlink()
    with pytest.raises(BuildError, match=r"test/two.wav has no two.txt"):
        read_samples(spec, raw)
