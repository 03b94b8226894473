"""Ready metrics: the outputs that each measures, and its score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.ready.answers import CLASS_METRICS, RightAnswers
from tritonkit.repository.export.ready.behind import Behind, Output
from tritonkit.repository.export.ready.cells import to_array
from tritonkit.repository.export.ready.class_scores import score_classes
from tritonkit.repository.export.ready.detection import mean_average_precision
from tritonkit.repository.export.ready.detection_answers import TENSORS, found_boxes, true_boxes
from tritonkit.repository.export.ready.metrics import (
    edits,
    ndcg,
    normalized,
    plain_text,
    root_mean_square,
    row_cosines,
    spearman,
)
from tritonkit.repository.export.ready.prepared import Item, PreparedSamples, missing_column
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec import SampleFiles, Spec
from tritonkit.repository.modelspec.quality import Metric

__all__ = ["ReadyScore", "score_ready"]

_TEXTS = frozenset({"wer", "cer", "exact_match"})
_DEPTH = 10


@dataclass(frozen=True)
class ReadyScore:
    """A metric of a variant and of its reference: a number each, or a score of each item or group of items."""

    value: Any
    reference: Any
    covered: frozenset[str]
    """The network's outputs that it depends on."""


@dataclass(frozen=True)
class _Case:
    """Everything that one metric looks at, for one set of outputs."""

    metric: Metric
    where: str
    answers: RightAnswers
    tensors: Mapping[str, str]
    items: Sequence[Item]
    truth: Sequence[Item]
    """The same of the reference, which stands for the right answers where there are none."""
    sources: Sequence[tuple[int, int]]
    """The row of each item, and its side in a pair."""

    @property
    def values(self) -> list[Any]:
        """The measured output of each item."""
        return [item[self.tensors["output"]] for item in self.items]

    @property
    def expected(self) -> list[Any]:
        """The same of the reference."""
        return [item[self.tensors["output"]] for item in self.truth]

    @property
    def rows(self) -> list[int]:
        """The row of each item."""
        return [row for row, _ in self.sources]


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
    behind = Behind(spec, prepared, batched)
    answers = RightAnswers(spec, prepared, metric)
    tensors = _tensors(metric, behind.outputs(reference[0]), where)
    wanted = list(tensors.values())
    truth = behind.items(reference, wanted)
    items = truth if outputs is reference else behind.items(outputs, wanted)
    sources = prepared.item_rows[: len(items)] or [(number, 0) for number in range(len(items))]

    def figure(of: Sequence[Item]) -> Any:
        return _FIGURES[metric.name](_Case(metric, where, answers, tensors, of, truth, sources))

    names = list(reference[0])
    covered = {name for tensor in wanted for name in behind.network_outputs(tensor, names)}
    value = figure(items)
    return ReadyScore(value, value if items is truth else figure(truth), frozenset(covered))


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
    """The outputs that a metric can be of: scores of classes from the network, all others as callers get them."""
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
    tensors = {key: next((name for name in known if name in names), "") for key, known in TENSORS.items()}
    if not all(tensors.values()):
        raise _no_output(metric, outputs, where, "there are no boxes, scores and classes")
    more = {name: name for name in ("count", "image_size") if name in names}
    return tensors | more


_WANTED = {
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
        wanted=_WANTED[metric.name],
        todo=f"name one: metric: {{name: {metric.name}, output: NAME}}; or choose another metric",
    )


def _classes(case: _Case) -> Any:
    return score_classes(case.metric.name, case.values, case.expected, case.rows, case.answers, case.where)


def _cosine(case: _Case) -> Any:
    import numpy as np

    values = [value.ravel() for value in case.values]
    if case.answers.column is None:
        return row_cosines(np.stack(values), np.stack([value.ravel() for value in case.expected]))
    return row_cosines(np.stack(values), np.stack(_given(case, values)))


def _rmse(case: _Case) -> float:
    values = [value.ravel() for value in case.values]
    if case.answers.column is None:
        return root_mean_square(values, [value.ravel() for value in case.expected])
    return root_mean_square(values, _given(case, values))


def _given(case: _Case, values: Sequence[Any]) -> list[Any]:
    """The right numbers of each item, as many as the output has."""
    given = []
    for row, value, cell in zip(case.rows, values, case.answers.of_rows(case.rows, "the right numbers"), strict=True):
        try:
            given.append(to_array(cell, "FP64", (-1,) if value.size > 1 else (1,)))
        except ValueError as error:
            found, _, wanted = str(error).partition("; wanted ")
            raise case.answers.refused(row, found, wanted) from None
        if given[-1].size != value.size:
            raise case.answers.refused(row, f"it has {given[-1].size} numbers", f"{value.size}, as the output has")
    return given


def _text(value: Any) -> str:
    first = value.ravel()[0] if value.size else b""
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)


def _texts(case: _Case, *, articles: bool) -> list[tuple[str, list[str]]]:
    """Each item's text, and the right ones."""

    def clean(text: str) -> str:
        return normalized(text, articles=articles) if case.metric.normalize else plain_text(text)

    labels = case.answers.of_rows(case.rows, "the right text of each row")
    right = [label if isinstance(label, list) else [label] for label in labels]
    return [(clean(_text(v)), [clean(str(one)) for one in many]) for v, many in zip(case.values, right, strict=True)]


def _exact_match(case: _Case) -> Any:
    import numpy as np

    return np.array([float(text in right) for text, right in _texts(case, articles=False)])


def _error_rate(case: _Case, parts: Callable[[str], Sequence[str]]) -> float:
    """Edits of all items together, relative to the length of the right texts."""
    wrong = length = 0
    for text, right in _texts(case, articles=True):
        best = min(right, key=lambda one: edits(parts(one), parts(text)))
        wrong, length = wrong + edits(parts(best), parts(text)), length + len(parts(best))
    if not length:
        raise BuildError(case.where, found="all right texts are empty", wanted="texts to compare with")
    return wrong / length


def _row_scores(case: _Case) -> dict[int, float]:
    """One score for each row: the output itself, or the cosine of a pair's two vectors."""
    import numpy as np

    paired = max((side for _, side in case.sources), default=0) > 0
    if not paired:
        for value in case.values:
            if value.size != 1:
                raise BuildError(
                    case.where,
                    found=f"{case.metric.name} of an output of the shape {list(value.shape)}",
                    wanted="one number for each row; or two vectors, which are compared",
                    todo="name the two columns of a row: samples: {..., pairs: {INPUT: [COLUMN, COLUMN]}}",
                )
        return {row: float(value.ravel()[0]) for row, value in zip(case.rows, case.values, strict=True)}
    sides: tuple[dict[int, Any], dict[int, Any]] = {}, {}
    for (row, side), value in zip(case.sources, case.values, strict=True):
        sides[side][row] = value.ravel()
    rows = [row for row in sides[0] if row in sides[1]]
    cosines = row_cosines(np.stack([sides[0][row] for row in rows]), np.stack([sides[1][row] for row in rows]))
    return dict(zip(rows, cosines.tolist(), strict=True))


def _spearman(case: _Case) -> float:
    if case.answers.column is None:
        return _rank_of_pairs(case)
    scores = _row_scores(case)
    return spearman(list(scores.values()), _numbers(case, list(scores)))


def _rank_of_pairs(case: _Case) -> float:
    """Without right answers: rank correlation with the reference, of numbers or of the similarities of all pairs."""
    import numpy as np

    values, expected = (np.stack([v.ravel() for v in side]) for side in (case.values, case.expected))
    if values.shape[1] == 1:
        return spearman(values[:, 0], expected[:, 0])
    upper = np.triu_indices(len(values), k=1)
    similarities = []
    for vectors in (values, expected):
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        similarities.append(((vectors / lengths) @ (vectors / lengths).T)[upper])
    return spearman(*similarities)


def _numbers(case: _Case, rows: Sequence[int]) -> list[float]:
    labels = case.answers.of_rows(rows, "a number for each row")
    numbers = []
    for row, label in zip(rows, labels, strict=True):
        try:
            numbers.append(float(label))
        except (TypeError, ValueError):
            raise case.answers.refused(row, f"found {label!r}", "a number") from None
    return numbers


def _ndcg(case: _Case) -> Any:
    """One value for each group of rows."""
    import numpy as np

    files, rows = case.answers.spec.model.quality.samples, case.answers.prepared.rows
    column = files.group if isinstance(files, SampleFiles) else None
    if rows is None or column is None or column not in rows.columns:
        if rows is not None and column is not None:
            raise missing_column(case.answers.spec, "quality.samples.group", rows, column, " for the query")
        raise BuildError(
            f"{case.answers.spec.file} quality.samples.group",
            found="it is not given",
            wanted="the column that says which rows belong to one query",
            todo="name it: samples: {..., group: COLUMN}",
        )
    scores = _row_scores(case)
    relevance = _numbers(case, list(scores))
    groups: dict[str, list[tuple[float, float]]] = {}
    for (row, score), gain in zip(scores.items(), relevance, strict=True):
        groups.setdefault(str(case.answers.row(row).values.get(column)), []).append((score, gain))
    values = [np.array(group, np.float64).T for group in groups.values()]
    return np.array([ndcg(own, gains, _DEPTH) for own, gains in values])


def _precision(case: _Case) -> float:
    truth = case.answers.of_rows(case.rows, "the right boxes of each row")
    right = [
        true_boxes(row, value, item, case.tensors, case.answers)
        for row, value, item in zip(case.rows, truth, case.items, strict=True)
    ]
    if not any(image.classes for image in right):
        raise BuildError(case.where, found="no row has a box", wanted="right boxes to compare with")
    return mean_average_precision([found_boxes(item, case.tensors, case.answers) for item in case.items], right)


_FIGURES: dict[str, Callable[[_Case], Any]] = {
    **dict.fromkeys(CLASS_METRICS, _classes),
    "map50_95": _precision,
    "wer": lambda case: _error_rate(case, str.split),
    "cer": lambda case: _error_rate(case, list),
    "exact_match": _exact_match,
    "spearman": _spearman,
    "ndcg_10": _ndcg,
    "cosine": _cosine,
    "rmse": _rmse,
}
