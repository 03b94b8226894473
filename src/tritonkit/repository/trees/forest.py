"""A forest of decision trees: the value between the readers of files and the writer of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "MAX_CATEGORY",
    "MAX_DEPTH",
    "MAX_TARGETS",
    "NOTHING",
    "ZERO",
    "Forest",
    "Tree",
    "in_float32",
    "numbers",
    "whole_numbers",
]

MAX_DEPTH = 500
"""Nodes on the longest way to a leaf; ONNX Runtime walks trees by recursion when it opens a file."""
MAX_CATEGORY = 1 << 20
"""Largest number of a category in a split."""
ZERO = float(np.float32(1e-35))
"""LightGBM takes numbers up to it for 0, and so do its files' missing zeros."""
MAX_TARGETS = 10_000
MAX_FEATURES = 1_000_000


@dataclass(frozen=True)
class Tree:
    """One tree; node 0 is its root.

    Args:
        feature: the column that each node tests; -1 for a leaf.
        threshold: the number that each node compares with.
        yes: the child of rows that pass the test.
        no: the child of all others.
        missing_yes: whether rows without a value take `yes`.
        values: what a leaf adds: [nodes] to one target, or [nodes, targets].
        sets: node -> categories; rows whose category is NOT among them take `yes`, and the threshold is not used.
        target: the target that [nodes] values add to.
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    yes: NDArray[np.int64]
    no: NDArray[np.int64]
    missing_yes: NDArray[np.bool_]
    values: NDArray[np.float64]
    sets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    target: int = 0

    def reached(self, features: int) -> NDArray[np.int64]:
        """The nodes that rows can reach, parents first. Libraries leave pruned nodes in their files.

        Raises:
            UsageError: the nodes are not a tree, or test columns that do not exist.
        """
        count = len(self.feature)
        seen = np.zeros(count, np.bool_)
        level = np.zeros(1, np.int64)
        levels: list[NDArray[np.int64]] = []
        while level.size:
            if len(levels) > MAX_DEPTH:
                raise UsageError("", found=f"more than {MAX_DEPTH} nodes below each other", wanted="a lower tree")
            seen[level] = True
            levels.append(level)
            inner = level[self.feature[level] >= 0]
            level = np.concatenate([self.no[inner], self.yes[inner]])
            if level.size and not 0 <= level.min() <= level.max() < count:
                raise UsageError("", found=f"a child that is none of its {count} nodes", wanted="a tree")
            if seen[level].any() or np.unique(level).size < level.size:
                raise UsageError("", found="a node with two parents, or above itself", wanted="a tree")
        nodes = np.concatenate(levels)
        self._check(nodes, features)
        return nodes

    def _check(self, nodes: NDArray[np.int64], features: int) -> None:
        columns = self.feature[nodes]
        if columns.max() >= features:
            raise UsageError("", found=f"a test of column {columns.max()}", wanted=f"less than {features}")
        if not np.isfinite(self.values[nodes[columns < 0]]).all():
            raise UsageError("", found="a leaf that is not a finite number", wanted="finite numbers")
        inner = nodes[columns >= 0]
        plain = inner[~np.isin(inner, list(self.sets))] if self.sets else inner
        if np.isnan(self.threshold[plain]).any():
            raise UsageError("", found="a threshold that is NaN", wanted="numbers")


NOTHING = Tree(
    np.array([0, -1, -1]), np.zeros(3), np.array([1, 0, 0]), np.array([2, 0, 0]), np.zeros(3, np.bool_), np.zeros(3)
)
"""A tree with a split that adds 0, for engines that take no forest without one."""


@dataclass(frozen=True)
class Forest:
    """Trees whose sums become predictions.

    Args:
        library: name of the library, and version of its file where it has one.
        targets: sums of a row.
        base: what is added to each sum.
        link: what becomes of the sums; a key of `to_onnx.LINKS`.
        scale: factor before the link.
        strict: whether tests are `x < threshold`, else `x <= threshold`.
        dtype: type in which columns and thresholds are compared.
        names: names of the columns, if the file has them.
        categorical: columns of categories' numbers.
        categories: column -> its categories in the order of their numbers, if the file has them.
        booleans: columns that are true or false.
        zero_missing: columns in which 0 is a missing value.
        fractions: whether a category's fraction is cut off (-0.5 is category 0); else a negative one is unknown.
        unknown_missing: whether the library takes an unknown category for a missing value, else it refuses it.
        notes: what a reader of the file left out.
        rounds: trees of the file that are used, in the library's count of iterations; 0 for all.
    """

    library: str
    trees: Sequence[Tree]
    features: int
    targets: int
    base: NDArray[np.float64]
    link: str = "identity"
    scale: float = 1.0
    strict: bool = False
    dtype: str = "FP32"
    names: tuple[str, ...] = ()
    categorical: frozenset[int] = frozenset()
    categories: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    booleans: frozenset[int] = frozenset()
    zero_missing: frozenset[int] = frozenset()
    fractions: bool = False
    unknown_missing: bool = True
    notes: tuple[str, ...] = ()
    rounds: int = 0

    def __post_init__(self) -> None:
        """Raise UsageError for sizes that no network has."""
        for name, size, most in (
            ("columns", self.features, MAX_FEATURES),
            ("outputs", self.targets, MAX_TARGETS),
        ):
            if not 1 <= size <= most:
                raise UsageError("", found=f"{size} {name}", wanted=f"1 to {most}")
        if self.names and len(set(self.names)) != self.features:
            raise UsageError(
                "", found=f"{len(set(self.names))} different names for {self.features} columns", wanted="one for each"
            )


def in_float32(forest: Forest) -> Forest:
    """The forest for columns of float32, with the same answers to them. A negative fraction is an unknown category, as
    for the engines that take such columns, and not category 0.

    `x <= t` holds for the same float32 numbers if t is rounded down to one, and `x < t` if it is rounded up.
    """
    if forest.dtype == "FP32":
        return forest
    toward = np.float32(np.inf if forest.strict else -np.inf)
    trees = []
    for tree in forest.trees:
        with np.errstate(over="ignore"):
            rounded = tree.threshold.astype(np.float32)
        beyond = rounded < tree.threshold if forest.strict else rounded > tree.threshold
        trees.append(
            replace(tree, threshold=np.where(beyond, np.nextafter(rounded, toward), rounded).astype(np.float64))
        )
    return replace(forest, trees=trees, dtype="FP32", fractions=False)


def numbers(value: Any, place: str, count: int | None = None) -> NDArray[np.float64]:
    """A list of numbers of a file, of this length.

    Raises:
        UsageError: it is something else; `place` says where it stands.
    """
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(place, found="something else than numbers", wanted="a list of numbers") from None
    if array.ndim != 1 or (count is not None and len(array) != count):
        found = f"{array.shape[0]} numbers" if array.ndim == 1 else "no plain list"
        raise UsageError(place, found=found, wanted="a list of numbers" if count is None else f"{count} numbers")
    return array


def whole_numbers(value: Any, place: str, count: int | None = None) -> NDArray[np.int64]:
    """The same for whole numbers of at most 32 bits.

    Raises:
        UsageError: it is something else.
    """
    array = numbers(value, place, count)
    if not (np.abs(array) <= 1 << 31).all() or (array != np.floor(array)).any():
        raise UsageError(place, found="a number that is not whole, or too large", wanted="whole numbers of 32 bits")
    return array.astype(np.int64)
