"""Read the text files of LightGBM's `save_model`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.repository.trees.forest import MAX_CATEGORY, ZERO, Forest, Tree, numbers, whole_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_lightgbm"]

_VERSIONS = ("v2", "v3", "v4")
_LINKS = {
    "regression": "identity",
    "regression_l1": "identity",
    "huber": "identity",
    "fair": "identity",
    "quantile": "identity",
    "mape": "identity",
    "lambdarank": "identity",
    "rank_xendcg": "identity",
    "poisson": "exp",
    "gamma": "exp",
    "tweedie": "exp",
    "binary": "sigmoid",
    "cross_entropy": "sigmoid",
    "cross_entropy_lambda": "softplus",
    "multiclass": "softmax",
    "multiclassova": "sigmoid",
}
"""Objective -> what becomes of a row's sum."""
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_MISSING_SHIFT, _NONE, _ZERO, _NAN = 2, 0, 1, 2
"""Bits of a node's decision_type: two flags, and behind them whether nothing, 0 or NaN is a missing value."""
_WORD = 32
_GENERIC = re.compile(r"Column_\d+")
"""The name of a column that had none."""


def read_lightgbm(text: str) -> Forest:
    """The forest of a file.

    Raises:
        UsageError: it lacks something or has it in another form; the error's place says which tree and key.
    """
    head, *blocks = re.split(r"^Tree=", text.partition("\nend of trees")[0], flags=re.MULTILINE)
    _hold_whole(text)
    header = _fields(head)
    if header.get("version") not in _VERSIONS:
        raise UsageError(
            "version",
            found=header.get("version") or "none",
            wanted=f"one of {', '.join(_VERSIONS)}, the versions of LightGBM's format that are known here",
            todo='save the model by LightGBM 2 to 4: booster.save_model("model.txt")',
        )
    features = _whole(header, "max_feature_idx") + 1
    per_round = _whole(header, "num_tree_per_iteration")
    if not 0 < per_round <= max(len(blocks), 1):
        raise UsageError("num_tree_per_iteration", found=f"{per_round} for {len(blocks)} trees", wanted="1 or more")
    average = per_round / len(blocks) if "average_output" in head.split("\n") else 1.0
    trees, zero_missing = _trees(blocks, per_round)
    link, scale, notes = _objective(header)
    names = tuple(header.get("feature_names", "").split())
    categorical = _by_infos(header) | {int(tree.feature[node]) for tree in trees for node in tree.sets}
    return Forest(
        f"LightGBM {header['version']}",
        trees,
        features,
        per_round,
        np.zeros(per_round),
        link=link,
        scale=scale * average,
        dtype="FP64",
        names=() if all(map(_GENERIC.fullmatch, names)) else names,
        categorical=frozenset(categorical),
        categories=_categories(text, categorical),
        zero_missing=frozenset(zero_missing),
        fractions=True,
        notes=notes,
    )


def _hold_whole(text: str) -> None:
    """UsageError for a file that is cut off. LightGBM itself crashes on one that ends within its parameters."""
    for part, begun in (("trees", True), ("parameters", "\nparameters:" in text)):
        if begun and f"\nend of {part}" not in text:
            raise UsageError(
                "",
                found=f"the file ends within its {part}",
                wanted=f"the line `end of {part}`",
                todo="copy it again, or save the model again",
            )


def _trees(blocks: Sequence[str], per_round: int) -> tuple[list[Tree], set[int]]:
    """The trees, and the columns in which 0 is a missing value."""
    trees: list[Tree] = []
    zero: set[int] = set()
    nan: set[int] = set()
    for number, block in enumerate(blocks):
        try:
            tree, missing = _tree(_fields(block), number % per_round)
        except UsageError as error:
            error.where = f"Tree={number}: {error.where}"
            raise
        trees.append(tree)
        missing[list(tree.sets)] = _NONE
        zero |= set(tree.feature[missing == _ZERO].tolist())
        nan |= set(tree.feature[missing == _NAN].tolist())
    if both := zero & nan:
        raise UsageError(
            "decision_type", found=f"both 0 and NaN are missing values of column {min(both)}", wanted="one of them"
        )
    return trees, zero


def _fields(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _whole(fields: Mapping[str, str], key: str) -> int:
    try:
        return int(fields[key])
    except (KeyError, ValueError):
        found = repr(fields[key])[:40] if key in fields else "it is missing"
        raise UsageError(key, found=found, wanted="a whole number") from None


def _objective(header: Mapping[str, str]) -> tuple[str, float, tuple[str, ...]]:
    """The objective's link, the factor before that, and notes."""
    name, *options = header.get("objective", "").split() or [""]
    settings = dict(option.split(":", 1) for option in options if ":" in option)
    if name not in _LINKS:
        note = f"the objective {name or 'that is a function'} is not LightGBM's own: the answers are its raw sums"
        return "identity", 1.0, (note,)
    if name == "regression" and "sqrt" in options:
        return "signed_square", 1.0, ()
    scale = 1.0
    if name in ("binary", "multiclassova"):
        [scale] = numbers([settings.get("sigmoid", "1")], "objective")
    return _LINKS[name], float(scale), ()


def _array(fields: Mapping[str, str], key: str, count: int | None) -> NDArray[np.float64]:
    if key not in fields:
        raise UsageError(key, found="it is missing", wanted="a list of numbers")
    return numbers(fields[key].split(), key, count)


def _tree(fields: Mapping[str, str], target: int) -> tuple[Tree, NDArray[np.int64]]:
    """One tree, and the missing value of each node. Leaf i has the number -1 - i in the file."""
    leaves = _whole(fields, "num_leaves")
    if leaves < 1:
        raise UsageError("num_leaves", found=str(leaves), wanted="1 or more")
    if fields.get("is_linear", "0") != "0":
        raise UsageError(
            "is_linear",
            found="leaves with linear models",
            wanted="leaves with one number",
            todo="train without linear_tree",
        )
    values = _array(fields, "leaf_value", leaves)
    inner = leaves - 1
    if not inner:
        none = np.full(1, -1)
        tree = Tree(none, np.zeros(1), none, none, np.zeros(1, np.bool_), values, target=target)
        return tree, np.full(1, _NONE)
    decisions = whole_numbers(_array(fields, "decision_type", inner), "decision_type")
    threshold = _apart(_array(fields, "threshold", inner))
    feature = whole_numbers(_array(fields, "split_feature", inner), "split_feature")
    children = [whole_numbers(_array(fields, key, inner), key) for key in ("left_child", "right_child")]
    left, right = (np.where(child < 0, inner - 1 - child, child) for child in children)
    missing = (decisions >> _MISSING_SHIFT) & 3
    # Without a missing value of its own, a node takes NaN for 0.
    missing_left = np.where(missing > _NONE, (decisions & _DEFAULT_LEFT) > 0, threshold >= 0)
    sets = _sets(fields, _array(fields, "threshold", inner), np.flatnonzero(decisions & _CATEGORICAL))
    is_set = np.isin(np.arange(inner), list(sets))
    if feature.min() < 0:
        raise UsageError("split_feature", found=str(feature.min()), wanted="a column")

    def padded(array: NDArray[Any], fill: float) -> NDArray[Any]:
        return np.concatenate([array, np.full(leaves, fill, array.dtype)])

    # Categories of the set go left, all others and missing ones right.
    tree = Tree(
        feature=padded(feature, -1),
        threshold=padded(threshold, 0),
        yes=padded(np.where(is_set, right, left), 0),
        no=padded(np.where(is_set, left, right), 0),
        missing_yes=padded(np.where(is_set, True, missing_left), False),
        values=np.concatenate([np.zeros(inner), values]),
        sets=sets,
        target=target,
    )
    return tree, padded(missing, _NONE)


def _apart(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thresholds moved out of the numbers that LightGBM takes for 0 before it compares."""
    moved = np.where(threshold < 0, np.nextafter(-ZERO, -np.inf), ZERO)
    return np.where(np.abs(threshold) <= ZERO, moved, threshold)


def _sets(
    fields: Mapping[str, str], threshold: NDArray[np.float64], nodes: NDArray[np.int64]
) -> dict[int, tuple[int, ...]]:
    """Node -> the categories that go left, which are bits of words."""
    if not len(nodes):
        return {}
    bounds = whole_numbers(_array(fields, "cat_boundaries", None), "cat_boundaries")
    words = _array(fields, "cat_threshold", None)
    if (words < 0).any() or (words >= 1 << _WORD).any() or (words != np.floor(words)).any():
        raise UsageError("cat_threshold", found="a number that is not a word of 32 bits", wanted="words")
    sets = {}
    for node in nodes.tolist():
        place = threshold[node]
        if not (0 <= place < len(bounds) - 1 and place == int(place)):
            raise UsageError(
                "threshold", found=f"{place}, of a node with categories", wanted="a place in cat_boundaries"
            )
        begin, end = bounds[int(place)], bounds[int(place) + 1]
        if not 0 <= begin <= end <= len(words) or (end - begin) * _WORD > MAX_CATEGORY:
            raise UsageError("cat_boundaries", found=f"{begin} to {end}", wanted="places in cat_threshold")
        bits = np.unpackbits(words[begin:end].astype("<u4").view(np.uint8), bitorder="little")
        sets[node] = tuple(np.flatnonzero(bits).tolist())
    return sets


def _by_infos(header: Mapping[str, str]) -> set[int]:
    """Columns of categories: their values are listed, while others have a range."""
    infos = header.get("feature_infos", "").split()
    return {place for place, info in enumerate(infos) if not info.startswith("[") and info != "none"}


def _categories(text: str, categorical: set[int]) -> dict[int, list[Any]]:
    """Column -> its categories, if the file has them: pandas' columns of categories in their order."""
    found = re.search(r"^pandas_categorical:(.*)$", text, re.MULTILINE)
    try:
        lists = json.loads(found[1]) if found else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(lists, list) or len(lists) != len(categorical):
        return {}
    if not all(isinstance(one, list) and one for one in lists):
        return {}
    return dict(zip(sorted(categorical), lists, strict=True))
