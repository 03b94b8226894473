"""Builds of folders without Python: samples in files go through the pipeline's steps, and ready metrics judge."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from tests.conftest import WriteModel
from tests.repository.optimize.linear import WEIGHTS, linear, measured
from tritonkit.errors import BuildError, GateError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.artifact import MeasuredQuality
from tritonkit.repository.modelspec.contents import python_uses
from tritonkit.repository.optimize import plan
from tritonkit.repository.optimize.gate import judge
from tritonkit.repository.optimize.results import choose, evaluate, wanted_variants


def table(count: int = 60) -> str:
    """CSV of random rows with the class that `WEIGHTS` give them."""
    values = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    classes = (values @ WEIGHTS.T).argmax(axis=1)
    rows = [",".join(map(str, [*row.tolist(), "abc"[best]])) for row, best in zip(values, classes, strict=True)]
    return "\n".join(["one,two,three,four,label", *rows]) + "\n"


TABLE = """
name: net
network: {onnx: m.onnx}
quality:
  samples: {csv: test.csv, classes: classes.txt}
  metric: accuracy
  also: [f1, auc]
  at_least: 0.9
"""


def test_a_folder_with_an_onnx_file_and_a_table(write_model: WriteModel, tmp_path: Path) -> None:
    """Nothing of it is Python; every metric is in the artifact, and the drop has an interval."""
    spec = write_model(TABLE, m__onnx=linear(WEIGHTS, [4]), test__csv=table(), classes__txt="a\nb\nc\n")
    quality = measured(spec, tmp_path)
    assert (quality.metric, quality.value, quality.samples) == ("accuracy", 1.0, 60)
    assert quality.also["f1_macro"] == (1.0, 1.0)
    assert quality.also["auc"] == pytest.approx((1.0, 1.0), abs=0.05)
    assert quality.drop_low == quality.drop_high == 0
    assert python_uses(spec) == ()


def test_a_network_that_is_not_good_enough_is_refused(write_model: WriteModel, tmp_path: Path) -> None:
    """The classes are named in another order than the network has them."""
    spec = write_model(TABLE, m__onnx=linear(WEIGHTS, [4]), test__csv=table(), classes__txt="c\na\nb\n")
    results = evaluate(spec, wanted_variants(spec, ()), BuildCache(tmp_path / "cache"), threads=1)
    with pytest.raises(GateError, match=r"quality.at_least: .*accuracy is 0\.\d+ on 60 samples"):
        choose(spec, results)


def test_what_a_build_reads_is_part_of_its_hash(write_model: WriteModel, tmp_path: Path) -> None:
    """Another table, or another setting of the samples, is another build; another limit is the same."""
    files = {"m__onnx": linear(WEIGHTS, [4]), "classes__txt": "a\nb\nc\n", "test__csv": table()}
    cache = BuildCache(tmp_path / "cache")
    first = plan(write_model(TABLE, **files), cache).source_hash
    assert plan(write_model(TABLE.replace("0.9", "0.5"), **files), cache).source_hash == first
    assert plan(write_model(TABLE.replace("[f1, auc]", "[f1]"), **files), cache).source_hash != first
    assert plan(write_model(TABLE, **{**files, "test__csv": table(61)}), cache).source_hash != first


def test_errors_are_limited_from_above(write_model: WriteModel) -> None:
    """A rise of a metric that counts errors is refused, and at_most is its limit."""
    text = "name: net\nnetwork: {onnx: m.onnx}\nquality: {metric: rmse, at_most: 0.5}\n"
    spec = write_model(text, m__onnx=linear(WEIGHTS, [4]))
    for value, reference, fields in (
        (0.4, 0.3, ["max_drop"]),
        (0.3, 0.4, []),
        (0.6, 0.595, ["at_most"]),
        (0.6, 0.3, ["at_most", "max_drop"]),
    ):
        quality = MeasuredQuality("rmse", value, reference, 0.1, 9, less_is_better=("rmse",))
        artifact = built_with(quality)
        outcome = judge(spec, artifact)
        assert [miss.field.removeprefix("quality.") for miss in outcome.misses] == fields
        if value > reference + 0.01:
            assert f"{value - reference:.4f} above the reference's {reference:.4f}" in outcome.misses[-1].found


def built_with(quality: MeasuredQuality):  # type: ignore[no-untyped-def]
    """An artifact with these figures."""
    from tritonkit.repository.export.artifact import Artifact, Signature

    return Artifact("net", "onnx-int8-dynamic", Path(), {}, Signature((), (), True), quality, "", {})


PICTURES = """
name: net
network: {onnx: m.onnx}
quality:
  samples: {folder: test}
  metric: accuracy
  also: [{name: accuracy, output: label}, {name: cosine, output: y}]
pipeline:
  - step: decode_image
    parameters: {height: 4, width: 4, channels: 1}
    outputs: {pixels: x}
  - network
  - step: top_k
    inputs: {logits: y}
    parameters: {k: 1, labels: labels.txt}
"""


def png(level: int, size: int = 4) -> bytes:
    """A gray picture."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("L", (size, size), level).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def pictures(root: Path) -> Path:
    """Pictures of two classes below test/."""
    folder = root / "models" / "net" / "test"
    for name, level in (("dark", 20), ("light", 230)):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            (folder / name / f"{number}.png").write_bytes(png(level + number))
    return folder


BRIGHTNESS = linear(np.stack([np.full(16, -1.0), np.full(16, 1.0)]).astype(np.float32), [1, 4, 4])


def shifted(data: bytes, shift: list[float]) -> bytes:
    """The network with a number added to each output."""
    model = onnx.load_from_string(data)
    model.graph.initializer.append(numpy_helper.from_array(np.array(shift, np.float32), "b"))
    model.graph.node[-1].input.append("b")
    return model.SerializeToString()


def test_a_folder_of_pictures_goes_through_the_steps(write_model: WriteModel, tmp_path: Path, pictures: Path) -> None:
    """Decoded by the step that serves; the labels' file of top_k numbers the folders; a text output is judged too."""
    network = shifted(BRIGHTNESS, [8.0, -8.0])
    spec = write_model(PICTURES, m__onnx=network, labels__txt="dark\nlight\n")
    quality = measured(spec, tmp_path)
    assert (quality.value, quality.samples) == (1.0, 6)
    assert quality.also == {"accuracy of label": (1.0, 1.0), "cosine of y": (1.0, 1.0)}
    spec = write_model(PICTURES, m__onnx=network, labels__txt="light\ndark\n")
    assert measured(spec, tmp_path).value == 0.0


def test_a_picture_that_cannot_be_decoded(write_model: WriteModel, tmp_path: Path, pictures: Path) -> None:
    """The error names the file and says what the step said."""
    (pictures / "light" / "1.png").write_bytes(b"GIF89a")
    spec = write_model(PICTURES, m__onnx=BRIGHTNESS, labels__txt="dark\nlight\n")
    with pytest.raises(BuildError) as caught:
        measured(spec, tmp_path)
    assert "test/light/1.png: model 'net_decode_image': input 'image'" in caught.value.found


def test_a_class_that_the_labels_do_not_have(write_model: WriteModel, tmp_path: Path, pictures: Path) -> None:
    """The error names the file and the nearest label."""
    spec = write_model(PICTURES, m__onnx=BRIGHTNESS, labels__txt="drak\nlight\n")
    with pytest.raises(BuildError) as caught:
        measured(spec, tmp_path)
    assert "test/dark/0.png, class: there is no class 'dark'" in caught.value.found
    assert "'drak'" in caught.value.wanted


def test_a_table_that_names_files(write_model: WriteModel, tmp_path: Path, pictures: Path) -> None:
    """Cells are paths relative to the table, and stay in the model's folder."""
    text = PICTURES.replace("{folder: test}", "{csv: test.csv, files: [image], inputs: {image: picture}}")
    network = shifted(BRIGHTNESS, [8.0, -8.0])
    files = {"m__onnx": network, "labels__txt": "dark\nlight\n"}
    rows = "picture,label\ntest/dark/0.png,dark\ntest/light/0.png,dark\n"
    assert measured(write_model(text, test__csv=rows, **files), tmp_path).value == 0.5
    for cell, message in (("test/x.png", "there is no file"), ("../../../etc/passwd", "leads out of")):
        spec = write_model(text, test__csv=f"picture,label\n{cell},dark\n", **files)
        with pytest.raises(BuildError) as caught:
            measured(spec, tmp_path)
        assert caught.value.found.startswith("test.csv:2, picture for input image: ")
        assert message in caught.value.found


WORDS = ["[PAD]", "[UNK]", "good", "bad", "film"]
TEXTS = """
name: net
network:
  onnx: m.onnx
  inputs: {input_ids: {dtype: INT64, shape: [8]}}
quality:
  samples: {csv: test.tsv, inputs: {text: review}, labels: positive}
  metric: accuracy
  max_samples: 3
pipeline:
  - step: tokenize
    parameters: {tokenizer: tokenizer.json, max_length: 8, buckets: [8]}
  - network
"""


def test_texts_are_tokenized(write_model: WriteModel, tmp_path: Path) -> None:
    """A table of texts and a tokenizer: the column has another name than the input."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.zeros((2, 8), np.float32)
    weights[0, 0] = 1  # the first token: 3 is bad, 2 is good
    network = shifted(linear(weights, [8], "input_ids", TensorProto.INT64), [-2.5, 0])
    rows = 'review\tpositive\ngood film\t1\nbad "film\t0\ngood\t1\nfilm\t1\nbad\t0\n'.replace('"', "")
    spec = write_model(TEXTS, m__onnx=network, test__tsv=rows, tokenizer__json=tokenizer.to_str())
    quality = measured(spec, tmp_path)
    assert (quality.samples, quality.value) == (3, 1.0)
    rows = rows.replace("positive", "score")
    spec = write_model(TEXTS, m__onnx=network, test__tsv=rows, tokenizer__json=tokenizer.to_str())
    with pytest.raises(BuildError, match="no column 'positive' for the right answers; it has 'review', 'score'"):
        measured(spec, tmp_path)
