"""Ready metrics: the outputs that each measures, and its score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.ready.answers import CLASS_METRICS, RightAnswers
from tritonkit.repository.export.ready.case import Case
from tritonkit.repository.export.ready.class_scores import score_classes
from tritonkit.repository.export.ready.detection import mean_average_precision
from tritonkit.repository.export.ready.detection_answers import TENSORS, detected_boxes, true_boxes
from tritonkit.repository.export.ready.downstream import Downstream, Output
from tritonkit.repository.export.ready.metrics import edits, normalized, plain_text
from tritonkit.repository.export.ready.prepared import Item, PreparedSamples
from tritonkit.repository.export.ready.vector_scores import score_cosine, score_ndcg, score_rmse, score_spearman
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.quality import Metric

__all__ = ["ReadyScore", "score_ready"]

_TEXTS = frozenset({"wer", "cer", "exact_match"})


@dataclass(frozen=True)
class ReadyScore:
    """A metric of a variant and of its reference: a number each, or a score of each item or group of items."""

    value: Any
    reference: Any
    covered: frozenset[str]
    """The network's outputs that it depends on."""


def score_ready(
    spec: Spec,
    metric: Metric,
    field: str,
    prepared: PreparedSamples,
    outputs: Sequence[Batch],
    reference: Sequence[Batch],
    batched: bool,
) -> ReadyScore:
    """A ready metric of a variant's outputs and of the reference's, in the order of the samples.

    Raises:
        BuildError: no output fits it, or the right answers are missing or do not fit.
    """
    where = f"{spec.file} {field}"
    downstream = Downstream(spec, prepared, batched)
    answers = RightAnswers(spec, prepared, metric)
    tensors = _tensors(metric, downstream.outputs(reference[0]), where)
    measured = list(tensors.values())
    reference_items = downstream.items(reference, measured)
    items = reference_items if outputs is reference else downstream.items(outputs, measured)
    sources = prepared.item_rows[: len(items)] or [(number, 0) for number in range(len(items))]

    def figure(of: Sequence[Item]) -> Any:
        return _FIGURES[metric.name](Case(metric, where, answers, tensors, of, reference_items, sources))

    names = list(reference[0])
    covered = {name for tensor in measured for name in downstream.network_outputs(tensor, names)}
    value = figure(items)
    return ReadyScore(value, value if items is reference_items else figure(reference_items), frozenset(covered))


def _tensors(metric: Metric, outputs: Sequence[Output], where: str) -> dict[str, str]:
    """The tensors that a metric reads, by their meaning."""
    if metric.output is not None and metric.output not in {output.name for output in outputs}:
        raise _no_output(metric, outputs, where, f"there is no output {metric.output!r}")
    if metric.name == "map50_95":
        return _detector(metric, outputs, where)
    if metric.output is not None:
        return {"output": metric.output}
    fitting = _fitting(metric.name, outputs)
    if len(fitting) != 1:
        names = " and ".join(output.name for output in fitting)
        raise _no_output(metric, outputs, where, f"{metric.name} fits {names or 'no output'}")
    return {"output": fitting[0].name}


def _fitting(name: str, outputs: Sequence[Output]) -> list[Output]:
    """The outputs that fit a metric: the network's own for classes, for all others those that callers get."""
    final = [output for output in outputs if output.final]
    if name in _TEXTS:
        return [output for output in final if output.kind == "O"]
    if name not in CLASS_METRICS:
        return [output for output in final if output.kind == "f"]
    network = [output for output in outputs if output.step is None]
    choices = (
        [output for output in network if output.kind == "f"],
        [output for output in network if output.kind in "ib"],
        [output for output in final if output.kind == "O"],
    )
    return next((fitting for fitting in choices if fitting), [])


def _detector(metric: Metric, outputs: Sequence[Output], where: str) -> dict[str, str]:
    names = {output.name for output in outputs}
    tensors = {key: next((name for name in usual if name in names), "") for key, usual in TENSORS.items()}
    if not all(tensors.values()):
        raise _no_output(metric, outputs, where, "there are no boxes, scores and classes")
    more = {name: name for name in ("count", "image_size") if name in names}
    return tensors | more


_FITTING = {
    **dict.fromkeys(CLASS_METRICS, "an output of the network with a score for each class"),
    **dict.fromkeys(_TEXTS, "an output of texts"),
    "map50_95": "outputs boxes [count, 4], scores and classes, as the step detect gives them",
    "cosine": "an output that is a vector",
    "rmse": "an output of numbers",
    "spearman": "an output that is one number or a vector",
    "ndcg_10": "an output that is one number, or a vector with pairs",
}


def _no_output(metric: Metric, outputs: Sequence[Output], where: str, found: str) -> BuildError:
    shown = ", ".join(output.text for output in outputs)
    return BuildError(
        where,
        found=f"{found}; the outputs are {shown}",
        wanted=_FITTING[metric.name],
        todo=f"name one: metric: {{name: {metric.name}, output: NAME}}; or choose another metric",
    )


def _classes(case: Case) -> Any:
    return score_classes(case.metric.name, case.values, case.reference, case.rows, case.answers, case.where)


def _text(value: Any) -> str:
    first = value.ravel()[0] if value.size else b""
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)


def _texts(case: Case, *, articles: bool) -> list[tuple[str, list[str]]]:
    """Each item's text, and the right ones."""

    def clean(text: str) -> str:
        return normalized(text, articles=articles) if case.metric.normalize else plain_text(text)

    labels = case.answers.of_rows(case.rows, "the right text of each row")
    right = [_right_texts(case, row, label) for row, label in zip(case.rows, labels, strict=True)]
    return [(clean(_text(value)), list(map(clean, texts))) for value, texts in zip(case.values, right, strict=True)]


def _right_texts(case: Case, row: int, label: Any) -> list[str]:
    """The texts of a row of which any is right."""
    texts = label if isinstance(label, list) else [label]
    if not texts or not all(isinstance(text, str | int | float) for text in texts):
        raise case.answers.refused(row, f"found {label!r}"[:80], "a text, or a list of texts")
    return [str(text) for text in texts]


def _exact_match(case: Case) -> Any:
    import numpy as np

    return np.array([float(text in right) for text, right in _texts(case, articles=False)])


def _error_rate(case: Case, parts: Callable[[str], Sequence[str]]) -> float:
    """Edits of all items together, relative to the length of the right texts."""
    wrong = length = 0
    for text, right in _texts(case, articles=True):
        distances = [(edits(parts(one), parts(text)), len(parts(one))) for one in right]
        distance, parts_of_best = min(distances, key=lambda one: one[0])
        wrong, length = wrong + distance, length + parts_of_best
    if not length:
        raise BuildError(case.where, found="all right texts are empty", wanted="texts to compare with")
    return wrong / length


def _precision(case: Case) -> float:
    labels = case.answers.of_rows(case.rows, "the right boxes of each row")
    right = [
        true_boxes(row, value, item, case.tensors, case.answers)
        for row, value, item in zip(case.rows, labels, case.items, strict=True)
    ]
    if not any(image.classes for image in right):
        raise BuildError(case.where, found="no row has a box", wanted="right boxes to compare with")
    return mean_average_precision([detected_boxes(item, case.tensors, case.answers) for item in case.items], right)


_FIGURES: dict[str, Callable[[Case], Any]] = {
    **dict.fromkeys(CLASS_METRICS, _classes),
    "map50_95": _precision,
    "wer": lambda case: _error_rate(case, str.split),
    "cer": lambda case: _error_rate(case, list),
    "exact_match": _exact_match,
    "spearman": score_spearman,
    "ndcg_10": score_ndcg,
    "cosine": score_cosine,
    "rmse": score_rmse,
}
