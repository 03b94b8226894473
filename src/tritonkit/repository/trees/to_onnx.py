"""Write a forest as ONNX.

Trees become one TreeEnsembleRegressor of ai.onnx.ml 3, whose sums standard operators turn into predictions: ONNX
Runtime has run it for years, with float32 and with double. All nodes test the same way, which is its fastest path.
A set of categories is a column of its own, 0 or 1, that a table gives: TreeEnsemble's BRANCH_MEMBER and chains of
BRANCH_EQ fail or run out of memory in several versions of ONNX Runtime (its issues 24636, 24679 and 25400).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.extras import need
from tritonkit.repository.trees.forest import NOTHING, ZERO, Forest, Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["INPUT", "LINKS", "OUTPUT", "onnx_of"]

INPUT, OUTPUT = "features", "prediction"
MAX_NODES = 20_000_000
"""Nodes of all trees; an ONNX file has less than 2 GiB."""
MAX_TABLE = 1 << 28
"""Bytes of the tables of categories."""
_OPSETS = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION = 8

_Column = tuple[int, tuple[int, ...]]
"""A feature and a set of its categories."""


class _Graph:
    """Operators and constants so far."""

    def __init__(self) -> None:
        self.helper = need("onnx", "onnx").helper
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The name of an operator's output."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def constant(self, value: Any, dtype: Any) -> str:
        """The name of a constant."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name


def _softmax(graph: _Graph, sums: str) -> str:
    return graph.add("Softmax", sums, axis=1)


def _hinge(graph: _Graph, sums: str) -> str:
    return graph.add("Cast", graph.add("Greater", sums, graph.constant(0, np.float32)), to=1)


def _signed_square(graph: _Graph, sums: str) -> str:
    return graph.add("Mul", graph.add("Abs", sums), sums)


LINKS: dict[str, Callable[[_Graph, str], str]] = {
    "identity": lambda graph, sums: graph.add("Identity", sums),
    "sigmoid": lambda graph, sums: graph.add("Sigmoid", sums),
    "softmax": _softmax,
    "exp": lambda graph, sums: graph.add("Exp", sums),
    "hinge": _hinge,
    "signed_square": _signed_square,
    "softplus": lambda graph, sums: graph.add("Softplus", sums),
}
"""Names of what becomes of a row's sums -> the operators."""


def onnx_of(forest: Forest, missing: float | None = None, sums: bool = False) -> bytes:
    """The ONNX file of a forest: `features` [batch, columns] to `prediction` FP32 [batch, targets].

    Args:
        missing: a number that means a missing value, in addition to NaN.
        sums: give the sums instead of predictions.

    Raises:
        UsageError: a tree is not one, or the forest is too large; the error's place says which tree.
    """
    graph = _Graph()
    dtype = np.float64 if forest.dtype == "FP64" else np.float32
    x = _with_missing(graph, forest, missing, dtype)
    columns = _columns(forest)
    x = _with_categories(graph, forest, columns, x, dtype)
    out = graph.add(
        "TreeEnsembleRegressor", x, domain="ai.onnx.ml", n_targets=forest.targets, **_ensemble(forest, columns, dtype)
    )
    if not sums:
        if forest.scale != 1:
            out = graph.add("Mul", out, graph.constant(forest.scale, np.float32))
        out = LINKS[forest.link](graph, out)
    graph.nodes[-1].output[0] = OUTPUT
    return _model(graph, forest)


def _model(graph: _Graph, forest: Forest) -> bytes:
    onnx = need("onnx", "onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    taken = kinds.DOUBLE if forest.dtype == "FP64" else kinds.FLOAT
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "forest",
            [helper.make_tensor_value_info(INPUT, taken, ["batch", forest.features])],
            [helper.make_tensor_value_info(OUTPUT, kinds.FLOAT, ["batch", forest.targets])],
            [onnx.numpy_helper.from_array(value, name) for name, value in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()],
        ir_version=_IR_VERSION,
        producer_name="tritonkit",
    )
    content: bytes = model.SerializeToString()
    return content


def _with_missing(graph: _Graph, forest: Forest, missing: float | None, dtype: Any) -> str:
    """The input with NaN in the place of other missing values."""
    x = INPUT
    if missing is not None and not np.isnan(missing):
        is_missing = graph.add("Equal", x, graph.constant(missing, dtype))
        x = graph.add("Where", is_missing, graph.constant(np.nan, dtype), x)
    if forest.zero_missing:
        mask = np.isin(np.arange(forest.features), list(forest.zero_missing))
        is_zero = graph.add("LessOrEqual", graph.add("Abs", x), graph.constant(ZERO, dtype))
        is_missing = graph.add("And", is_zero, graph.constant(mask, np.bool_))
        x = graph.add("Where", is_missing, graph.constant(np.nan, dtype), x)
    return x


def _columns(forest: Forest) -> dict[_Column, int]:
    """Each distinct set of a feature's categories -> the column behind the features that tells whether a row's is in
    it."""
    by_feature: dict[int, dict[_Column, None]] = defaultdict(dict)
    for tree in forest.trees:
        for node, categories in tree.sets.items():
            feature = int(tree.feature[node])
            by_feature[feature][feature, categories] = None
    columns = [column for feature in sorted(by_feature) for column in by_feature[feature]]
    return {column: forest.features + place for place, column in enumerate(columns)}


def _with_categories(graph: _Graph, forest: Forest, columns: dict[_Column, int], x: str, dtype: Any) -> str:
    """The features, and behind them a column for each set of categories; NaN stays NaN."""
    sets: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for feature, categories in columns:
        sets[feature].append(categories)
    size = sum((max(max(one, default=0) for one in of) + 2) * len(of) for of in sets.values())
    if size > MAX_TABLE:
        raise UsageError("", found=f"splits by categories that take {size} bytes", wanted=f"at most {MAX_TABLE}")
    parts = [x]
    for feature, of in sets.items():
        count = max(max(one, default=0) for one in of) + 1
        table = np.zeros((count + 1, len(of)), np.uint8)  # the last row is for every other category
        for place, one in enumerate(of):
            table[list(one), place] = 1
        value = graph.add("Gather", x, graph.constant([feature], np.int64), axis=1)
        lower, least = ("Greater", -1) if forest.fractions else ("GreaterOrEqual", 0)
        inside = graph.add(
            "And",
            graph.add(lower, value, graph.constant(least, dtype)),
            graph.add("Less", value, graph.constant(count, dtype)),
        )
        number = graph.add("Cast", graph.add("Where", inside, value, graph.constant(count, dtype)), to=7)
        index = graph.add("Squeeze", number, graph.constant([1], np.int64))
        rows = graph.add("Gather", graph.constant(table, np.uint8), index, axis=0)
        member = graph.add("Cast", rows, to=11 if dtype is np.float64 else 1)
        parts.append(graph.add("Where", graph.add("IsNaN", value), graph.constant(np.nan, dtype), member))
    return graph.add("Concat", *parts, axis=1) if len(parts) > 1 else x


def _ensemble(forest: Forest, columns: dict[_Column, int], dtype: Any) -> dict[str, Any]:
    """The attributes of all trees. One of a single leaf is part of the base values."""
    base = forest.base.astype(np.float64).copy()
    parts: list[dict[str, NDArray[Any]]] = []
    count = 0
    for number, tree in enumerate(forest.trees):
        try:
            nodes = tree.reached(forest.features)
        except UsageError as error:
            error.where = f"tree {number}"
            raise
        count += len(nodes)
        if count > MAX_NODES:
            raise UsageError("", found=f"more than {MAX_NODES} nodes", wanted="a smaller forest")
        if len(nodes) == 1:
            if tree.values.ndim > 1:
                base += tree.values[0]
            else:
                base[tree.target] += tree.values[0]
            continue
        parts.append(_nodes(tree, nodes, columns, len(parts)))
    parts = parts or [_nodes(NOTHING, np.arange(len(NOTHING.feature)), columns, 0)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    inner = joined["feature"] >= 0
    test = b"BRANCH_LT" if forest.strict else b"BRANCH_LEQ"
    attributes: dict[str, Any] = {
        "nodes_treeids": joined["tree"].tolist(),
        "nodes_nodeids": joined["node"].tolist(),
        "nodes_featureids": np.maximum(joined["feature"], 0).tolist(),
        "nodes_modes": [test if is_inner else b"LEAF" for is_inner in inner.tolist()],
        "nodes_truenodeids": joined["yes"].tolist(),
        "nodes_falsenodeids": joined["no"].tolist(),
        "nodes_missing_value_tracks_true": joined["missing_yes"].astype(np.int64).tolist(),
    }
    leaves = np.flatnonzero(~inner)
    values = joined["values"][leaves]
    targets = joined["target"][leaves]
    if values.ndim > 1:
        leaves = np.repeat(leaves, forest.targets)
        targets = np.tile(np.arange(forest.targets), len(values))
    attributes |= {
        "target_treeids": joined["tree"][leaves].tolist(),
        "target_nodeids": joined["node"][leaves].tolist(),
        "target_ids": targets.tolist(),
    }
    thresholds = np.where(inner, joined["threshold"], 0)
    return attributes | _floats(thresholds, values.ravel(), base, dtype)


def _floats(thresholds: Any, weights: Any, base: Any, dtype: Any) -> dict[str, Any]:
    """The attributes that are numbers: lists of float32, or tensors of double."""
    names = {"nodes_values": thresholds, "target_weights": weights, "base_values": base}
    with np.errstate(over="ignore"):
        arrays = {name: np.asarray(values, dtype) for name, values in names.items()}
    if dtype is np.float32:
        return {name: array.tolist() for name, array in arrays.items()}
    tensor = need("onnx", "onnx").numpy_helper.from_array
    return {f"{name}_as_tensor": tensor(array, name) for name, array in arrays.items()}


def _nodes(tree: Tree, nodes: NDArray[np.int64], columns: dict[_Column, int], number: int) -> dict[str, NDArray[Any]]:
    """The nodes of a tree, numbered from 0 without those that no row reaches."""
    place = np.zeros(len(tree.feature), np.int64)
    place[nodes] = np.arange(len(nodes))
    feature, threshold = tree.feature.copy(), tree.threshold.copy()
    for node, categories in tree.sets.items():
        feature[node], threshold[node] = columns[int(tree.feature[node]), categories], 0.5
    inner = tree.feature >= 0
    return {
        "tree": np.full(len(nodes), number),
        "node": np.arange(len(nodes)),
        "feature": feature[nodes],
        "threshold": threshold[nodes],
        "yes": place[np.where(inner, tree.yes, 0)][nodes],
        "no": place[np.where(inner, tree.no, 0)][nodes],
        "missing_yes": tree.missing_yes[nodes],
        "values": tree.values[nodes],
        "target": np.full(len(nodes), tree.target),
    }
