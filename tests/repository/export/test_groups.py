"""The default metric: each output, and each group of its columns, is judged on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritonkit.repository.export.closeness import Yardstick, item_r2, worst_group
from tritonkit.repository.export.groups import find_groups

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
BOXES, SCORES = RANDOM.uniform(0, 640, (8, 4, 64)), RANDOM.uniform(0, 1, (8, 20, 64))


def r2(reference: Array, outputs: Array, batched: bool = True) -> dict[str, float]:
    """R2 of each group of one output."""
    groups = find_groups([{"y": reference}], batched)
    scores = item_r2(groups, [{"y": outputs}], [{"y": reference}])
    return {label.partition(" (")[0]: float(score.mean()) for label, score in scores.items()}


@pytest.mark.parametrize(
    ("axes", "axis", "batched"), [((0, 1, 2), 1, True), ((0, 2, 1), 2, True), ((1, 2, 0), 0, False)]
)
def test_boxes_do_not_hide_scores(axes: tuple[int, ...], axis: int, batched: bool, random: np.random.Generator) -> None:
    """Scores with a tenth of noise next to exact boxes, whichever axis the columns lie on."""
    noise = 0.1 * SCORES.std() * random.standard_normal(SCORES.shape)
    reference = np.concatenate([BOXES, SCORES], 1).transpose(axes)
    outputs = np.concatenate([BOXES, SCORES + noise], 1).transpose(axes)
    scores = r2(reference, outputs, batched)
    assert scores == pytest.approx(
        {f"y columns 0 to 3 of axis {axis}": 1.0, f"y columns 4 to 23 of axis {axis}": 0.99}, abs=1e-3
    )


def test_the_class_behind_boxes_and_a_score(random: np.random.Generator) -> None:
    """[batch, boxes, 6]: another class at a sixth of the places is seen, although its numbers are small."""
    boxes, scores = BOXES.transpose(0, 2, 1), SCORES[:, :1].transpose(0, 2, 1)
    classes = random.integers(0, 80, (8, 64, 1)).astype(float)
    other = classes.copy()
    other[:, ::6] = 79 - other[:, ::6]
    reference, outputs = (np.concatenate([boxes, scores, c], 2) for c in (classes, other))
    scored = r2(reference, outputs)
    assert scored["y columns 0 to 3 of axis 2"] == 1.0
    assert scored["y column 4 of axis 2"] == 1.0
    assert scored["y column 5 of axis 2"] < 0.8


def test_a_large_constant_part_hides_nothing(random: np.random.Generator) -> None:
    """Temperatures around 300: the cosine of such outputs is 0.9999, whatever the network says."""
    reference = 300 + 2 * random.standard_normal((64, 8))
    outputs = reference + random.standard_normal(reference.shape)
    cosine = (reference * outputs).sum() / np.linalg.norm(reference) / np.linalg.norm(outputs)
    assert cosine > 0.9999
    assert 0.7 < r2(reference, outputs)["y"] < 0.82


def test_columns_of_other_means_are_compared_with_their_own(random: np.random.Generator) -> None:
    """Temperature next to pressure: both vary by 5, around 300 and around 1000."""
    reference = np.array([300, 1000]) + 5 * random.standard_normal((64, 2))
    (score,) = r2(reference, reference + random.standard_normal(reference.shape)).values()
    assert score == pytest.approx(0.96, abs=0.02)


def test_each_output_is_judged() -> None:
    """The worst decides, and is named."""
    reference = [{"boxes": BOXES, "scores": SCORES}]
    outputs = [{"boxes": BOXES, "scores": SCORES[::-1]}]
    groups = find_groups(reference, True)
    label, items = worst_group(item_r2(groups, outputs, reference))
    assert label == "scores"
    assert items.mean() < 0
    assert [group.label for group in groups] == ["boxes", "scores"]


@pytest.mark.parametrize(
    ("reference", "noise"),
    [
        (np.zeros((3, 4)), 1e-6),
        (np.full((3, 4), 1000.0), 0.3),
        (np.array([[0.7]]), 1e-3),
        (np.array(5.0), 1e-2),
        (np.array([[2.0, 3.0, 5.0]]), 1e-2),
        (np.concatenate([np.zeros((64, 1)), RANDOM.standard_normal((64, 4))], 1), 1e-2),
        (np.zeros((2, 0, 6)), 0.0),
        (np.concatenate([np.full((64, 1), 1e-9), RANDOM.standard_normal((64, 1))], 1), 1e-13),
    ],
    ids=["zeros", "constant", "one number", "scalar", "one item", "a zero column", "empty", "tiny"],
)
def test_numeric_noise_is_no_loss(reference: Array, noise: float) -> None:
    """Outputs that never vary, or have one value alone, are compared with their size."""
    outputs = reference + noise * np.ones_like(reference)
    assert min(r2(reference, outputs, reference.ndim > 0).values(), default=1.0) > 0.999


def test_classes_that_never_occur_belong_to_those_that_do(random: np.random.Generator) -> None:
    """A tenth of a per cent more or less of an unlikely class is no loss."""
    logits = 1.5 * random.standard_normal((64, 5)) + np.array([8, -1, 0, 9, 12])
    reference = 1 / (1 + np.exp(logits))
    assert reference[:, [0, 3, 4]].max() < 0.1
    scores = r2(reference, reference + 1e-3 * random.standard_normal(reference.shape))
    assert list(scores) == ["y"]
    assert scores["y"] > 0.999


def test_outlier_channels_do_not_hide_the_others(random: np.random.Generator) -> None:
    """One of 64 channels is twenty times as large, as transformers have them."""
    reference = random.standard_normal((32, 64))
    reference[:, 7] *= 20
    outputs = reference + 0.3 * random.standard_normal(reference.shape)
    scores = r2(reference, outputs)
    assert scores["y column 7 of axis 1"] > 0.99
    assert min(scores.values()) == pytest.approx(0.91, abs=0.02)


def test_one_huge_item_does_not_hide_the_others(random: np.random.Generator) -> None:
    """Answers of 300 times the usual size in one of 2000 items, and noise in all."""
    reference = random.standard_normal((2000, 8))
    reference[7] *= 300
    (score,) = r2(reference, reference + 0.5 * random.standard_normal(reference.shape)).values()
    assert 0.75 < score < 0.9


def test_lengths_may_differ_from_batch_to_batch() -> None:
    """Columns are found on the axis that keeps its size."""
    reference = [{"y": np.concatenate([BOXES[..., :n], SCORES[..., :n]], 1).transpose(0, 2, 1)} for n in (9, 30)]
    groups = find_groups(reference, True)
    assert [list(group.columns) for group in groups] == [[*range(4)], [*range(4, 24)]]
    assert {label: set(items) for label, items in item_r2(groups, reference, reference).items()} == {
        group.label: {1.0} for group in groups
    }


def test_what_is_not_finite_is_farthest(random: np.random.Generator) -> None:
    """For the gate -1, like what the clipped score of a network that answers nonsense is."""
    reference = random.standard_normal((4, 3))
    outputs = reference.copy()
    outputs[1, 2] = np.nan
    groups = find_groups([{"y": reference}], True)
    assert list(item_r2(groups, [{"y": outputs}], [{"y": reference}])["y"]) == [1, -1, 1, 1]


def test_while_variants_are_made_the_same_counts() -> None:
    """With a metric of the spec's own, the cosine guides; without one, what the gate will judge by."""
    reference = [{"y": np.concatenate([BOXES, SCORES], 1)}]
    outputs = [{"y": np.concatenate([BOXES, SCORES[::-1]], 1)}]
    assert Yardstick.of(True, reference, True).mean(outputs, reference) > 0.999
    assert Yardstick.of(False, reference, True).mean(outputs, reference) < 0
