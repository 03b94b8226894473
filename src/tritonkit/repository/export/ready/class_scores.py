"""Accuracy, top_5, F1 and AUC: outputs that name or score classes, compared with the right classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.ready.answers import RightAnswers
from tritonkit.repository.export.ready.metrics import binary_auc, f1_of_classes, f1_of_columns, mean_auc, softmax

__all__ = ["score_classes"]

_DEPTH = 5
_LABELS = "the right class of each row"


@dataclass(frozen=True)
class _Classes:
    """Classes of all places that count (one for each item, token or pixel).

    Args:
        scores: float [places, classes]; None where the output is the class itself.
        best: the predicted class, int [places]; -1 for none.
        labels: the right class, int [places].
        single: whether each item has exactly one place.
    """

    scores: Any
    best: Any
    labels: Any
    single: bool


def score_classes(
    name: str, values: Sequence[Any], reference: Sequence[Any], rows: Sequence[int], answers: RightAnswers, where: str
) -> Any:
    """A number, or a score of each item: float64 [items].

    Args:
        name: a metric of classes.
        values: the output of each item.
        reference: the same of the reference, which alone decides whether scores are probabilities.
        rows: the row of each item.
    """
    import numpy as np

    labels = answers.of_rows(rows, _LABELS)
    if values[0].dtype.kind in "OSU":
        return _of_names(name, values, labels, rows, answers, where)
    probable = _are_probabilities(reference)
    middle = 0.5 if probable else 0.0
    columns = _columns(values, labels, rows, answers)
    if columns is not None:
        return _of_columns(name, np.stack(values), columns, middle, where)
    classes = _classes(values, labels, rows, answers, middle, where)
    if name == "auc":
        chances = probable and _sum_to_one(_classes(reference, labels, rows, answers, middle, where).scores)
        return _area(classes, chances, where)
    return _of_classes(name, classes, where)


def _unfit(where: str, found: str, wanted: str) -> BuildError:
    return BuildError(
        where,
        found=found,
        wanted=wanted,
        todo="choose another metric, or another output: metric: {name: ..., output: NAME}",
    )


def _of_names(
    name: str, values: Sequence[Any], labels: Sequence[Any], rows: Sequence[int], answers: RightAnswers, where: str
) -> Any:
    """Names of classes, best first, compared with the right name; an item without a name has no class."""
    import numpy as np

    if name == "auc":
        raise _unfit(where, "auc of an output of texts", "an output with a score for each class")
    given = [
        [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in v.flat] for v in values
    ]
    right = [_right_name(row, label, answers) for row, label in zip(rows, labels, strict=True)]
    if name in ("accuracy", "top_5"):
        depth = 1 if name == "accuracy" else _DEPTH
        return np.array([float(text in texts[:depth]) for texts, text in zip(given, right, strict=True)])
    first = [next(iter(texts), None) for texts in given]
    numbers = {text: number for number, text in enumerate(dict.fromkeys([*right, *first]))}
    predicted, expected = (np.array([numbers[text] for text in texts]) for texts in (first, right))
    return f1_of_classes(predicted, expected, "micro" if name == "f1_micro" else "macro")


def _right_name(row: int, label: Any, answers: RightAnswers) -> str:
    """The name that a row names or numbers."""
    if isinstance(label, list | dict):
        raise answers.refused(row, f"it is a {type(label).__name__}", "the name of one class")
    if not answers.classes:
        return str(label)
    number = answers.class_number(row, label, len(answers.classes))
    if number < 0:
        raise answers.refused(row, f"there is no class {label!r}", f"a name, or 0 to {len(answers.classes) - 1}")
    return answers.classes[number]


def _columns(values: Sequence[Any], labels: Sequence[Any], rows: Sequence[int], answers: RightAnswers) -> Any:
    """Several labels for each item as bool [items, classes]; None where an item, or each place, has one label."""
    import numpy as np

    width = values[0].shape[0] if values[0].ndim == 1 else 0
    if width < 2 or values[0].dtype.kind != "f" or not all(isinstance(label, list) for label in labels):
        return None
    if all(len(label) == width and all(one in (0, 1) for one in label) for label in labels):
        return np.array(labels, bool)
    columns = np.zeros((len(labels), width), bool)
    for place, (row, label) in enumerate(zip(rows, labels, strict=True)):
        numbers = [answers.class_number(row, one, width) for one in label]
        if -1 in numbers:
            below = label[numbers.index(-1)]
            raise answers.refused(row, f"there is no class {below!r}", f"0 to {width - 1}, or 0 and 1 for each class")
        columns[place, numbers] = True
    return columns


def _of_columns(name: str, scores: Any, labels: Any, middle: float, where: str) -> Any:
    if name == "top_5":
        raise _unfit(where, "top_5 of rows with several right classes each", "one right class for each row")
    if name == "auc":
        return _defined(mean_auc(scores, labels), where)
    predicted = scores > middle
    if name == "accuracy":
        return (predicted == labels).all(axis=1).astype(float)
    return f1_of_columns(predicted, labels, "micro" if name == "f1_micro" else "macro")


def _classes(
    values: Sequence[Any], labels: Sequence[Any], rows: Sequence[int], answers: RightAnswers, middle: float, where: str
) -> _Classes:
    """The places of all items, one after the other, without those whose label is below 0."""
    import numpy as np

    scores, best, right = [], [], []
    for row, value, label in zip(rows, values, labels, strict=True):
        numbers, own = _places(row, value, label, answers, middle, where)
        counts = numbers >= 0
        right.append(numbers[counts])
        best.append(_best(own, middle)[counts] if value.dtype.kind == "f" else own[counts])
        scores.append(own[counts] if value.dtype.kind == "f" else None)
    given = [one for one in scores if one is not None]
    joined: Any = np.concatenate(given) if len(given) == len(scores) else None
    single = all(len(numbers) == 1 for numbers in right)
    classes = _Classes(joined, np.concatenate(best), np.concatenate(right), single)
    if not len(classes.labels):
        raise _unfit(where, "no row has a label that counts (0 or more)", _LABELS)
    return classes


def _places(row: int, value: Any, label: Any, answers: RightAnswers, middle: float, where: str) -> tuple[Any, Any]:
    """Labels int [places], and scores float [places, classes] or classes int [places], of one item."""
    import numpy as np

    try:
        labels = np.asarray(label)
    except ValueError:
        raise answers.refused(row, "its lists have different lengths", "one class for each place") from None
    shape = labels.shape
    if value.dtype.kind != "f":  # the class itself
        if value.size != labels.size:
            raise answers.refused(row, f"it has the shape {list(shape)}", f"{list(value.shape)}, as the output has")
        return _class_numbers(row, labels, 1 << 62, answers), value.reshape(-1).astype(np.int64)
    if value.size == 1 and labels.size == 1:
        return _class_numbers(row, labels, 2, answers), value.reshape(1, 1)
    if not shape and value.ndim > 1 and value.size == max(value.shape):
        value = value.reshape(-1)
    if shape == value.shape[:-1]:
        scores = value.reshape(-1, value.shape[-1])
    elif shape == value.shape[1:]:  # classes first, as in segmentation
        scores = np.moveaxis(value, 0, -1).reshape(-1, value.shape[0])
    elif len(shape) == 1 and value.ndim == 2 and shape[0] < value.shape[0]:  # labels without those of the padding
        scores = value[: shape[0]]
    else:
        raise answers.refused(
            row,
            f"the label has the shape {list(shape)}, and the output {list(value.shape)}",
            "one class for each place",
        )
    width = max(2, scores.shape[1])  # one score decides between two classes
    return _class_numbers(row, labels, width, answers), scores


def _class_numbers(row: int, labels: Any, count: int, answers: RightAnswers) -> Any:
    """The number of each place's class, int64 [places]; each distinct label is looked up once."""
    import numpy as np

    flat = labels.reshape(-1)
    if flat.dtype.kind == "O":  # numpy cannot order it
        return np.array([answers.class_number(row, one, count) for one in flat], np.int64)
    distinct, places = np.unique(flat, return_inverse=True)
    return np.array([answers.class_number(row, one, count) for one in distinct.tolist()], np.int64)[places]


def _best(scores: Any, middle: float) -> Any:
    """The class with the highest score; -1 where a score is NaN."""
    import numpy as np

    best = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > middle).astype(np.int64)
    return np.where(np.isnan(scores).any(axis=1), -1, best)


def _of_classes(name: str, classes: _Classes, where: str) -> Any:
    import numpy as np

    if name == "top_5":
        return _top(classes, where)
    if name == "accuracy":
        hits = (classes.best == classes.labels).astype(float)
        return hits if classes.single else float(np.mean(hits))
    return f1_of_classes(classes.best, classes.labels, "micro" if name == "f1_micro" else "macro")


def _top(classes: _Classes, where: str) -> Any:
    import numpy as np

    if classes.scores is None or classes.scores.shape[1] <= _DEPTH:
        count = "no scores" if classes.scores is None else f"{classes.scores.shape[1]} classes"
        raise _unfit(where, f"top_5 of an output with {count}", f"scores of more than {_DEPTH} classes")
    # Of equal scores the first ones count, as with argmax: a constant output is not right everywhere.
    best = np.argsort(-classes.scores, axis=1, kind="stable")[:, :_DEPTH]
    hits = (best == classes.labels[:, None]).any(axis=1) & (classes.best >= 0)
    return hits.astype(float) if classes.single else float(hits.mean())


def _area(classes: _Classes, chances: bool, where: str) -> float:
    """AUC: of two classes, or the mean of each class against the others; `chances` says that scores are such."""
    import numpy as np

    if classes.scores is None:
        raise _unfit(where, "auc of an output that is the class itself", "an output with a score for each class")
    scores = classes.scores.astype(np.float64)
    if scores.shape[1] <= 2:
        with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, which ranks lowest
            values = scores[:, -1] - (scores[:, 0] if scores.shape[1] == 2 else 0)
        positive = classes.labels == 1
        return _defined(binary_auc(values, positive) if 0 < positive.sum() < len(positive) else math.nan, where)
    values = scores if chances else softmax(scores)
    return _defined(mean_auc(values, classes.labels[:, None] == np.arange(scores.shape[1])), where)


def _defined(area: float, where: str) -> float:
    if math.isnan(area):
        raise _unfit(where, "auc of rows of one class", "rows of at least two classes")
    return area


def _are_probabilities(values: Sequence[Any]) -> bool:
    import numpy as np

    return all(value.dtype.kind == "f" and bool(np.all((value >= 0) & (value <= 1))) for value in values)


def _sum_to_one(scores: Any) -> bool:
    """Whether each place's scores, float [places, classes], are shares of one."""
    import numpy as np

    return bool(np.allclose(scores.sum(axis=1, dtype=np.float64), 1, atol=1e-3))
