"""Recipes of the pages about tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.families.recipes import Answer, Item, Recipe, from_json, items_of

if TYPE_CHECKING:
    from bench.families.kitchen import Kitchen
    from tritonkit.client import Reply

__all__ = ["RECIPES"]

CITIES = ("Graz", "Oslo", "Praha", "Wien")
PLANS = ("basic", "family", "pro")
_ROWS, _SMALL = 20_000, 600
_ITEMS = 64


def customers(rows: int) -> dict[str, list[Any]]:
    """A table of customers in which a tenth of the values is missing, and whether each left."""
    draw = np.random.default_rng(11)
    age, income = draw.uniform(18, 90, rows).round(1), draw.normal(50_000, 15_000, rows).round()
    city, plan = draw.integers(0, len(CITIES), rows), draw.integers(0, len(PLANS), rows)
    left = (age < 40) ^ (income > 55_000) ^ (city == 2) ^ ((plan == 1) & (draw.random(rows) < 0.7))
    columns: dict[str, list[Any]] = {
        "age": age.tolist(),
        "income": income.tolist(),
        "city": [CITIES[number] for number in city],
        "plan": [PLANS[number] for number in plan],
    }
    for values in columns.values():
        for place in np.flatnonzero(draw.random(rows) < 0.1):
            values[place] = None
    return {**columns, "left": left.astype(int).tolist()}


def _written(place: Kitchen, table: dict[str, list[Any]]) -> None:
    import pandas as pd

    pd.DataFrame(table).to_csv(place.folder / "customers.csv", index=False)


def trees(place: Kitchen, small: bool) -> list[Item]:
    """The table, and records of which a fourth leaves a column out."""
    table = customers(_SMALL if small else _ROWS)
    _written(place, table)
    records = []
    for number in range(_ITEMS):
        record = {name: values[number] for name, values in table.items() if name != "left"}
        if number % 4 == 0:
            del record[("age", "income", "city", "plan")[number // 4 % 4]]
        records.append(json.dumps(record, ensure_ascii=False))
    return items_of("record", records)


def probabilities(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """XGBoost's own, of a DataFrame."""
    import pandas as pd
    from xgboost import XGBClassifier

    model = XGBClassifier()
    model.load_model(folder / "model.json")
    rows = pd.DataFrame([json.loads(item["record"]) for item in items], columns=["age", "income", "city", "plan"])
    typed = rows.astype({"age": float, "income": float, "city": "category", "plan": "category"})
    return [Answer([probability]) for probability in model.predict_proba(typed)[:, 1]]


def columns(place: Kitchen, small: bool) -> list[Item]:
    """The table without gaps in texts, and rows with a city that was not seen."""
    table = customers(_SMALL if small else _ROWS)
    del table["plan"]
    table["city"] = [city or CITIES[0] for city in table["city"]]
    _written(place, table)
    return [
        {
            "age": float("nan") if table["age"][number] is None else table["age"][number],
            "income": float("nan") if table["income"][number] is None else table["income"][number],
            "city": "Bergen" if number % 7 == 0 else table["city"][number],
        }
        for number in range(_ITEMS)
    ]


def classes(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """scikit-learn's own class and probabilities, of a DataFrame."""
    import pandas as pd
    import skops.io

    pipeline = skops.io.load(folder / "pipeline.skops", trusted=["numpy.dtype"])
    rows = pd.DataFrame(list(items))
    found = zip(pipeline.predict(rows).tolist(), pipeline.predict_proba(rows), strict=True)
    return [Answer(numbers, [name]) for name, numbers in found]


def predicted(reply: Reply) -> Answer:
    """The probability."""
    return Answer(reply["prediction"].ravel())


def classified(reply: Reply) -> Answer:
    """The class and the probabilities."""
    return Answer(reply["probabilities"].ravel(), [reply["label"].item()])


RECIPES = {
    "xgboost": Recipe("churn", ".", "tables:Trees", trees, probabilities, predicted, from_json, at_most=1e-5),
    "scikit-learn": Recipe(
        "leaving", ".", "tables:Pipeline", columns, classes, classified, from_json, at_most=1e-5, steps=False
    ),
}
