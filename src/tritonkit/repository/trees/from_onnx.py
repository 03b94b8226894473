"""Read a forest back from an ONNX file that `to_onnx.py` wrote, for engines that take no ONNX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.extras import need
from tritonkit.repository.trees.forest import Forest, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["forest_of_onnx"]

_ENSEMBLE = "TreeEnsembleRegressor"
_LINKS = {"Identity": "identity", "Sigmoid": "sigmoid", "Softmax": "softmax"}
"""Operator behind the trees -> what becomes of the sums. Other links have several operators, or no such engine."""
_WANTED = "trees whose sums go through nothing, a sigmoid or a softmax, as `tritonkit new --tree` writes them"
_TESTS = {"BRANCH_LT": True, "BRANCH_LEQ": False}
_MISSING = "numbers that mean a missing value (--missing, or LightGBM's zero_as_missing), and for FIL only NaN does"

_Column = tuple[int, tuple[int, ...]]
"""A feature and a set of its categories."""


@dataclass(frozen=True)
class _Graph:
    """An ONNX graph with one input, one output and one ensemble of trees."""

    graph: Any
    makers: Mapping[str, Any]
    """Name of a tensor -> the operator that makes it."""
    constants: Mapping[str, Any]

    @classmethod
    def of(cls, graph: Any) -> _Graph:
        return cls(
            graph,
            {name: node for node in graph.node for name in node.output},
            {one.name: one for one in graph.initializer},
        )

    @property
    def input(self) -> str:
        return str(self.graph.input[0].name)

    def constant(self, name: str) -> NDArray[Any]:
        if name not in self.constants:
            raise _unknown(f"{name} is no constant")
        array: NDArray[Any] = need("onnx", "onnx").numpy_helper.to_array(self.constants[name])
        return array

    def maker(self, name: str, *operators: str) -> Any:
        """The operator that makes a tensor, which must be one of these."""
        node = self.makers.get(name)
        found = "the input" if node is None else node.op_type
        if node is None or node.op_type not in operators:
            raise _unknown(f"{found} in place of {' or '.join(operators)}")
        return node


def forest_of_onnx(model: Any) -> Forest:
    """The forest of an ONNX model (a ModelProto).

    Raises:
        UsageError: the model is something else, or does more than trees and one link.
    """
    graph = _Graph.of(model.graph)
    nodes = [node for node in model.graph.node if node.op_type == _ENSEMBLE]
    if len(nodes) != 1 or len(model.graph.input) != 1 or len(model.graph.output) != 1:
        raise _unknown(f"{len(nodes)} {_ENSEMBLE}, {len(model.graph.input)} inputs, {len(model.graph.output)} outputs")
    (node,) = nodes
    tensor = model.graph.input[0].type.tensor_type
    features = int(tensor.shape.dim[1].dim_value) if len(tensor.shape.dim) == 2 else 0
    if not features:
        raise _unknown(f"the input {graph.input} without a fixed number of columns")
    attributes = {one.name: need("onnx", "onnx").helper.get_attribute_value(one) for one in node.attribute}
    link, scale = _link(graph, node.output[0])
    columns, fractions = _columns(graph, node.input[0], features)
    trees, strict = _trees(attributes, features, columns)
    targets = int(attributes["n_targets"])
    return Forest(
        library="ONNX",
        trees=trees,
        features=features,
        targets=targets,
        base=_numbers(attributes, "base_values") if _has(attributes, "base_values") else np.zeros(targets),
        link=link,
        scale=scale,
        strict=strict,
        dtype="FP64" if tensor.elem_type == need("onnx", "onnx").TensorProto.DOUBLE else "FP32",
        categorical=frozenset(feature for feature, _ in columns),
        fractions=fractions,
    )


def _unknown(found: str) -> UsageError:
    todo = "choose another variant, or make the folder with tritonkit new --tree"
    return UsageError("", found=found, wanted=_WANTED, todo=todo)


def _link(graph: _Graph, sums: str) -> tuple[str, float]:
    """What becomes of the sums, and the factor before that."""
    scale = 1.0
    while sums != graph.graph.output[0].name:
        users = [node for node in graph.graph.node if sums in node.input]
        if len(users) != 1 or users[0].op_type not in (*_LINKS, "Mul"):
            raise _unknown(f"sums that go through {', '.join(node.op_type for node in users)}")
        node, sums = users[0], users[0].output[0]
        if node.op_type != "Mul":
            if sums != graph.graph.output[0].name:
                raise _unknown(f"more than {node.op_type} behind the trees")
            return _LINKS[node.op_type], scale
        factor = graph.constant(node.input[1])
        if factor.size != 1:
            raise _unknown("a factor for each of the sums")
        scale *= float(factor.item())
    return "identity", scale


def _columns(graph: _Graph, name: str, features: int) -> tuple[list[_Column], bool]:
    """The set of categories behind each column after the features, and whether fractions are cut off."""
    if name == graph.input:
        return [], False
    before = graph.maker(name, "Where", "Concat")
    first, *parts = before.input
    if before.op_type == "Where" or first != graph.input:
        raise UsageError("", found=_MISSING, wanted="NaN alone for missing values")
    columns: list[_Column] = []
    fractions = False
    for part in parts:
        member = graph.maker(graph.maker(part, "Where").input[2], "Cast")
        rows = graph.maker(member.input[0], "Gather")
        index = graph.maker(graph.maker(rows.input[1], "Squeeze").input[0], "Cast")
        inside, value, _ = graph.maker(index.input[0], "Where").input
        feature = int(graph.constant(graph.maker(value, "Gather").input[1])[0])
        table = graph.constant(rows.input[0])
        columns += [(feature, tuple(np.flatnonzero(column).tolist())) for column in table.T]
        lower = graph.maker(graph.maker(inside, "And").input[0], "Greater", "GreaterOrEqual")
        fractions |= lower.op_type == "Greater"
    return columns, fractions


def _has(attributes: Mapping[str, Any], name: str) -> bool:
    return name in attributes or f"{name}_as_tensor" in attributes


def _numbers(attributes: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    """An attribute of numbers: a list of float32, or a tensor of double."""
    if name in attributes:
        return np.asarray(attributes[name], np.float64)
    array = need("onnx", "onnx").numpy_helper.to_array(attributes[f"{name}_as_tensor"])
    return np.asarray(array, np.float64)


def _trees(attributes: Mapping[str, Any], features: int, columns: list[_Column]) -> tuple[tuple[Tree, ...], bool]:
    """The trees, and whether their tests are `x < threshold`."""
    arrays = {
        name: np.asarray(attributes[f"nodes_{name}"], np.int64)
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    }
    missing = np.asarray(attributes.get("nodes_missing_value_tracks_true", np.zeros_like(arrays["treeids"])), np.bool_)
    modes = np.array([mode.decode() for mode in attributes["nodes_modes"]])
    tests = {str(mode) for mode in np.unique(modes)} - {"LEAF"}
    if len(tests) > 1 or not tests <= set(_TESTS):
        raise _unknown(f"tests {', '.join(sorted(tests))}")
    if attributes.get("aggregate_function", b"SUM") != b"SUM" or attributes.get("post_transform", b"NONE") != b"NONE":
        raise _unknown("trees that are not added up")
    arrays["featureids"] = np.where(modes == "LEAF", -1, arrays["featureids"])
    thresholds = _numbers(attributes, "nodes_values")
    leaves = _leaves(attributes)
    bounds = [0, *(np.flatnonzero(np.diff(arrays["treeids"])) + 1).tolist(), len(modes)]
    trees: list[Tree] = []
    for start, end in pairwise(bounds):
        part = {name: array[start:end] for name, array in arrays.items()}
        if (part["nodeids"] != np.arange(end - start)).any():
            raise _unknown("nodes in another order")
        number = int(part["treeids"][0])
        trees += _by_target(part, thresholds[start:end], missing[start:end], leaves[number], features, columns)
    return tuple(trees), bool(tests and _TESTS[tests.pop()])


def _leaves(attributes: Mapping[str, Any]) -> dict[int, dict[int, tuple[list[int], list[float]]]]:
    """Tree -> target -> nodes and their values."""
    leaves: dict[int, dict[int, tuple[list[int], list[float]]]] = {}
    ids = (attributes[f"target_{name}"] for name in ("treeids", "nodeids", "ids"))
    weights = _numbers(attributes, "target_weights").tolist()
    for tree, node, target, weight in zip(*ids, weights, strict=True):
        nodes, values = leaves.setdefault(tree, {}).setdefault(target, ([], []))
        nodes.append(node)
        values.append(weight)
    return leaves


def _by_target(
    part: Mapping[str, NDArray[np.int64]],
    thresholds: NDArray[np.float64],
    missing: NDArray[np.bool_],
    leaves: Mapping[int, tuple[list[int], list[float]]],
    features: int,
    columns: list[_Column],
) -> Iterator[Tree]:
    """A tree for each target that the leaves add to."""
    feature, sets = part["featureids"].copy(), {}
    for node in np.flatnonzero(feature >= features).tolist():
        feature[node], sets[node] = columns[int(feature[node]) - features]
    for target, (nodes, values) in sorted(leaves.items()):
        added = np.zeros(len(feature))
        added[nodes] = values
        yield Tree(feature, thresholds, part["truenodeids"], part["falsenodeids"], missing, added, sets, target)
