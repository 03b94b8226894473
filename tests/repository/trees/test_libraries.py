"""Files of XGBoost, LightGBM and CatBoost as ONNX give the answers of the library that wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.repository.trees import models
from tritonkit.errors import UsageError
from tritonkit.repository.trees import Forest, onnx_of, proven, read_forest
from tritonkit.repository.trees.proof import run

pytestmark = pytest.mark.needs("trees")

XGBOOST: list[dict[str, Any]] = [
    {},
    {"objective": "binary:logistic"},
    {"objective": "binary:logistic", "base_score": 0.2},
    {"objective": "binary:logitraw"},
    {"objective": "binary:hinge"},
    {"objective": "multi:softprob"},
    {"objective": "multi:softmax"},
    {"objective": "rank:ndcg"},
    {"objective": "rank:pairwise"},
    {"objective": "count:poisson"},
    {"objective": "reg:gamma"},
    {"objective": "reg:tweedie", "base_score": 2.0},
    {"objective": "reg:logistic"},
    {"objective": "reg:absoluteerror"},
    {"objective": "reg:squarederror", "base_score": 1e4},
    {"booster": "dart", "rate_drop": 0.5},
    {"num_parallel_tree": 3, "subsample": 0.7},
    {"max_cat_to_onehot": 20},
    {"max_cat_to_onehot": 1, "max_cat_threshold": 4},
    {"tree_method": "exact", "categorical": False},
    {"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0, "tree_method": "hist"},
    {"gamma": 1e9},
    {"rounds": 40, "objective": "multi:softprob", "num_parallel_tree": 2, "subsample": 0.7},
]
LIGHTGBM: list[dict[str, Any]] = [
    {},
    {"missing": 0.0},
    {"zero_as_missing": True},
    {"use_missing": False},
    {"objective": "binary"},
    {"objective": "binary", "sigmoid": 2.5},
    {"objective": "multiclass"},
    {"objective": "multiclassova"},
    {"objective": "lambdarank"},
    {"objective": "poisson"},
    {"objective": "gamma"},
    {"objective": "tweedie"},
    {"objective": "cross_entropy"},
    {"objective": "cross_entropy_lambda"},
    {"objective": "regression", "reg_sqrt": True},
    {"objective": "quantile"},
    {"boosting": "dart", "drop_rate": 0.5},
    {"boosting": "rf", "bagging_fraction": 0.6, "bagging_freq": 1},
    {"max_cat_to_onehot": 20},
    {"min_gain_to_split": 1e9},
    {"rounds": 40},
]
CATBOOST: list[dict[str, Any]] = [
    {},
    {"nan_mode": "Max"},
    {"classes": 2},
    {"classes": 3},
    {"classes": 3, "loss_function": "MultiClassOneVsAll"},
    {"grow_policy": "Lossguide"},
    {"grow_policy": "Depthwise", "classes": 3},
]


def name_of(settings: dict[str, Any]) -> str:
    """A test's name from its settings."""
    return "-".join(f"{key}_{value}" for key, value in settings.items()) or "plain"


@pytest.mark.parametrize("form", ["json", "ubj"])
@pytest.mark.parametrize("settings", XGBOOST, ids=name_of)
def test_xgboost(tmp_path: Path, settings: dict[str, Any], form: str) -> None:
    """Sums and predictions are XGBoost's own, for its JSON and its UBJSON."""
    file = tmp_path / f"model.{form}"
    models.xgboost_file(file, **settings)
    assert proven(file, read_forest(file)).rows == 2000


def test_xgboost_2_has_no_threshold_where_it_splits_by_categories(tmp_path: Path) -> None:
    """Such nodes hold NaN in files of its older versions, and the comparison is as strict for them."""
    file = tmp_path / "model.json"
    models.xgboost_file(file)
    document = json.loads(file.read_text())
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        for node in tree["categories_nodes"]:
            tree["split_conditions"][node] = float("nan")
    file.write_text(json.dumps(document))
    forest = read_forest(file)
    assert any(tree.sets for tree in forest.trees)
    assert proven(file, forest).rows == 2000
    wrong = replace(forest, trees=[WRONG["leaf"](tree) for tree in forest.trees])
    with pytest.raises(UsageError, match="XGBoost's own is"):
        proven(file, wrong)


def test_xgboost_with_a_number_for_missing(tmp_path: Path) -> None:
    """The number and NaN both mean a missing value, as in XGBoost."""
    file = tmp_path / "model.json"
    models.xgboost_file(file, missing=-999.0)
    forest = read_forest(file)
    assert proven(file, forest, -999.0).rows == 2000
    rows = np.where(np.random.default_rng(1).random((50, 5)) < 0.5, -999.0, 1.0)
    as_missing = run(onnx_of(forest, -999.0), forest, rows)
    as_number = run(onnx_of(forest), forest, rows)
    assert (as_missing == run(onnx_of(forest), forest, np.where(rows == -999, np.nan, rows))).all()
    assert (as_missing != as_number).any()


def test_xgboost_stops_at_the_best_iteration(tmp_path: Path) -> None:
    """Trees after the best iteration are left out, as XGBoost's own estimators do."""
    import xgboost

    rows = models.table()
    label = models.target(rows, 3)
    model = xgboost.XGBClassifier(n_estimators=60, early_stopping_rounds=3, max_depth=4, n_jobs=2)
    model.fit(rows[:150], label[:150], eval_set=[(rows[150:], label[150:])], verbose=False)
    file = tmp_path / "model.json"
    model.save_model(file)
    forest = read_forest(file)
    assert len(forest.trees) == 3 * (model.best_iteration + 1) < len(model.get_booster().get_dump())
    assert "best iteration" in forest.notes[0]
    np.testing.assert_allclose(run(onnx_of(forest), forest, rows), model.predict_proba(rows), atol=1e-6)
    assert proven(file, forest).rows


@pytest.mark.parametrize("settings", LIGHTGBM, ids=name_of)
def test_lightgbm(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Sums and predictions are LightGBM's own, also for doubles between two numbers of float32."""
    file = tmp_path / "model.txt"
    models.lightgbm_file(file, **settings)
    forest = read_forest(file)
    assert forest.dtype == "FP64"
    assert proven(file, forest).rows == 2000


@pytest.mark.parametrize("settings", CATBOOST, ids=name_of)
def test_catboost(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Sums and predictions are CatBoost's own, for trees of levels and for free ones."""
    file = tmp_path / "model.json"
    models.catboost_file(file, **settings)
    assert proven(file, read_forest(file)).rows == 2000


def test_names_and_categories_of_a_table(tmp_path: Path) -> None:
    """Names of columns, categories and their order are those of the DataFrame."""
    import lightgbm
    import pandas as pd
    import xgboost

    cities = ["Bergen", "Oslo", "Praha"]
    table = pd.DataFrame(
        {
            "age": np.arange(60.0),
            "city": pd.Categorical([cities[n % 3] for n in range(60)], categories=cities),
            "zone": pd.Categorical([n % 4 * 10 for n in range(60)]),
            "member": [n % 2 == 0 for n in range(60)],
        }
    )
    label = np.array([n % 3 + n / 60 for n in range(60)])
    model = xgboost.XGBRegressor(n_estimators=5, enable_categorical=True, n_jobs=1).fit(table, label)
    for form in ("json", "ubj"):
        model.save_model(tmp_path / f"model.{form}")
        forest = read_forest(tmp_path / f"model.{form}")
        assert forest.names == ("age", "city", "zone", "member")
        assert forest.categorical == {1, 2}
        assert forest.booleans == {3}
        assert forest.categories == {1: cities, 2: [0, 10, 20, 30]}
    booster = lightgbm.train({"min_data_in_leaf": 2, "verbose": -1}, lightgbm.Dataset(table, label), 5)
    booster.save_model(tmp_path / "model.txt")
    forest = read_forest(tmp_path / "model.txt")
    assert forest.names == ("age", "city", "zone", "member")
    assert forest.categories == {1: cities, 2: [0, 10, 20, 30]}


def test_categories_that_xgboost_cuts_wrongly_are_left_out(tmp_path: Path) -> None:
    """Its file has the wrong letters of categories beyond ASCII; a note says so, and LightGBM's file has them."""
    import pandas as pd
    import xgboost

    table = pd.DataFrame({"city": pd.Categorical(["Köln", "Oslo", "Praha"] * 20), "age": np.arange(60.0)})
    model = xgboost.XGBRegressor(n_estimators=5, enable_categorical=True, n_jobs=1).fit(table, np.arange(60) % 3)
    model.save_model(tmp_path / "model.json")
    forest = read_forest(tmp_path / "model.json")
    assert not forest.categories
    assert "categories of city" in forest.notes[0]


WRONG: dict[str, Callable[[Any], Any]] = {
    "threshold": lambda tree: replace(tree, threshold=np.nextafter(tree.threshold, np.inf, dtype=np.float32)),
    "leaf": lambda tree: replace(tree, values=tree.values * 1.001),
    "missing": lambda tree: replace(tree, missing_yes=~tree.missing_yes),
    "categories": lambda tree: replace(tree, sets={node: one[1:] for node, one in tree.sets.items()}),
    "sides": lambda tree: replace(tree, yes=tree.no, no=tree.yes),
}


@pytest.mark.parametrize("change", WRONG)
def test_a_wrong_tree_is_found(tmp_path: Path, change: str) -> None:
    """The comparison notices each part of a tree that is not the library's."""
    file = tmp_path / "model.json"
    models.xgboost_file(file, rounds=3, max_cat_to_onehot=1)
    forest: Forest = read_forest(file)
    wrong = replace(forest, trees=[WRONG[change](tree) for tree in forest.trees])
    with pytest.raises(UsageError, match="XGBoost's own is"):
        proven(file, wrong)


def test_a_file_that_the_library_cannot_read_is_said(tmp_path: Path) -> None:
    """A file that the installed library refuses is served, and the note says that it was not compared."""
    file = tmp_path / "model.json"
    models.xgboost_file(file)
    document = json.loads(file.read_text())
    forest = read_forest(file)
    document["learner"]["gradient_booster"]["model"]["gbtree_model_param"] = {}
    file.write_text(json.dumps(document))
    proof = proven(file, forest)
    assert not proof.rows
    assert "does not read the file" in str(proof)
