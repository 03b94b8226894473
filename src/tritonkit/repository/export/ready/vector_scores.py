"""Metrics of numbers and vectors: cosine, root mean square, rank correlation, and the ranking of documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.ready.case import Case
from tritonkit.repository.export.ready.cells import to_array
from tritonkit.repository.export.ready.metrics import ndcg, root_mean_square, row_cosines, spearman
from tritonkit.repository.export.ready.prepared import missing_column
from tritonkit.repository.modelspec import SampleFiles

__all__ = ["score_cosine", "score_ndcg", "score_rmse", "score_spearman"]

_DEPTH = 10
_MOST_COMPARED = 2000
"""Most items whose similarities to all others are computed: their number grows with the square."""


def score_cosine(case: Case) -> Any:
    """The cosine of each item's vector and the right one: float64 [items]."""
    import numpy as np

    values = _vectors(case.values)
    expected = _expected(case, values)
    return np.concatenate([row_cosines(one[None], other[None]) for one, other in zip(values, expected, strict=True)])


def score_rmse(case: Case) -> float:
    """The root of the mean square difference of all numbers."""
    values = _vectors(case.values)
    return root_mean_square(values, _expected(case, values))


def _vectors(arrays: Sequence[Any]) -> list[Any]:
    return [array.reshape(-1) for array in arrays]


def _expected(case: Case, values: Sequence[Any]) -> list[Any]:
    """The vector with which each item's is compared: the right one, or the reference's."""
    if case.answers.column is not None:
        return _given(case, values)
    expected = _vectors(case.reference)
    for number, (value, other) in enumerate(zip(values, expected, strict=True)):
        if value.size != other.size:
            raise BuildError(
                case.where,
                found=f"item {number} of the output has {value.size} numbers, and {other.size} from the reference",
                wanted="as many numbers as from the reference",
                todo=f"choose another metric, or another output: metric: {{name: {case.metric.name}, output: NAME}}",
            )
    return expected


def _given(case: Case, values: Sequence[Any]) -> list[Any]:
    """The right numbers of each item, as many as the output has."""
    import numpy as np

    given = []
    for row, value, cell in zip(case.rows, values, case.answers.of_rows(case.rows, "the right numbers"), strict=True):
        try:
            given.append(to_array(cell, "FP64", (-1,) if value.size > 1 else (1,)))
        except ValueError as error:
            found, _, wanted = str(error).partition("; wanted ")
            raise case.answers.refused(row, found, wanted) from None
        if given[-1].size != value.size:
            raise case.answers.refused(row, f"it has {given[-1].size} numbers", f"{value.size}, as the output has")
        if not np.isfinite(given[-1]).all():
            raise case.answers.refused(row, "it has NaN or an infinite number", "finite numbers")
    return given


def _row_scores(case: Case) -> dict[int, float]:
    """One score for each row: the output itself, or the cosine of a pair's two vectors."""
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
    pairs = {row: (vector, sides[1][row]) for row, vector in sides[0].items() if row in sides[1]}
    for row, (left, right) in pairs.items():
        if left.size != right.size:
            place = case.answers.row(row).place
            raise BuildError(
                case.where,
                found=f"{place}: the outputs of its two items have {left.size} and {right.size} numbers",
                wanted="vectors of one length, which can be compared",
                todo="name an output whose size does not follow from the input: metric: {name: ..., output: NAME}",
            )
    return {row: float(row_cosines(left[None], right[None])[0]) for row, (left, right) in pairs.items()}


def score_spearman(case: Case) -> float:
    """The rank correlation of the rows' scores with the right numbers, or with the reference's."""
    if case.answers.column is None:
        return _rank_of_pairs(case)
    scores = _row_scores(case)
    return spearman(list(scores.values()), _numbers(case, list(scores)))


def _rank_of_pairs(case: Case) -> float:
    """The rank correlation with the reference in place of right answers: of numbers, or of all pairs' similarities."""
    import numpy as np

    sizes = sorted({value.size for value in case.values})
    if len(sizes) > 1:
        raise BuildError(
            case.where,
            found=f"the outputs of the items have {sizes[0]} to {sizes[-1]} numbers",
            wanted="vectors of one length, which can be compared",
            todo="name another output: metric: {name: spearman, output: NAME}; or give right answers",
        )
    count = len(case.values) if sizes == [1] else min(len(case.values), _MOST_COMPARED)
    evenly = np.linspace(0, len(case.values) - 1, count).round().astype(int)
    values, expected = (
        np.stack([side[place].reshape(-1) for place in evenly]).astype(np.float64)
        for side in (case.values, case.reference)
    )
    if sizes == [1]:
        return spearman(values[:, 0], expected[:, 0])
    upper = np.triu_indices(count, k=1)
    similarities = []
    for vectors in (values, expected):
        with np.errstate(invalid="ignore"):  # what is not finite ranks lowest
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            similarities.append((vectors @ vectors.T)[upper])
    return spearman(*similarities)


def _numbers(case: Case, rows: Sequence[int]) -> list[float]:
    labels = case.answers.of_rows(rows, "a number for each row")
    numbers = []
    for row, label in zip(rows, labels, strict=True):
        try:
            numbers.append(float(label))
        except (TypeError, ValueError, OverflowError):
            raise case.answers.refused(row, f"found {label!r}"[:80], "a number") from None
        if not math.isfinite(numbers[-1]):
            raise case.answers.refused(row, f"found {label!r}", "a finite number")
    return numbers


def score_ndcg(case: Case) -> Any:
    """One value for each group of rows: float64 [groups]."""
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
