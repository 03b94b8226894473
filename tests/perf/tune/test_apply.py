"""A choice in model.yaml: what it says, and that the rest stays as it was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.perf.tune import InstanceGroup, Point, changed_text, difference, other_buckets, tuned
from tritonkit.repository.modelspec import load

TEXT = """\
# What a person wrote.
name: net
network: {onnx: model.onnx}

serving:
  threads: 1                         # a comment
  dynamic_batching:
    preferred_batch_size: [8]        # another
    max_queue_delay: 1ms
"""
NOW = Point(InstanceGroup("onnx-fp32", 2, 1), 64, (8,), 1000)


@pytest.mark.parametrize(
    ("point", "lines"),
    [
        (NOW, []),
        (Point(InstanceGroup("onnx-int8", 2, 1), 64, (8,), 1000), ["+  variant: onnx-int8"]),
        (
            Point(InstanceGroup("onnx-fp32", 1, 2), 16, (), 0),
            [
                "-  threads: 1                         # a comment",
                "+  threads: 2                         # a comment",
                "+  instance_group:",
                "+    - count: 1",
                "+  max_batch_size: 16",
            ],
        ),
        (Point(InstanceGroup("onnx-fp32", 2, 1), 1), ["+  dynamic_batching: false", "+  max_batch_size: 1"]),
    ],
)
def test_only_what_differs_is_written(root: Path, write_model: WriteModel, point: Point, lines: list[str]) -> None:
    """And the text says what the point says."""
    write_model(TEXT, model__onnx="")
    spec = load(root / "models" / "net", root)
    text = changed_text(spec, point, NOW)
    diff = difference(spec, text).splitlines()
    for line in lines:
        assert line in diff, diff
    assert bool(lines) == bool(diff)
    assert text.startswith("# What a person wrote.\n")
    spec.file.write_text(text)
    again = load(root / "models" / "net", root).model.serving
    expected = tuned(spec, point, root).model.serving
    assert again.variant == expected.variant
    if point.max_batch_size > 1:
        assert again.dynamic_batching == expected.dynamic_batching
    else:
        assert again.dynamic_batching is False


def test_a_spec_that_says_nothing_of_serving(root: Path, write_model: WriteModel) -> None:
    """Gets a section of its own."""
    write_model("name: net\nnetwork: {onnx: model.onnx}\n", model__onnx="")
    spec = load(root / "models" / "net", root)
    now = Point(InstanceGroup("onnx-fp32", 1, 2), 64)
    spec.file.write_text(changed_text(spec, Point(InstanceGroup("onnx-fp32", 2, 1), 64, (), 500), now))
    serving = load(root / "models" / "net", root).model.serving
    assert serving.threads == 1
    assert serving.instance_group[0].count == 2
    assert serving.dynamic_batching
    assert serving.dynamic_batching.max_queue_delay == 500


def test_other_lengths_of_texts_are_those_of_its_tokenizer() -> None:
    """The shipped model has the fine ones; what is written is what is served, and stands in one line."""
    root = Path(__file__).parents[3]
    spec = load(root / "models" / "sentences", root)
    doublings, one = other_buckets(spec)
    assert doublings == (8, 16, 32, 64, 128, 256)
    assert one == (256,)
    point = replace(NOW, buckets=doublings)
    diff = difference(spec, changed_text(spec, point, NOW)).splitlines()
    assert "+      buckets: [8, 16, 32, 64, 128, 256]" in diff
    assert len([line for line in diff if line.startswith("+ ")]) == 1
    padded = tuned(spec, point, root)
    assert padded.steps[0]
    assert padded.steps[0].parameters["buckets"] == "8,16,32,64,128,256"
    fine = other_buckets(padded)[0]
    assert fine == (*range(8, 64, 8), *range(64, 128, 16), *range(128, 257, 32))


def test_a_model_without_texts_has_no_lengths(root: Path, write_model: WriteModel) -> None:
    """And its step of another kind is none."""
    write_model("name: net\nnetwork: {onnx: model.onnx}\n", model__onnx="")
    assert other_buckets(load(root / "models" / "net", root)) == ()
