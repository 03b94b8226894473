"""The formulas of the ready metrics, on plain arrays and texts."""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Any

__all__ = [
    "binary_auc",
    "edits",
    "f1_of_classes",
    "f1_of_columns",
    "mean_auc",
    "ndcg",
    "normalized",
    "plain_text",
    "ranks",
    "root_mean_square",
    "row_cosines",
    "softmax",
    "spearman",
]

_FARTHEST = 1e9
"""Value in place of a difference that is not finite."""


def f1_of_classes(predicted: Any, labels: Any, average: str) -> float:
    """F1 of class numbers, int [items] each; macro is the mean over all classes that occur in either."""
    import numpy as np

    if average == "micro":
        return float((predicted == labels).mean())
    classes = np.union1d(predicted, labels)
    return float(np.mean([_f1(predicted == one, labels == one) for one in classes]))


def f1_of_columns(predicted: Any, labels: Any, average: str) -> float:
    """F1 of several labels for each item, bool [items, classes] each."""
    import numpy as np

    if average == "micro":
        return _f1(predicted.ravel(), labels.ravel())
    return float(np.mean([_f1(predicted[:, column], labels[:, column]) for column in range(labels.shape[1])]))


def _f1(predicted: Any, labels: Any) -> float:
    """2 TP / (2 TP + FP + FN); 0 where nothing is predicted and nothing is there."""
    both = int((predicted & labels).sum())
    total = int(predicted.sum()) + int(labels.sum())
    return 2 * both / total if total else 0.0


def binary_auc(scores: Any, positive: Any) -> float:
    """Area under the ROC curve by Mann and Whitney's U: float [items], bool [items] with both values."""
    count = int(positive.sum())
    total = ranks(scores)[positive].sum() - count * (count + 1) / 2
    return float(total / (count * (len(positive) - count)))


def mean_auc(scores: Any, positive: Any) -> float:
    """The mean area of the columns in which both values occur: float and bool [items, classes]."""
    import numpy as np

    mixed = [c for c in range(positive.shape[1]) if 0 < positive[:, c].sum() < len(positive)]
    return float(np.mean([binary_auc(scores[:, c], positive[:, c]) for c in mixed])) if mixed else math.nan


def softmax(logits: Any) -> Any:
    """Probabilities of each row: float64 [items, classes]."""
    import numpy as np

    logits = np.asarray(logits, np.float64)
    with np.errstate(invalid="ignore"):  # infinity less infinity is NaN
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def ranks(values: Any) -> Any:
    """The rank of each value, from 1: equal values share their mean rank, and NaN ranks lowest."""
    import numpy as np

    values = np.nan_to_num(np.asarray(values, np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def spearman(values: Any, truth: Any) -> float:
    """Rank correlation, float [items] each; 0 where either is the same for all, as of one item."""
    import numpy as np

    if len(values) < 2:
        return 0.0
    left, right = (r - r.mean() for r in (ranks(values), ranks(truth)))
    length = math.sqrt(float((left**2).sum() * (right**2).sum()))
    return float(np.dot(left, right)) / length if length else 0.0


def ndcg(scores: Any, relevance: Any, depth: int) -> float:
    """Normalized discounted cumulative gain of one query, float [documents] each; gains are the relevances.

    Documents of equal score share the mean of their places (McSherry and Najork 2008). 0 without a relevant document.
    """
    import numpy as np

    discounts = np.where(np.arange(len(scores)) < depth, 1 / np.log2(np.arange(len(scores)) + 2), 0)
    ideal = float(np.dot(np.sort(relevance)[::-1], discounts))
    scores = np.nan_to_num(scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    _, place, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    gains = np.bincount(place, weights=relevance) / counts
    shares = np.add.reduceat(discounts, np.cumsum(counts) - counts)
    return float(np.dot(gains, shares)) / ideal if ideal > 0 else 0.0


def row_cosines(left: Any, right: Any) -> Any:
    """Cosine of each pair of rows, float [items, width] each; 1 for two zero vectors, -1 where one is not finite."""
    import numpy as np

    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        products = (left * right).sum(axis=1)
        cosines = np.divide(products, lengths, out=np.zeros(len(left)), where=lengths > 0)
    both_zero = ~left.any(axis=1) & ~right.any(axis=1)
    return np.where(both_zero, 1.0, np.where(np.isfinite(cosines) & np.isfinite(lengths), cosines, -1.0))


def root_mean_square(values: Any, truth: Any) -> float:
    """Root of the mean square difference of two lists of arrays of equal shapes."""
    import numpy as np

    differences = np.concatenate(
        [np.ravel(v).astype(np.float64) - np.ravel(t) for v, t in zip(values, truth, strict=True)]
    )
    differences = np.nan_to_num(differences, nan=_FARTHEST, posinf=_FARTHEST, neginf=-_FARTHEST)
    return math.sqrt(float((differences**2).mean()))


def edits(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Levenshtein's distance: insertions, deletions and substitutions that turn one sequence into the other."""
    import numpy as np

    numbers = {part: number for number, part in enumerate(dict.fromkeys([*left, *right]))}
    columns = np.array([numbers[part] for part in right], np.int64)
    steps = np.arange(len(columns) + 1)
    row = steps
    for count, part in enumerate(left, start=1):
        best = np.minimum(row[1:] + 1, row[:-1] + (columns != numbers[part]))
        # An insertion follows the best value before it: a running minimum once the steps are taken off.
        row = np.minimum.accumulate(np.concatenate([[count], best]) - steps) + steps
    return int(row[-1])


def plain_text(text: str) -> str:
    """The text in Unicode's composed form, with one space for all white space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def normalized(text: str, *, articles: bool = True) -> str:
    """The text in lower case without punctuation; without `articles` also without a, an and the, as in SQuAD."""
    text = "".join(c for c in text.lower() if c not in string.punctuation and unicodedata.category(c)[0] != "P")
    return plain_text(text if articles else re.sub(r"\b(a|an|the)\b", " ", text))
