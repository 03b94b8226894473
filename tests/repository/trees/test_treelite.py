"""Checkpoints for the FIL backend, read back from the ONNX file, give the answers of the library that trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.repository.trees import models
from tests.repository.trees.test_libraries import CATBOOST, LIGHTGBM, XGBOOST, name_of
from tritonkit.errors import UsageError
from tritonkit.repository.trees import Forest, in_float32, onnx_of, proven, read_forest
from tritonkit.repository.trees.forest import NOTHING
from tritonkit.repository.trees.from_onnx import forest_of_onnx
from tritonkit.repository.trees.proof import made_rows, run
from tritonkit.repository.trees.to_treelite import check_forest, write_checkpoint

pytestmark = pytest.mark.needs("trees")


def read_back(content: bytes) -> Forest:
    """The forest of an ONNX file."""
    return forest_of_onnx(onnx.load_from_string(content))


def by_treelite(forest: Forest, rows: Any, folder: Path) -> Any:
    """The answers of a forest's checkpoint by treelite's own predictor."""
    import treelite

    write_checkpoint(forest, folder / "checkpoint.tl", "prediction")
    model = treelite.Model.deserialize(folder / "checkpoint.tl")
    with np.errstate(over="ignore"):
        given = rows.astype(np.float32)
    return np.asarray(treelite.gtil.predict(model, given)).reshape(len(rows), -1)


def check(forest: Forest, tmp_path: Path) -> Any:
    """Rows and their answers by the checkpoint, which are those of the ONNX file."""
    content = onnx_of(forest)
    back, rows = read_back(content), made_rows(forest, infinite=False)
    expected = run(content, forest, rows)
    np.testing.assert_array_equal(run(onnx_of(back), back, rows), expected)
    answers = by_treelite(back, rows, tmp_path)
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    return rows, answers


def served(settings: dict[str, Any]) -> bool:
    """Whether FIL has what becomes of the sums of XGBoost's objective."""
    links = ("binary:hinge", "count:poisson", "reg:gamma", "reg:tweedie")
    return settings.get("objective", "") not in links


@pytest.mark.parametrize("settings", [*filter(served, XGBOOST)], ids=name_of)
def test_xgboost(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Numbers, and probabilities of classes; missing values and categories, known and unknown."""
    import xgboost

    booster = models.xgboost_file(tmp_path / "model.ubj", **settings)
    rows, answers = check(read_forest(tmp_path / "model.ubj"), tmp_path)
    if settings.get("objective") == "multi:softmax":
        return  # XGBoost gives the class
    data = xgboost.DMatrix(rows.astype(np.float32), feature_types=booster.feature_types, enable_categorical=True)
    expected = booster.predict(data).reshape(len(rows), -1)
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("settings", LIGHTGBM, ids=name_of)
def test_lightgbm_in_float32(tmp_path: Path, settings: dict[str, Any]) -> None:
    """LightGBM's own answers to numbers of float32, of which some meet a threshold or miss it by the least."""
    models.lightgbm_file(tmp_path / "model.txt", **settings)
    forest = read_forest(tmp_path / "model.txt")
    with pytest.raises(UsageError) as refused:
        check_forest(forest)
    assert ("--fp32" in refused.value.todo) is ("in double" in refused.value.found)
    rounded = in_float32(forest)
    assert proven(tmp_path / "model.txt", rounded).rows
    try:
        check_forest(rounded)
    except UsageError:
        return
    check(rounded, tmp_path)


@pytest.mark.parametrize("settings", CATBOOST, ids=name_of)
def test_catboost(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Its trees add to several classes at a time; one checkpoint tree is made for each."""
    models.catboost_file(tmp_path / "model.json", **settings)
    forest = read_forest(tmp_path / "model.json")
    if settings.get("loss_function") == "MultiClassOneVsAll":
        with pytest.raises(UsageError, match="3 outputs without a softmax"):
            check_forest(forest)
        return
    check(forest, tmp_path)


def test_the_trees_of_classes_take_turns(tmp_path: Path) -> None:
    """FIL on a GPU takes tree i for class i modulo the number of classes, and adds one number to all of them."""
    import treelite

    models.catboost_file(tmp_path / "model.json", classes=3)
    write_checkpoint(read_forest(tmp_path / "model.json"), tmp_path / "checkpoint.tl", "prediction")
    model = treelite.Model.deserialize(tmp_path / "checkpoint.tl")
    header = model.get_header_accessor()
    assert header.get_field("class_id").tolist() == [number % 3 for number in range(model.num_tree)]
    assert header.get_field("num_class").tolist() == [3]
    assert header.get_field("leaf_vector_shape").tolist() == [1, 1]
    assert header.get_field("base_scores").tolist() == [0, 0, 0]
    assert header.get_field("postprocessor") == "softmax"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"objective": "count:poisson"}, "a sum that goes through exp"),
        ({"objective": "binary:hinge"}, "a sum that goes through hinge"),
    ],
)
def test_links_that_fil_lacks_are_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    """By the file of the library, and by the ONNX file that was made of it."""
    models.xgboost_file(tmp_path / "model.json", **settings)
    forest = read_forest(tmp_path / "model.json")
    with pytest.raises(UsageError, match=words) as refused:
        check_forest(forest)
    assert "kind: cpu" in refused.value.todo
    with pytest.raises(UsageError, match="sums that go through"):
        read_back(onnx_of(forest))


def test_numbers_for_missing_values_are_refused(tmp_path: Path) -> None:
    """FIL knows NaN alone."""
    models.xgboost_file(tmp_path / "model.json", missing=-999.0)
    forest = read_forest(tmp_path / "model.json")
    with pytest.raises(UsageError, match="only NaN"):
        check_forest(forest, -999.0)
    with pytest.raises(UsageError, match="only NaN"):
        read_back(onnx_of(forest, -999.0))
    assert check_forest(forest, float("nan")) is None


def test_other_networks_are_refused() -> None:
    """A file without trees names what was found."""
    value = onnx.helper.make_tensor_value_info("x", 1, ["n", 2])
    out = onnx.helper.make_tensor_value_info("y", 1, ["n", 2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [out])
    with pytest.raises(UsageError, match="0 TreeEnsembleRegressor"):
        forest_of_onnx(onnx.helper.make_model(graph))


def free_columns(graph: Any) -> None:
    """As exporters write it that do not know the number of columns."""
    graph.input[0].type.tensor_type.shape.dim[1].Clear()


def factor_for_each_sum(graph: Any) -> None:
    """A constant of two numbers behind the trees."""
    graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones(2, np.float32), graph.initializer[0].name))


def constant_rows(graph: Any) -> None:
    """The trees do not get the input."""
    graph.node[0].input[0] = graph.initializer[0].name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (free_columns, "the input features without a fixed number of columns"),
        (factor_for_each_sum, "a factor for each of the sums"),
        (constant_rows, "the input in place of Where or Concat"),
    ],
)
def test_files_of_another_form_are_refused(change: Callable[[Any], None], words: str) -> None:
    """An ONNX file of trees need not be one that was written here."""
    model = onnx.load_from_string(onnx_of(Forest("ours", [NOTHING], 2, 1, np.zeros(1), scale=2.0)))
    assert forest_of_onnx(model).scale == 2
    change(model.graph)
    with pytest.raises(UsageError, match=words):
        forest_of_onnx(model)
