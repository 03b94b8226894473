"""`tritonkit new --tree`: a folder for decision trees and for pipelines of scikit-learn, converted to ONNX."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tritonkit.errors import BuildError, UsageError
from tritonkit.repository.optimize.variants import fil
from tritonkit.repository.scaffold.folder import refuse_taken, write_folder
from tritonkit.repository.scaffold.from_onnx import new_from_onnx
from tritonkit.repository.trees import Forest, in_float32, onnx_of, proven, read_forest
from tritonkit.repository.trees.classifiers import without_zipmap
from tritonkit.repository.trees.reading import kind_of
from tritonkit.repository.trees.sklearn_file import onnx_of_skops
from tritonkit.repository.trees.to_onnx import INPUT
from tritonkit.repository.trees.to_treelite import check_forest

__all__ = ["new_from_tree"]

_FILE = "trees.onnx"
_FEATURES = "features.yaml"
_WIDTH = 10**6
"""Characters of a feature's line, so that it stays one."""


def new_from_tree(
    root: Path,
    name: str,
    file: Path,
    missing: float | None = None,
    say: Callable[[str], None] = lambda _: None,
    *,
    fp32: bool = False,
) -> Path:
    """A folder below `models/` with a file of trees as ONNX, after its answers were compared with the library's.

    Columns with names become a record, whose values `features.yaml` puts in order.

    Args:
        missing: a number that means a missing value, in addition to NaN, as XGBoost's `missing`.
        fp32: whether columns are FP32 where the library takes FP64.

    Raises:
        UsageError: the file cannot be served; the message says which place in it shows that.
    """
    refuse_taken(root, name)
    with _placed(file):
        kind = kind_of(file)
        if kind != "forest":
            if missing is not None:
                raise UsageError("", found="--missing for another file than one of trees", wanted="an imputer in it")
            if fp32:
                raise UsageError("", found="--fp32 for another file than one of trees", wanted="no --fp32")
            return _from_onnx(root, name, file, kind, say)
        forest = read_forest(file)
        forest = in_float32(forest) if fp32 else forest
        nodes = sum(len(tree.feature) for tree in forest.trees)
        say(f"{forest.library}: converting {len(forest.trees)} trees of {nodes} nodes ...")
        content = onnx_of(forest, missing)
        for text in forest.notes:
            say(text)
        say(str(proven(file, forest, missing)))
    settings: dict[str, Any] = {
        "description": f"{len(forest.trees)} trees of {forest.library}",
        "network": {"onnx": _FILE},
    }
    code = {_FILE: content}
    end = {"serving": {"targets": {"nvidia": _on_nvidia(forest, missing, say)}}}
    if forest.names:
        parameters: dict[str, Any] = {"features": _FEATURES, "size": forest.features, "nan": "keep"}
        if forest.dtype != "FP32":
            parameters["dtype"] = forest.dtype
        settings["pipeline"] = [{"step": "assemble_features", "parameters": parameters}, "network"]
        settings["example"] = {"record": {"text": _record(forest)}}
        code[_FEATURES] = _features(forest).encode()
    return write_folder(root, name, settings | end, {}, code, ((), _quality(forest)))


def _on_nvidia(forest: Forest, missing: float | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Settings for NVIDIA's image, whose FIL backend runs the trees on a GPU.

    Trees that FIL cannot serve run on the CPU: a GPU does not run those of an ONNX file.
    """
    try:
        check_forest(forest, missing)
    except UsageError as error:
        say(f"--target nvidia serves them on the CPU, not by FIL: {error.found}")
        return {"instance_group": [{"kind": "cpu"}]}
    return {"variant": fil.NAME}


@contextmanager
def _placed(file: Path) -> Iterator[None]:
    """Errors name the option and the file, in front of their place in it."""
    try:
        yield
    except (UsageError, BuildError) as error:
        where = f"--tree {file}" + (f": {error.where}" if error.where else "")
        raise UsageError(
            where, found=error.found, wanted=error.wanted, todo=error.todo, details=error.details
        ) from error


def _from_onnx(root: Path, name: str, file: Path, kind: str, say: Callable[[str], None]) -> Path:
    """A folder for a file that is ONNX, or becomes it by scikit-learn's converter."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / (file.name if kind == "onnx" else _FILE)
        made.write_bytes(without_zipmap(file) if kind == "onnx" else onnx_of_skops(file, say))
        return new_from_onnx(root, name, made, "")


def _entry(forest: Forest, column: int) -> dict[str, Any]:
    """A column as features.yaml has it. A record may leave it out: trees know missing values."""
    name = forest.names[column]
    if column in forest.booleans:
        return {"name": name, "kind": "bool", "default": float("nan")}
    if column in forest.categories:
        unknown: dict[str, Any] = {"unknown": float("nan")} if forest.unknown_missing else {}
        categories = list(forest.categories[column])
        return {"name": name, "kind": "index", "categories": categories, **unknown, "default": float("nan")}
    return {"name": name, "default": float("nan")}


def _features(forest: Forest) -> str:
    lines = []
    for column in range(forest.features):
        line = yaml.safe_dump(
            _entry(forest, column), default_flow_style=True, sort_keys=False, width=_WIDTH, allow_unicode=False
        ).strip()
        note = "   # the category's number"
        plain = column in forest.categorical and column not in forest.categories
        lines.append(f"- {line}{note if plain else ''}\n")
    return "".join(lines)


def _record(forest: Forest) -> str:
    """A record: a threshold of each column, the first category."""
    values: dict[int, float] = {}
    for tree in forest.trees:
        for node in np.flatnonzero(tree.feature >= 0).tolist():
            if node not in tree.sets and np.isfinite(tree.threshold[node]):
                values.setdefault(int(tree.feature[node]), float(np.float32(tree.threshold[node])))
    record: dict[str, Any] = {}
    for column, name in enumerate(forest.names):
        if column in forest.booleans:
            record[name] = False
        elif column in forest.categories:
            record[name] = forest.categories[column][0]
        else:
            record[name] = 0 if column in forest.categorical else float(f"{values.get(column, 0.0):.6g}")
    return json.dumps(record)


def _quality(forest: Forest) -> list[str]:
    given = "record, label" if forest.names else INPUT
    return [
        "# Your own data, on which a build measures; without it, input is made up.",
        f"# quality: {{samples: data:samples}}   # a function of data.py that returns batches of {given}: docs/spec.md",
    ]
