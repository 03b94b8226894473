"""Read CatBoost's `save_model(FILE, format="json")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.repository.trees.forest import MAX_DEPTH, Forest, Tree, numbers, whole_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_catboost"]

_LINKS = {
    "Logloss": "sigmoid",
    "CrossEntropy": "sigmoid",
    "MultiClass": "softmax",
    "MultiClassOneVsAll": "sigmoid",
    "Poisson": "exp",
    "Tweedie": "exp",
}
"""Loss function -> what becomes of a row's sum; nothing for all others."""
_MOST_SPLITS = 16


def read_catboost(document: Mapping[str, Any]) -> Forest:
    """The forest of a document.

    Raises:
        UsageError: it lacks something or has it in another form, or it has categories, whose statistics are no tree.
    """
    info = _at(document, "features_info", dict)
    for kind in ("categorical_features", "text_features", "embedding_features"):
        if info.get(kind):
            raise UsageError(
                f"features_info.{kind}",
                found="columns that CatBoost turns into statistics of its training data",
                wanted="columns of numbers",
                todo="encode them before training, or serve CatBoost itself from a model.py",
            )
    floats = _at(info, "float_features", list)
    columns, missing = [], []
    for place, feature in enumerate(floats):
        where = f"features_info.float_features[{place}]"
        [column] = whole_numbers([_at(feature, "flat_feature_index", object, where)], where).tolist()
        if column < 0:
            raise UsageError(where, found=f"flat_feature_index {column}", wanted="a column")
        columns.append(column)
        missing.append(feature.get("nan_value_treatment") != "AsTrue")
    trees = document.get("oblivious_trees", document.get("trees"))
    if not isinstance(trees, list) or not trees:
        raise UsageError("oblivious_trees", found="no trees", wanted="a list of trees")
    has_levels = "oblivious_trees" in document
    scale, bias = _scale_and_bias(document)
    if not len(bias):
        raise UsageError("scale_and_bias", found="no bias", wanted="one for each output")
    targets, made = len(bias), []
    for number, tree in enumerate(trees):
        read = _oblivious if has_levels else _free
        made.append(read(tree, f"trees[{number}]", targets, np.array(columns), np.array(missing), scale))
    features = max(columns, default=-1) + 1
    names = tuple(str(feature.get("feature_id", "")) for feature in floats)
    loss = _loss(document)
    return Forest(
        "CatBoost",
        made,
        features,
        targets,
        bias,
        link=_LINKS.get(loss, "identity"),
        names=names if all(names) and len(names) == features and not _numbered(names) else (),
    )


def _numbered(names: tuple[str, ...]) -> bool:
    return names == tuple(map(str, range(len(names))))


def _at(value: Any, key: str, kind: Any, place: str = "") -> Any:
    where = f"{place}.{key}" if place else key
    if not isinstance(value, Mapping) or key not in value or not isinstance(value[key], kind):
        raise UsageError(where, found="it is missing, or of another type", wanted="a file of CatBoost's JSON")
    return value[key]


def _loss(document: Mapping[str, Any]) -> str:
    """The loss function's name, which stands in the parameters of the training."""
    value: Any = document
    for key in ("model_info", "params", "loss_function", "type"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _scale_and_bias(document: Mapping[str, Any]) -> tuple[float, NDArray[np.float64]]:
    pair = _at(document, "scale_and_bias", list)
    if len(pair) != 2:
        raise UsageError("scale_and_bias", found=f"{len(pair)} values", wanted="a scale and a bias")
    bias = pair[1] if isinstance(pair[1], list) else [pair[1]]
    [scale] = numbers([pair[0]], "scale_and_bias")
    return float(scale), numbers(bias, "scale_and_bias")


def _split(split: Any, place: str, columns: Any, missing: Any) -> tuple[int, float, bool]:
    """Column and border of a split, and whether a missing value is below it."""
    if not isinstance(split, Mapping) or split.get("split_type", "FloatFeature") != "FloatFeature":
        raise UsageError(place, found="a split by something else than a number", wanted="float features")
    [number] = whole_numbers([split.get("float_feature_index")], f"{place}.float_feature_index")
    if not 0 <= number < len(columns):
        raise UsageError(f"{place}.float_feature_index", found=str(number), wanted=f"0 to {len(columns) - 1}")
    [border] = numbers([split.get("border")], f"{place}.border")
    with np.errstate(over="ignore"):
        return int(columns[number]), float(np.float32(border)), bool(missing[number])


def _oblivious(tree: Any, place: str, targets: int, columns: Any, missing: Any, scale: float) -> Tree:
    """A tree with one split for each level. Split i is bit i of a leaf's number."""
    splits = [
        _split(split, f"{place}.splits[{number}]", columns, missing)
        for number, split in enumerate(_at(tree, "splits", list, place))
    ]
    depth = len(splits)
    if depth > _MOST_SPLITS:
        raise UsageError(place, found=f"{depth} splits", wanted=f"at most {_MOST_SPLITS}")
    leaves, inner = 1 << depth, (1 << depth) - 1
    values = numbers(_at(tree, "leaf_values", list, place), f"{place}.leaf_values", leaves * targets) * scale
    values = values.reshape(leaves, targets)
    # Level l tests split depth - 1 - l, so leaves stand in the order of their numbers.
    level = np.repeat(np.arange(depth), 1 << np.arange(depth))[:inner]
    tests = [splits[depth - 1 - one] for one in level.tolist()]
    node = np.arange(inner)
    tail = np.full(leaves, -1)
    return Tree(
        feature=np.concatenate([np.array([test[0] for test in tests], np.int64), tail]),
        threshold=np.concatenate([np.array([test[1] for test in tests]), np.zeros(leaves)]),
        yes=np.concatenate([2 * node + 1, tail]),
        no=np.concatenate([2 * node + 2, tail]),
        missing_yes=np.concatenate([np.array([test[2] for test in tests], np.bool_), np.zeros(leaves, np.bool_)]),
        values=np.concatenate([np.zeros((inner, targets)), values]),
    )


def _free(tree: Any, place: str, targets: int, columns: Any, missing: Any, scale: float) -> Tree:
    """A tree of nodes within each other."""
    rows: list[list[Any]] = []
    left: list[tuple[Any, int, int, int]] = [(tree, -1, 0, 0)]
    while left:
        node, parent, side, depth = left.pop()
        if depth > MAX_DEPTH:
            raise UsageError(place, found=f"more than {MAX_DEPTH} nodes below each other", wanted="a lower tree")
        number = len(rows)
        if parent >= 0:
            rows[parent][side] = number
        if isinstance(node, Mapping) and "split" in node:
            column, border, below = _split(node["split"], f"{place}.split", columns, missing)
            rows.append([column, border, below, -1, -1, [0.0] * targets])
            left += [(node.get("left"), number, 3, depth + 1), (node.get("right"), number, 4, depth + 1)]
            continue
        value = _at(node, "value", object, place)
        value = value if isinstance(value, list) else [value]
        rows.append([-1, 0.0, False, -1, -1, (numbers(value, f"{place}.value", targets) * scale).tolist()])
    feature, threshold, missing_yes, yes, no, values = (np.array(one) for one in zip(*rows, strict=True))
    return Tree(feature, threshold, yes, no, missing_yes.astype(np.bool_), values)
