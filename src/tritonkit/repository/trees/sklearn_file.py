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
from zipfile import ZipFile

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.extras import need
from tritonkit.repository.trees.forest import Tree
from tritonkit.repository.trees.running import run_file
from tritonkit.text import first_line
from tritonkit.watched import step

__all__ = ["onnx_of_skops"]

_MAX_BYTES = 1 << 30
_ROWS = 300
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
_INPUT = "features"
_TRUSTED = {
    "numpy.dtype",
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
}
"""Types that run no code either. skops names them because they hold trees in memory, which `_check_trees` does."""
_MISSING = 0.1
_Columns = dict[str, tuple[Any, ...] | None]
"""Name of a column -> its categories if it holds texts, or None for numbers."""
_Rows = dict[str, Any]
"""Name of a column -> its values."""
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
            known, usual = _rows(pipeline, columns)
            _compare(pipeline, known, content)
        except Exception as error:  # the converter's errors have no common root
            problems.append(first_line(error))
            continue
        if number == "FloatTensorType":
            say(f"its numbers are FP32, because it cannot be converted in double: {problems[0]}")
        say(f"the answers to {_ROWS} rows are those of scikit-learn")
        _note_missing(pipeline, columns, known, usual, content, say)
        return content
    raise UsageError(
        "",
        found=f"{type(pipeline).__name__} cannot be converted to ONNX: {problems[-1]}",
        wanted="estimators that skl2onnx converts",
        todo="replace the estimator, or serve scikit-learn itself from a model.py",
    )


def _note_missing(
    pipeline: Any, columns: _Columns, known: _Rows, unusual: _Rows, content: bytes, say: Callable[[str], None]
) -> None:
    """Compare each column's missing values or unknown texts, which some converters treat in another way."""
    differ = []
    for name, values in unusual.items():
        try:
            _compare(pipeline, {**known, name: values}, content)
        except ValueError:
            differ.append(f"{name} ({'missing values' if columns[name] is None else 'unknown texts'})")
    if differ:
        say(f"warning: the answers differ from scikit-learn's for {', '.join(differ)}: callers must not send them")


def _opened(file: Path) -> Any:
    io = need("skops.io", "trees")
    need("sklearn", "trees")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another version of scikit-learn; the comparison decides
        try:
            _check_size(file)
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
                todo="save it again, or use --file or --keras for an archive of PyTorch or Keras",
            ) from None
    raise UsageError(
        "",
        found=f"types that are not scikit-learn's, numpy's or scipy's: {', '.join(map(str, unknown[:3]))}",
        wanted="types that run no code of others",
        todo="convert it where it was trained: skl2onnx.to_onnx(pipeline, X), then --onnx",
    )


def _check_size(file: Path) -> None:
    """Raise UsageError for an archive of which little grows to more than can be read."""
    with ZipFile(file) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > _MAX_BYTES:
        raise UsageError("", found=f"an archive that holds {size} bytes", wanted=f"at most {_MAX_BYTES}")


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


def _columns(pipeline: Any) -> _Columns:
    """Name of a column -> its categories if it holds texts, or None for numbers."""
    count = getattr(pipeline, "n_features_in_", None)
    names = list(map(str, getattr(pipeline, "feature_names_in_", [])))
    if count is None:
        raise UsageError("", found="an estimator that is not fitted, or takes texts", wanted="a fitted pipeline")
    columns: _Columns = dict.fromkeys(names or map(str, range(count)))
    for transformer, places in _transformers(pipeline, list(columns)):
        for place, name in enumerate(places):
            categories = _texts(transformer, place)
            if categories is not None:
                columns[name] = categories
                _take_empty_for_missing(transformer)
    return columns


def _take_empty_for_missing(transformer: Any) -> None:
    """Let imputers of texts fill empty ones: a tensor of texts has no other missing value."""
    for one in _steps(transformer):
        if type(one).__name__ == "SimpleImputer" and not isinstance(one.missing_values, str):
            one.missing_values = ""


def _steps(estimator: Any) -> Iterator[Any]:
    """The steps of a pipeline, and of pipelines in it."""
    if not hasattr(estimator, "steps"):
        yield estimator
        return
    for _, one in estimator.steps:
        yield from _steps(one)


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


def _converted(pipeline: Any, columns: _Columns, number: str) -> bytes:
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
        _declare_sums(model.graph)
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


def _declare_sums(graph: Any) -> None:
    """Declare outputs of trees as FP32, which they are for inputs of double too."""
    onnx = need("onnx", "onnx")
    sums = {name for node in graph.node if node.op_type.startswith("TreeEnsemble") for name in node.output}
    for value in (*graph.output, *graph.value_info):
        if value.name in sums and value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT


def _compare(pipeline: Any, rows: _Rows, content: bytes) -> None:
    """Compare the answers to rows.

    Raises:
        ValueError: an answer differs.
    """
    named = hasattr(pipeline, "feature_names_in_")

    def given(types: Mapping[str, str]) -> dict[str, Any]:
        kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64}
        return {
            name: np.stack([rows[name]] if named else list(rows.values()), axis=1).astype(kinds.get(kind, object))
            for name, kind in types.items()
        }

    answers = list(run_file(content, given).values())
    expected = _predicted(pipeline, rows)
    sure = np.ones(_ROWS, np.bool_)
    if hasattr(pipeline, "predict_proba"):  # of two classes with nearly the same probability, either may win
        best = np.sort(expected[1], axis=1)[:, -2:]
        sure = best[:, -1] - best[:, 0] > _ABSOLUTE
    for place, (ours, theirs) in enumerate(zip(answers[-len(expected) :], expected, strict=True)):
        ours = np.asarray(ours).reshape(np.shape(theirs))
        if place == 0 and len(expected) > 1:
            if (ours.astype(str) != theirs.astype(str))[sure].any():
                raise ValueError("its classes differ from those of scikit-learn")
        elif not np.allclose(ours, theirs, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True):
            raise ValueError("its numbers differ from those of scikit-learn")


def _rows(pipeline: Any, columns: _Columns) -> tuple[_Rows, _Rows]:
    """Made-up rows by column, of numbers of several sizes and known categories; and each column with missing values or
    unknown texts, if the pipeline takes them."""
    draw = np.random.default_rng(0)
    rows: _Rows = {}
    for name, texts in columns.items():
        if texts is None:
            rows[name] = draw.normal(0, 1, _ROWS) * draw.choice([1, 10, 1000], _ROWS)
        else:
            rows[name] = np.array(texts, object)[draw.integers(0, len(texts), _ROWS)]
    unusual = {}
    for name, texts in columns.items():
        values = rows[name].copy()
        values[draw.random(_ROWS) < _MISSING] = np.nan if texts is None else _UNSEEN
        try:
            _predicted(pipeline, {**rows, name: values})
        except ValueError:
            continue  # scikit-learn refuses them
        unusual[name] = values
    return rows, unusual


def _predicted(pipeline: Any, rows: _Rows) -> list[Any]:
    """Labels and probabilities, or numbers."""
    named = hasattr(pipeline, "feature_names_in_")
    given = need("pandas", "trees").DataFrame(rows) if named else np.stack(list(rows.values()), axis=1)
    methods = ("predict", "predict_proba") if hasattr(pipeline, "predict_proba") else ("predict",)
    if not hasattr(pipeline, "predict"):
        methods = ("transform",)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(getattr(pipeline, method)(given)) for method in methods]
