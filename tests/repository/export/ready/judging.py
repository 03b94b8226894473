"""Specs with a ready metric, and its score for outputs that stand in for a network's."""

from __future__ import annotations

import json

import numpy as np

from tests.conftest import WriteModel
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.samples import Batch, read_samples
from tritonkit.repository.export.scores import Score, score
from tritonkit.repository.modelspec import Spec

X = Signature((TensorInfo("x", "FP32", (2,)),), (), batched=True)


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
