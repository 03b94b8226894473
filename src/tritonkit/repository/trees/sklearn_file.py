"""Convert a scikit-learn pipeline in a skops file, by skl2onnx, and compare its answers.

A skops file is opened only if skops trusts its types, or they are those of `_TRUSTED`: unlike a pickle it runs no code
of its own. Columns with names become inputs of their own, texts as strings: the file's own encoders keep
their rules for unknown categories.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.extras import need
from tritonkit.repository.trees.forest import Tree
from tritonkit.repository.trees.running import run_file
from tritonkit.text import first_line
from tritonkit.watched import step

__all__ = ["onnx_of_skops"]

_ROWS = 300
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
_INPUT = "features"
_TRUSTED = {
    "numpy.dtype",
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
}
"""Types that run no code either. skops names them because they hold trees in memory, which `_check_trees` does."""
_UNSEEN = "\u0000 unseen"


def onnx_of_skops(file: Path, say: Callable[[str], None]) -> bytes:
    """The ONNX file of a pipeline, in double if its converter can.

    Raises:
        UsageError: the file names other types, cannot be converted, or answers differently.
    """
    pipeline = _opened(file)
    columns = _columns(pipeline)
    say(f"scikit-learn: converting {type(pipeline).__name__} with {len(columns)} columns ...")
    problems = []
    for number in ("DoubleTensorType", "FloatTensorType"):
        try:
            content = _converted(pipeline, columns, number)
            rows = _compared(pipeline, columns, content)
        except Exception as error:  # the converter's errors have no common root
            problems.append(first_line(error))
            continue
        if number == "FloatTensorType":
            say(f"its numbers are FP32, because it cannot be converted in double: {problems[0]}")
        say(f"the answers to {rows} rows are those of scikit-learn")
        return content
    raise UsageError(
        "",
        found=f"{type(pipeline).__name__} cannot be converted to ONNX: {problems[0]}",
        wanted="estimators that skl2onnx converts",
        todo="replace the estimator, or serve scikit-learn itself from a model.py",
    )


def _opened(file: Path) -> Any:
    io = need("skops.io", "trees")
    need("sklearn", "trees")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another version of scikit-learn; the comparison decides
        try:
            named = set(io.get_untrusted_types(file=file))
            unknown = sorted(named - _TRUSTED)
            if not unknown:
                loaded = io.load(file, trusted=sorted(named))
                _check_trees(loaded)
                return loaded
        except UsageError:
            raise
        except Exception as error:  # a zip of something else
            raise UsageError(
                "",
                found=f"it cannot be read as a skops file: {first_line(error)}",
                wanted="a file of skops.io.dump",
                todo="for PyTorch's format use --torch with --weights",
            ) from None
    raise UsageError(
        "",
        found=f"types that are not scikit-learn's, numpy's or scipy's: {', '.join(map(str, unknown[:3]))}",
        wanted="types that run no code of others",
        todo="convert it where it was trained: skl2onnx.to_onnx(pipeline, X), then --onnx",
    )


def _check_trees(loaded: Any) -> None:
    """Raise UsageError for a tree whose nodes lead out of it: scikit-learn follows them without looking."""
    seen: set[int] = set()
    left: list[tuple[Any, int]] = [(loaded, 0)]
    while left:
        value, features = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if hasattr(value, "children_left"):
            _check_tree(value.children_left < 0, value.feature, value.children_left, value.children_right, features)
        elif type(value).__name__ == "TreePredictor":
            nodes = value.nodes
            _check_tree(nodes["is_leaf"] != 0, nodes["feature_idx"], nodes["left"], nodes["right"], features)
        elif isinstance(value, list | tuple | set):
            left += [(one, features) for one in value]
        elif isinstance(value, dict):
            left += [(one, features) for one in value.values()]
        elif isinstance(value, np.ndarray) and value.dtype == object:
            left += [(one, features) for one in value.ravel()]
        elif hasattr(value, "__dict__"):
            count = getattr(value, "n_features_in_", features)
            left += [(one, count if isinstance(count, int) else features) for one in vars(value).values()]


def _check_tree(leaf: Any, feature: Any, yes: Any, no: Any, features: int) -> None:
    count = len(leaf)
    try:
        Tree(
            np.where(leaf, -1, np.asarray(feature, np.int64)),
            np.zeros(count),
            np.asarray(yes, np.int64),
            np.asarray(no, np.int64),
            np.zeros(count, np.bool_),
            np.zeros(count),
        ).reached(features)
    except UsageError as error:
        error.where = "a tree"
        raise


def _columns(pipeline: Any) -> dict[str, tuple[Any, ...] | None]:
    """Name of a column -> its categories if it holds texts, or None for numbers."""
    count = getattr(pipeline, "n_features_in_", None)
    names = list(map(str, getattr(pipeline, "feature_names_in_", [])))
    if count is None:
        raise UsageError("", found="an estimator that is not fitted, or takes texts", wanted="a fitted pipeline")
    columns: dict[str, tuple[Any, ...] | None] = dict.fromkeys(names or map(str, range(count)))
    for transformer, places in _transformers(pipeline, list(columns)):
        for place, name in enumerate(places):
            categories = _texts(transformer, place)
            if categories is not None:
                columns[name] = categories
    return columns


def _steps(estimator: Any) -> Iterator[Any]:
    for _, one in getattr(estimator, "steps", [("", estimator)]):
        yield one


def _transformers(estimator: Any, names: list[str]) -> Iterator[tuple[Any, list[str]]]:
    """Each transformer of columns, with the names of those."""
    first = next(iter(_steps(estimator)))
    if not hasattr(first, "transformers_"):
        yield estimator, names
        return
    for _, transformer, columns in first.transformers_:
        if isinstance(transformer, str):
            continue
        picked = np.array(names, object)
        if isinstance(columns, str):
            places = [columns]
        elif all(isinstance(column, str) for column in np.atleast_1d(columns)):
            places = list(columns)
        else:
            places = picked[columns].tolist()
        yield from _transformers(transformer, places)


def _texts(transformer: Any, place: int) -> tuple[Any, ...] | None:
    """The categories of a column if they are texts, by the first step that knows them."""
    for one in _steps(transformer):
        for known in (getattr(one, "categories_", None), getattr(one, "statistics_", None)):
            if known is not None and place < len(known):
                values = np.atleast_1d(known[place]).tolist()
                if any(isinstance(value, str) for value in values):
                    return tuple(values)
    return None


def _converted(pipeline: Any, columns: dict[str, tuple[Any, ...] | None], number: str) -> bytes:
    """The file by skl2onnx."""
    skl2onnx, types = need("skl2onnx", "trees"), need("skl2onnx.common.data_types", "trees")
    kind = getattr(types, number)
    if hasattr(pipeline, "feature_names_in_"):
        given = [
            (name, kind([None, 1]) if texts is None else types.StringTensorType([None, 1]))
            for name, texts in columns.items()
        ]
    else:
        given = [(_INPUT, kind([None, len(columns)]))]
    options = {id(pipeline): {"zipmap": False}} if hasattr(pipeline, "predict_proba") else None
    with warnings.catch_warnings(), step("skl2onnx converts the pipeline"):
        warnings.simplefilter("ignore")
        model = skl2onnx.convert_sklearn(
            pipeline, initial_types=given, options=options, target_opset={"": 17, "ai.onnx.ml": 3}
        )
    if number == "DoubleTensorType":
        _impute_doubles(model.graph)
    content: bytes = model.SerializeToString()
    return content


def _impute_doubles(graph: Any) -> None:
    """Replace each Imputer, which ONNX Runtime has for float32 alone, by operators for double."""
    onnx = need("onnx", "onnx")
    nodes = []
    for node in graph.node:
        values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type != "Imputer" or not np.isnan(values.get("replaced_value_float", 0.0)):
            nodes.append(node)
            continue
        x, y = node.input[0], node.output[0]
        filled = np.array(values["imputed_value_floats"], np.float64)
        graph.initializer.append(onnx.numpy_helper.from_array(filled, f"{y}_values"))
        nodes.append(onnx.helper.make_node("IsNaN", [x], [f"{y}_missing"]))
        nodes.append(onnx.helper.make_node("Where", [f"{y}_missing", f"{y}_values", x], [y]))
    del graph.node[:]
    graph.node.extend(nodes)


def _compared(pipeline: Any, columns: dict[str, tuple[Any, ...] | None], content: bytes) -> int:
    """Compare answers to made-up rows; their number.

    Raises:
        ValueError: an answer differs.
    """
    rows = _rows(pipeline, columns)
    named = hasattr(pipeline, "feature_names_in_")

    def given(types: Mapping[str, str]) -> dict[str, Any]:
        kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64}
        return {
            name: np.stack([rows[name]] if named else list(rows.values()), axis=1).astype(kinds.get(kind, object))
            for name, kind in types.items()
        }

    answers = list(run_file(content, given).values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _predicted(pipeline, rows, named)
    for ours, theirs in zip(answers[-len(expected) :], expected, strict=True):
        ours = np.asarray(ours).reshape(np.shape(theirs))
        if theirs.dtype.kind in "OUS":
            if (ours.astype(str) != theirs.astype(str)).any():
                raise ValueError("its classes differ from those of scikit-learn")
        elif not np.allclose(ours, theirs, rtol=_RELATIVE, atol=_ABSOLUTE):
            raise ValueError("its numbers differ from those of scikit-learn")
    return len(next(iter(rows.values())))


def _rows(pipeline: Any, columns: dict[str, tuple[Any, ...] | None]) -> dict[str, Any]:
    """Made-up rows by column: numbers of several sizes, known categories, and what the pipeline takes besides."""
    draw = np.random.default_rng(0)
    rows: dict[str, Any] = {}
    for name, texts in columns.items():
        if texts is None:
            rows[name] = draw.normal(0, 1, _ROWS) * draw.choice([1, 10, 1000], _ROWS)
        else:
            rows[name] = np.array(texts, object)[draw.integers(0, len(texts), _ROWS)]
    named = hasattr(pipeline, "feature_names_in_")
    for name, texts in columns.items():
        tried = dict(rows)
        values = rows[name].copy()
        values[draw.random(_ROWS) < 0.1] = np.nan if texts is None else _UNSEEN
        tried[name] = values
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _predicted(pipeline, tried, named)
        except ValueError:
            continue  # it refuses them, and so will callers not send them
        rows = tried
    return rows


def _predicted(pipeline: Any, rows: dict[str, Any], named: bool) -> list[Any]:
    """Labels and probabilities, or numbers."""
    given = need("pandas", "trees").DataFrame(rows) if named else np.stack(list(rows.values()), axis=1)
    if hasattr(pipeline, "predict_proba"):
        return [np.asarray(pipeline.predict(given)), np.asarray(pipeline.predict_proba(given))]
    if hasattr(pipeline, "predict"):
        return [np.asarray(pipeline.predict(given))]
    return [np.asarray(pipeline.transform(given))]
