"""Write a forest as a checkpoint of treelite, which Triton's FIL backend reads.

The facts are those of triton-inference-server/fil_backend (docs/model_config.md, docs/model_support.md, src/tl_model.h
and src/shared_state.h of its releases 24.10 and 26.06) and of RAPIDS cuML's cpp/src/fil/treelite_import.cu:

- 24.10 and later read checkpoints of treelite 4, written by any of its minor releases. The formats of the libraries
  change faster than the backend's readers: treelite 4.3, which is in 24.10, refuses files of XGBoost 3.1 for their key
  `cats`.
- All is computed in float32, and on a GPU the backend takes no forest with double thresholds.
- Behind a single sum FIL on a GPU has a sigmoid or nothing. Behind several sums, which are classes, the backend itself
  puts a softmax, if each leaf adds to one of them. It has no regression with several outputs.
- The trees of classes take turns (GROVE_PER_CLASS): tree i adds to class i modulo the number of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.extras import need
from tritonkit.repository.trees.forest import NOTHING, Forest, Tree

__all__ = ["OUTPUT_NAME", "check_forest", "write_checkpoint"]

OUTPUT_NAME = "tritonkit.output"
"""The attribute of a checkpoint with the name of its output, which FIL does not read."""
_ON_CPU = "instance_group: [{kind: cpu}] and no variant for this target, which serves the ONNX file on the CPU"
_ONE_SUM = {"identity": "identity", "sigmoid": "sigmoid"}


def check_forest(forest: Forest, missing: float | None = None) -> None:
    """UsageError with the reason if FIL cannot give this forest's answers.

    Args:
        missing: a number that means a missing value, in addition to NaN.
    """
    found, todo = "", "say "
    if forest.zero_missing or not (missing is None or np.isnan(missing)):
        found = "numbers that mean a missing value, and for FIL only NaN does"
    elif forest.dtype != "FP32":
        found = "columns and thresholds in double, as LightGBM has them, and FIL computes in float32"
        todo = "make the folder with tritonkit new --tree ... --fp32, or say "
    elif forest.targets == 1 and forest.link not in _ONE_SUM:
        found = f"a sum that goes through {forest.link}, and FIL has a sigmoid or nothing there"
    elif forest.targets > 1 and forest.link != "softmax":
        found = f"{forest.targets} outputs without a softmax, and FIL has several outputs for classes alone"
    if found:
        wanted = "one output, or the probabilities of classes, in float32"
        raise UsageError("", found=found, wanted=wanted, todo=todo + _ON_CPU)


def write_checkpoint(forest: Forest, file: Path, output: str) -> None:
    """Write the checkpoint.

    Args:
        output: the name of the output, for whoever opens it.

    Raises:
        UsageError: FIL cannot give the forest's answers.
    """
    check_forest(forest)
    builder = need("treelite.model_builder", "fil")
    trees, base = _rounds(forest)
    several = forest.targets > 1
    made = builder.ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=builder.Metadata(
            num_feature=forest.features,
            task_type="kMultiClf" if several else "kBinaryClf" if forest.link == "sigmoid" else "kRegressor",
            average_tree_output=False,
            num_target=1,
            num_class=[forest.targets],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=builder.TreeAnnotation(len(trees), [0] * len(trees), [tree.target for tree in trees]),
        postprocessor=builder.PostProcessorFunc("softmax" if several else _ONE_SUM[forest.link]),
        base_scores=base,
        attributes={OUTPUT_NAME: output},
    )
    for tree in trees:
        _add(made, tree, forest)
    made.commit().serialize(file)


def _rounds(forest: Forest) -> tuple[Sequence[Tree], list[float]]:
    """The trees, those of several classes by turns, and what is added to each sum.

    FIL on a GPU adds one number to all classes, so that of each class is in the leaves of its first tree.
    """
    base = (forest.base * forest.scale).astype(np.float64)
    if forest.targets == 1:
        return list(forest.trees) or [NOTHING], base.tolist()
    by_class: list[list[Tree]] = [[] for _ in range(forest.targets)]
    for tree in forest.trees:
        columns = {tree.target: tree.values} if tree.values.ndim == 1 else dict(enumerate(tree.values.T))
        for target, values in columns.items():
            by_class[target].append(replace(tree, values=values, target=target))
    count = max(1, *map(len, by_class))
    for number, trees in enumerate(by_class):
        trees += [_targeted(NOTHING, number)] * (count - len(trees))
        trees[0] = _targeted(trees[0], number, float(forest.base[number]))
    return [by_class[number % forest.targets][number // forest.targets] for number in range(count * forest.targets)], [
        0.0
    ] * forest.targets


def _targeted(tree: Tree, target: int, more: float = 0.0) -> Tree:
    return replace(tree, values=np.where(tree.feature < 0, tree.values + more, 0), target=target)


def _add(builder: Any, tree: Tree, forest: Forest) -> None:
    """A tree; the left child of a node is `yes`. Categories of a set take the right one, as FIL has it."""
    test = "<" if forest.strict else "<="
    columns = zip(
        tree.feature.tolist(),
        tree.threshold.tolist(),
        tree.yes.tolist(),
        tree.no.tolist(),
        tree.missing_yes.tolist(),
        (tree.values * forest.scale).tolist(),
        strict=True,
    )
    builder.start_tree()
    for node, (feature, threshold, yes, no, missing_yes, value) in enumerate(columns):
        builder.start_node(node)
        if feature < 0:
            builder.leaf(value)
        elif node in tree.sets:
            builder.categorical_test(
                feature,
                default_left=missing_yes,
                category_list=list(tree.sets[node]),
                category_list_right_child=True,
                left_child_key=yes,
                right_child_key=no,
            )
        else:
            builder.numerical_test(
                feature, threshold, default_left=missing_yes, opname=test, left_child_key=yes, right_child_key=no
            )
        builder.end_node()
    builder.end_tree()
