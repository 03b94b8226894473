"""Small models of each library, trained on a table with missing values and categories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS, CATEGORIES = 300, 5, 12
CATEGORICAL = 4
"""The column of categories."""
GROUPS = [50] * 6


def table(missing: float = 0.15, seed: int = 3) -> np.ndarray:
    """Rows of numbers, the last column of categories; some values are missing."""
    draw = np.random.default_rng(seed)
    rows = draw.normal(0, 3, (ROWS, COLUMNS))
    rows[:, 1] = draw.integers(-3, 4, ROWS)  # with zeros
    rows[:, CATEGORICAL] = draw.integers(0, CATEGORIES, ROWS)
    rows[draw.random(rows.shape) < missing] = np.nan
    return rows


def target(rows: np.ndarray, classes: int = 0) -> np.ndarray:
    """Something to learn from the rows."""
    known = np.nan_to_num(rows, nan=7.0)
    value = known[:, 0] + 2 * np.sin(known[:, 1]) + np.isin(known[:, CATEGORICAL], (1, 4, 7, 11)) * 5 + known[:, 2] / 9
    if not classes:
        return value
    return np.searchsorted(np.quantile(value, np.arange(1, classes) / classes), value)


def xgboost_file(file: Path, rounds: int = 8, categorical: bool = True, missing: float = np.nan, **more: Any) -> Any:
    """A file of XGBoost; the booster."""
    import xgboost

    objective = more.setdefault("objective", "reg:squarederror")
    rows = table()
    classes = {"binary": 2, "multi": 3, "rank": 4}.get(objective.split(":")[0], 0)
    label = target(rows, classes)
    if objective in ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox"):
        label = np.abs(label) + 0.5
    if objective == "reg:logistic":
        label = (label - label.min()) / np.ptp(label)
    if not np.isnan(missing):
        rows = np.nan_to_num(rows, nan=missing)
    if more["objective"].startswith("multi"):
        more["num_class"] = 3
    data = xgboost.DMatrix(
        rows,
        label,
        missing=missing,
        feature_types=["q"] * CATEGORICAL + ["c" if categorical else "q"],
        enable_categorical=True,
    )
    if objective.startswith("rank"):
        data.set_group(GROUPS)
    settings = {"max_depth": 4, "eta": 0.4, "nthread": 2, **more}
    booster = xgboost.train(settings, data, rounds)
    booster.save_model(file)
    return booster


def lightgbm_file(
    file: Path, rounds: int = 8, zero_as_missing: bool = False, missing: float = 0.15, **more: Any
) -> Any:
    """A file of LightGBM; the booster."""
    import lightgbm

    objective = more.setdefault("objective", "regression")
    rows = table(missing)
    kinds = {"binary": 2, "multiclass": 3, "multiclassova": 3, "lambdarank": 4}
    label = target(rows, kinds.get(objective, 0))
    if objective in ("poisson", "gamma", "tweedie"):
        label = np.abs(label) + 0.5
    if objective.startswith("cross_entropy"):
        label = (label - label.min()) / np.ptp(label)
    if objective.startswith("multiclass"):
        more["num_class"] = 3
    settings = {"min_data_in_leaf": 3, "num_leaves": 15, "verbose": -1, "num_threads": 2, "min_data_per_group": 3}
    settings |= {"zero_as_missing": zero_as_missing, "cat_smooth": 1, "seed": 1, **more}
    data = lightgbm.Dataset(rows, label, categorical_feature=[CATEGORICAL], params=settings)
    if objective == "lambdarank":
        data.set_group(GROUPS)
    booster = lightgbm.train(settings, data, rounds)
    booster.save_model(file)
    return booster


def catboost_file(file: Path, form: str = "json", rounds: int = 8, classes: int = 0, **more: Any) -> Any:
    """A file of CatBoost; the model."""
    import catboost

    rows = table()
    kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
    model = kind(iterations=rounds, depth=4, verbose=0, thread_count=2, allow_writing_files=False, **more)
    model.fit(rows, target(rows, classes))
    model.save_model(str(file), format=form)
    return model
