"""Variants of a checkpoint, made and judged on files alone, as the comments of its model.yaml propose."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.families.checkpoints import TEXTS, image_checkpoint, text_checkpoint
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.results import evaluate, wanted_variants
from tritonkit.repository.scaffold import new_from_hf

pytestmark = pytest.mark.slow
WORDS = " ".join(TEXTS).split()


def texts(seed: int, count: int = 40) -> list[str]:
    """Sentences of 3 to 12 words."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(3, 12))) for _ in range(count)]


def write_table(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A CSV file."""
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([columns, *rows])


def write_pictures(folder: Path, seed: int) -> None:
    """Pictures in a folder for each class."""
    random = np.random.default_rng(seed)
    for number in range(20):
        file = folder / f"LABEL_{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (40, 50, 3), np.uint8)).save(file)


def classes(root: Path, checkpoint: Path) -> Path:
    """A text classifier with its data."""
    labels = {0: "no", 1: "may be", 2: "yes"}
    names = {"id2label": labels, "label2id": {name: number for number, name in labels.items()}}
    [folder] = new_from_hf(root, "m", text_checkpoint(checkpoint, "bert", "ForSequenceClassification", **names))
    for seed, name in enumerate(("samples", "calibration")):
        rows = [(text, labels[place % 3]) for place, text in enumerate(texts(seed))]
        write_table(folder / f"{name}.csv", ("text", "label"), rows)
    return folder


def ranks(root: Path, checkpoint: Path) -> Path:
    """A cross-encoder: five texts for each query."""
    [folder] = new_from_hf(root, "m", text_checkpoint(checkpoint, "bert", "ForSequenceClassification", num_labels=1))
    for seed, name in enumerate(("samples", "calibration")):
        rows = [(f"query {place // 5}", text, "1" if place % 5 else "0") for place, text in enumerate(texts(seed))]
        write_table(folder / f"{name}.csv", ("text", "text_pair", "label"), rows)
    return folder


def answers(root: Path, checkpoint: Path) -> Path:
    """Questions whose answer is the second word of the context."""
    [folder] = new_from_hf(root, "m", text_checkpoint(checkpoint, "bert", "ForQuestionAnswering"))
    for seed, name in enumerate(("samples", "calibration")):
        rows = [("What?", text, text.split()[1]) for text in texts(seed)]
        write_table(folder / f"{name}.csv", ("text", "text_pair", "label"), rows)
    return folder


def pictures(root: Path, checkpoint: Path) -> Path:
    """An image classifier with a folder for each class."""
    [folder] = new_from_hf(root, "m", image_checkpoint(checkpoint, "vit", "ForImageClassification"))
    for seed, name in enumerate(("samples", "calibration")):
        write_pictures(folder / name, seed)
    return folder


@pytest.mark.parametrize(
    ("model", "metric"),
    [(classes, "accuracy"), (ranks, "ndcg_10"), (answers, "exact_match"), (pictures, "accuracy")],
    ids=["classes", "ranks", "answers", "pictures"],
)
def test_the_proposed_variants_are_made_and_measured(root: Path, tmp_path: Path, model: object, metric: str) -> None:
    """Nothing is written but the data: the lines of the file count once their number signs are gone."""
    assert callable(model)
    folder: Path = model(root, tmp_path / "checkpoint")
    file = folder / "model.yaml"
    before, _, proposed = file.read_text().partition("# quality:")
    file.write_text(before + "quality:" + re.sub(r"^# ", "", proposed, flags=re.MULTILINE))
    spec = load(folder, root)
    results = evaluate(spec, wanted_variants(spec, ["spec"]), BuildCache(tmp_path / "cache"))
    assert [result.problem for result in results] == [None] * 5
    for result in results:
        assert result.artifact is not None
        assert result.artifact.quality is not None
        assert result.artifact.quality.metric == metric
        assert result.artifact.quality.samples > 0
