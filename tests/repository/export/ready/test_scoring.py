"""Ready metrics on a network's outputs: the output that each measures, the right answers, and what does not fit."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from tests.conftest import WriteModel
from tests.repository.export.ready.judging import X, judged, labelled, one_hot, rows, text
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.ready import vector_scores
from tritonkit.repository.export.samples import read_samples
from tritonkit.repository.export.scores import Score, score, score_rest


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


def test_similarities_of_many_items_are_bounded(
    write_model: WriteModel, monkeypatch: pytest.MonkeyPatch, random: np.random.Generator
) -> None:
    """Their number grows with the square, so items are taken evenly from the whole."""
    monkeypatch.setattr(vector_scores, "_MOST_COMPARED", 5)
    values, expected = random.normal(size=(2, 17, 4)).astype(np.float32)
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
    broken = {**outputs, "classes": np.array([[0, np.nan, 0]], np.float32)}
    assert judged(spec, {**broken, "image_size": np.array([[100, 100]])}).value == pytest.approx(0.5)
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
    (root / "elsewhere.bin").write_bytes(b"x")
    (folder / "a" / "link.bin").symlink_to(root / "elsewhere.bin")
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
