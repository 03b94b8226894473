"""Read the files of XGBoost's `save_model`: JSON and UBJSON have the same content."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.repository.trees.forest import MAX_CATEGORY, MAX_TARGETS, Forest, Tree, numbers, whole_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_xgboost"]

_IDENTITY, _SIGMOID, _EXP, _SOFTMAX, _HINGE = "identity", "sigmoid", "exp", "softmax", "hinge"
_LINKS = {
    "reg:squarederror": _IDENTITY,
    "reg:linear": _IDENTITY,
    "reg:squaredlogerror": _IDENTITY,
    "reg:absoluteerror": _IDENTITY,
    "reg:pseudohubererror": _IDENTITY,
    "reg:quantileerror": _IDENTITY,
    "reg:expectileerror": _IDENTITY,
    "binary:logitraw": _IDENTITY,
    "rank:pairwise": _IDENTITY,
    "rank:ndcg": _IDENTITY,
    "rank:map": _IDENTITY,
    "reg:logistic": _SIGMOID,
    "binary:logistic": _SIGMOID,
    "count:poisson": _EXP,
    "reg:gamma": _EXP,
    "reg:tweedie": _EXP,
    "survival:cox": _EXP,
    "survival:aft": _EXP,
    "multi:softprob": _SOFTMAX,
    "multi:softmax": _SOFTMAX,
    "binary:hinge": _HINGE,
}
"""Objective -> what becomes of a row's sum."""
_PARAMETERS = "learner_model_param"
_VERSIONS = range(1, 4)
_ASCII = 128


def read_xgboost(document: Mapping[str, Any]) -> Forest:
    """The forest of a document.

    Raises:
        UsageError: it lacks something or has it in another form; the error's place is the way to it.
    """
    version = _version(document)
    learner = _at(document, "learner")
    parameters = _at(learner, _PARAMETERS, place="learner")
    features = _count(parameters, "num_feature")
    targets = max(_count(parameters, "num_class", 0), _count(parameters, "num_target", 1), 1)
    if targets > MAX_TARGETS:
        raise UsageError(f"learner.{_PARAMETERS}", found=f"{targets} outputs", wanted=f"at most {MAX_TARGETS}")
    booster, trees_at, weights = _booster(learner)
    objective = _at(_at(learner, "objective", place="learner"), "name", str, "learner.objective")
    notes = []
    if objective not in _LINKS:
        notes.append(f"the objective {objective} is not XGBoost's own: the answers are its raw sums")
    trees, rounds = _used(learner, booster, trees_at, targets)
    if rounds:
        notes.append(f"the trees after the best iteration, {rounds - 1}, are left out, as XGBoost's own estimators do")
    names = tuple(map(str, _listed(learner, "feature_names")))
    kinds = [str(kind) for kind in _listed(learner, "feature_types")]
    categorical = {place for place, kind in enumerate(kinds) if kind == "c"}
    info = whole_numbers(_at(booster, "tree_info", object, trees_at), f"{trees_at}.tree_info", len(booster["trees"]))
    made = []
    for number, tree in enumerate(trees):
        place = f"{trees_at}.trees[{number}]"
        made.append(_tree(tree, place, int(info[number]), targets, 1.0 if weights is None else float(weights[number])))
        categorical |= {int(made[-1].feature[node]) for node in made[-1].sets}
    link = _LINKS.get(objective, _IDENTITY)
    categories = _categories(booster, categorical)
    if lost := [names[place] for place in sorted(categorical - set(categories)) if place < len(names)]:
        notes.append(f"the file has no categories of {', '.join(lost)}: write them into features.yaml, in their order")
    return Forest(
        f"XGBoost {version}".strip(),
        made,
        features,
        targets,
        _base(parameters, link, targets),
        link=link,
        strict=True,
        names=names,
        categorical=frozenset(categorical),
        categories=categories,
        booleans=frozenset(place for place, kind in enumerate(kinds) if kind == "i"),
        unknown_missing=False,
        notes=tuple(notes),
        rounds=rounds,
    )


def _version(document: Mapping[str, Any]) -> str:
    """The XGBoost that wrote a file; empty where it does not say so. A later one may mean something else by the same
    keys."""
    parts = _listed(document, "version")
    version = ".".join(map(str, parts))
    if parts and parts[0] not in _VERSIONS:
        raise UsageError(
            "version",
            found=f"a file of XGBoost {version}",
            wanted=f"one of XGBoost {_VERSIONS.start} to {_VERSIONS.stop - 1}, whose format is known here",
            todo='save the model by such an XGBoost: model.save_model("model.json"); or update tritonkit',
        )
    return version


def _at(value: Any, key: str, kind: type = dict, place: str = "") -> Any:
    """A member of an object."""
    where = f"{place}.{key}" if place else key
    if not isinstance(value, Mapping) or key not in value:
        raise UsageError(where, found="it is missing", wanted="a file of XGBoost's save_model")
    if not isinstance(value[key], kind):
        raise UsageError(where, found=f"a value of the type {type(value[key]).__name__}", wanted=kind.__name__)
    return value[key]


def _listed(value: Mapping[str, Any], key: str) -> list[Any]:
    """A list that may be missing."""
    found = value.get(key, [])
    return list(found) if isinstance(found, Sequence | np.ndarray) and not isinstance(found, str) else []


def _count(
    parameters: Mapping[str, Any], key: str, default: int | None = None, place: str = f"learner.{_PARAMETERS}"
) -> int:
    """A whole number, which XGBoost writes as text."""
    if default is not None and key not in parameters:
        return default
    value = _at(parameters, key, object, place)
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{place}.{key}", found=repr(value)[:40], wanted="a whole number") from None


def _booster(learner: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, NDArray[np.float64] | None]:
    """The trees' part of a document, its place, and the weights of dart's trees."""
    place = "learner.gradient_booster"
    booster = _at(learner, "gradient_booster", place="learner")
    name = _at(booster, "name", str, place)
    weights = None
    if name == "dart":
        weights = numbers(_at(booster, "weight_drop", object, place), f"{place}.weight_drop")
        booster, place = _at(booster, "gbtree", place=place), f"{place}.gbtree"
    elif name != "gbtree":
        raise UsageError(f"{place}.name", found=repr(name)[:40], wanted="gbtree or dart, which have trees")
    model, place = _at(booster, "model", place=place), f"{place}.model"
    trees = _at(model, "trees", list, place)
    if weights is not None and len(weights) != len(trees):
        raise UsageError(place, found=f"{len(weights)} weights for {len(trees)} trees", wanted="one for each")
    return model, place, weights


def _used(learner: Mapping[str, Any], booster: Mapping[str, Any], place: str, targets: int) -> tuple[list[Any], int]:
    """The trees up to the best iteration of early stopping, and the number of iterations; 0 means all trees."""
    trees: list[Any] = booster["trees"]
    attributes = learner.get("attributes", {})
    if not isinstance(attributes, Mapping) or attributes.get("best_iteration") is None:
        return trees, 0
    rounds = _count(attributes, "best_iteration", place="learner.attributes") + 1
    settings, settings_at = _at(booster, "gbtree_model_param", place=place), f"{place}.gbtree_model_param"
    parallel = _count(settings, "num_parallel_tree", 1, settings_at)
    starts = whole_numbers(_listed(booster, "iteration_indptr"), f"{place}.iteration_indptr")
    known = 0 <= rounds < len(starts)
    end = int(starts[rounds]) if known else rounds * targets * max(parallel, 1)
    if not 0 < end <= len(trees):
        raise UsageError(
            "learner.attributes.best_iteration", found=str(rounds - 1), wanted=f"an iteration of the {len(trees)} trees"
        )
    return (trees[:end], rounds) if end < len(trees) else (trees, 0)


def _base(parameters: Mapping[str, Any], link: str, targets: int) -> NDArray[np.float64]:
    """The number added to each sum: base_score, which is a prediction. From XGBoost 3.1 on it is a list."""
    place = f"learner.{_PARAMETERS}.base_score"
    text = str(_at(parameters, "base_score", object, f"learner.{_PARAMETERS}"))
    try:
        scores = [float(part) for part in text.strip("[]").split(",")]
    except ValueError:
        raise UsageError(place, found=repr(text[:40]), wanted="numbers") from None
    if len(scores) not in (1, targets):
        raise UsageError(place, found=f"{len(scores)} numbers", wanted=f"1 or {targets}")
    try:
        if link == _SIGMOID:
            scores = [math.log(score / (1 - score)) for score in scores]
        elif link == _EXP:
            scores = [math.log(score) for score in scores]
    except (ValueError, ZeroDivisionError):
        raise UsageError(place, found=text[:40], wanted="predictions that the objective can make") from None
    if not all(map(math.isfinite, scores)):
        raise UsageError(place, found=text[:40], wanted="finite numbers")
    return np.full(targets, scores, np.float64)


def _tree(tree: Any, place: str, target: int, targets: int, weight: float) -> Tree:
    """One tree; a leaf has its value where a node has its threshold."""
    left = whole_numbers(_at(tree, "left_children", object, place), f"{place}.left_children")
    count = len(left)

    def column(key: str) -> NDArray[np.int64]:
        return whole_numbers(_at(tree, key, object, place), f"{place}.{key}", count)

    if not count or not 0 <= target < targets:
        raise UsageError(place, found=f"{count} nodes, for output {target}", wanted=f"outputs below {targets}")
    parameters = _at(tree, "tree_param", place=place)
    if _count(parameters, "size_leaf_vector", 1, f"{place}.tree_param") > 1:
        raise UsageError(
            place,
            found="leaves of several outputs",
            wanted="a leaf of one",
            todo='train with multi_strategy="one_output_per_tree"',
        )
    conditions = numbers(_at(tree, "split_conditions", object, place), f"{place}.split_conditions", count)
    leaf = left < 0
    with np.errstate(over="ignore", invalid="ignore"):  # the tree's own check is that its leaves are finite
        conditions = conditions.astype(np.float32).astype(np.float64)
        values = conditions * weight
    features = np.where(leaf, -1, column("split_indices"))
    if (features[~leaf] < 0).any():
        raise UsageError(f"{place}.split_indices", found=str(features[~leaf].min()), wanted="a column")
    return Tree(
        feature=features,
        threshold=conditions,
        yes=left,
        no=column("right_children"),
        missing_yes=column("default_left") != 0,
        values=values,
        sets=_sets(tree, place, leaf),
        target=target,
    )


def _sets(tree: Mapping[str, Any], place: str, leaf: NDArray[np.bool_]) -> dict[int, tuple[int, ...]]:
    """Node -> the categories that go right."""
    if "split_type" not in tree:
        return {}
    kinds = whole_numbers(tree["split_type"], f"{place}.split_type", len(leaf))
    if not kinds.any():
        return {}
    nodes = whole_numbers(_at(tree, "categories_nodes", object, place), f"{place}.categories_nodes")
    starts = whole_numbers(_at(tree, "categories_segments", object, place), f"{place}.categories_segments", len(nodes))
    sizes = whole_numbers(_at(tree, "categories_sizes", object, place), f"{place}.categories_sizes", len(nodes))
    categories = whole_numbers(_at(tree, "categories", object, place), f"{place}.categories")
    if len(categories) and not 0 <= categories.min() <= categories.max() <= MAX_CATEGORY:
        raise UsageError(f"{place}.categories", found="a category out of range", wanted=f"0 to {MAX_CATEGORY}")
    sets = {}
    for node, start, size in zip(nodes.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        if not 0 <= node < len(leaf) or start < 0 or size < 0 or start + size > len(categories):
            raise UsageError(f"{place}.categories_nodes", found=f"node {node}, out of range", wanted="a node's own")
        if not leaf[node]:
            sets[node] = tuple(sorted(set(categories[start : start + size].tolist())))
    if missing := set(np.flatnonzero((kinds != 0) & ~leaf).tolist()) - set(sets):
        raise UsageError(f"{place}.categories_nodes", found=f"node {min(missing)} has no categories", wanted="its own")
    return sets


def _categories(booster: Mapping[str, Any], categorical: set[int]) -> dict[int, list[Any]]:
    """Column -> its categories, which XGBoost keeps from 3.1 on if it was given a DataFrame.

    Its Python counts letters where the file counts bytes, so texts with others than ASCII's are cut wrongly and
    incomplete: those columns are left out.
    """
    container = booster.get("cats")
    columns = _listed(container, "enc") if isinstance(container, Mapping) else []
    categories: dict[int, list[Any]] = {}
    for place, column in enumerate(columns):
        values = _listed(column, "values") if isinstance(column, Mapping) else []
        if place not in categorical or not values:
            continue
        codes = whole_numbers(values, f"cats.enc[{place}].values")
        if "offsets" not in column:
            categories[place] = codes.tolist()
            continue
        offsets = whole_numbers(column["offsets"], f"cats.enc[{place}].offsets").tolist()
        if len(offsets) > 1 and codes.min() >= 0 and codes.max() < _ASCII:
            text = codes.astype(np.uint8).tobytes().decode()
            categories[place] = [text[begin:end] for begin, end in pairwise(offsets)]
    return categories
