"""A choice in model.yaml: what it says, and that the rest stays as it was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.conftest import WriteModel
from tritonkit.perf.tune import InstanceGroup, Point, changed_text, difference, other_buckets, tuned
from tritonkit.repository.modelspec import load, load_named
from tritonkit.repository.modelspec.base import Target

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


PAGE = """\
name: page
pipeline:
  - {name: find, network: {onnx: model.onnx}, outputs: {y: x}}   # flow
  - name: read                       # block
    network: {onnx: model.onnx}
"""


def test_a_choice_for_a_network_of_a_pipeline_goes_into_its_entry(root: Path, write_model: WriteModel) -> None:
    """The other entries and the comments stay."""
    write_model(PAGE, "page", model__onnx="")
    point = Point(InstanceGroup("onnx-int8-dynamic", 2, 1), 64, (8,), 1000)
    for name in ("page_find", "page_read"):
        spec = load_named(root, name)
        text = changed_text(spec, point, NOW)
        assert "variant: onnx-int8-dynamic" in text
        assert "# flow" in text
        assert "# block" in text
        assert "--- models/page/model.yaml" in difference(spec, text)
        spec.file.write_text(text)
        assert load_named(root, name).model.serving.variant == "onnx-int8-dynamic"


ON_GPU = Point(InstanceGroup("onnx-fp32", 2, 1, 1), 64, (8,), 1000)


def applied(root: Path, text: str, point: Point, now: Point, target: Target) -> str:
    """The text of a spec with a choice for a target, which says what the point says."""
    folder = root / "models" / "net"
    spec = load(folder, root, target)
    expected = tuned(spec, point, root, target).model.serving
    changed = changed_text(spec, point, now, target)
    (folder / "model.yaml").write_text(changed)
    again = load(folder, root, target).model.serving
    names = ("variant", "max_batch_size", "dynamic_batching", "instance_group")
    for name in names if point.max_batch_size > 1 else ("variant", "max_batch_size"):
        assert getattr(again, name) == getattr(expected, name), name
    return changed


def test_a_choice_for_a_gpu_is_for_that_target_alone(root: Path, write_model: WriteModel) -> None:
    """Each part of a setting that changes is written whole, because it replaces the one for all."""
    write_model(TEXT, model__onnx="")
    before = load(root / "models" / "net", root).model.serving
    point = Point(InstanceGroup("onnx-fp16", 3, 1, 1), 32, (), 1000)
    text = applied(root, TEXT, point, ON_GPU, "gpu")
    assert text.startswith(TEXT)
    assert yaml.safe_load(text)["serving"]["targets"] == {
        "gpu": {
            "variant": "onnx-fp16",
            "instance_group": [{"count": 3, "kind": "gpu"}],
            "max_batch_size": 32,
            "dynamic_batching": {"max_queue_delay": "1000us"},
        }
    }
    assert load(root / "models" / "net", root).model.serving == before


def test_a_choice_of_the_cpu_leaves_the_gpu(root: Path, write_model: WriteModel) -> None:
    """On a machine with a GPU; the threads are the CPU's, and the numbers of GPUs go."""
    own = "  targets:\n    gpu: {max_batch_size: 64, instance_group: [{gpus: [0], host_policy: a}]}   # mine\n"
    write_model(TEXT + own, model__onnx="")
    now = replace(ON_GPU, group=InstanceGroup("onnx-fp32", 2, 1, 1))
    point = replace(ON_GPU, group=InstanceGroup("onnx-fp32", 1, 4))
    text = applied(root, TEXT + own, point, now, "gpu")
    assert "# mine" in text
    assert yaml.safe_load(text)["serving"]["targets"]["gpu"] == {
        "max_batch_size": 64,
        "instance_group": [{"host_policy": "a", "count": 1, "kind": "cpu"}],
        "threads": 4,
    }


def test_a_choice_for_the_cpu_goes_where_its_settings_are(root: Path, write_model: WriteModel) -> None:
    """Among those of the target, if it has some; no batching replaces what holds for all."""
    own = "  targets:\n    cpu: {variant: onnx-int8}\n"
    write_model(TEXT + own, model__onnx="")
    point = Point(InstanceGroup("onnx-int8", 2, 1), 1)
    text = applied(root, TEXT + own, point, replace(NOW, group=point.group), "cpu")
    cpu = {"variant": "onnx-int8", "max_batch_size": 1, "dynamic_batching": False}
    assert yaml.safe_load(text)["serving"]["targets"] == {"cpu": cpu}


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
