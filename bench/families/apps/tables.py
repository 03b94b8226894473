"""Models of tables: pandas and the library that trained them; JSON in."""

import json

import pandas as pd
import skops.io
from texts import answered
from xgboost import XGBClassifier


class Trees:
    """A classifier of XGBoost on a record."""

    def __init__(self, folder: str, _network: str, threads: int) -> None:
        self.model = XGBClassifier(n_jobs=threads)
        self.model.load_model(f"{folder}/model.json")
        names = self.model.get_booster().feature_names
        kinds = dict(zip(names, self.model.get_booster().feature_types, strict=True))
        table = pd.read_csv(f"{folder}/customers.csv")[names]
        # A row alone does not tell the categories: those of the training's table do.
        self.types = table.astype({name: "category" if kinds[name] == "c" else float for name in names}).dtypes

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        record = json.loads(json.loads(body)["record"])
        row = pd.DataFrame([{name: record.get(name) for name in self.types.index}]).astype(self.types)
        return answered([], self.model.predict_proba(row)[0, 1:])


class Pipeline:
    """A pipeline of scikit-learn on columns."""

    def __init__(self, folder: str, _network: str, _threads: int) -> None:
        self.pipeline = skops.io.load(f"{folder}/pipeline.skops", trusted=["numpy.dtype"])

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        row = pd.DataFrame([json.loads(body)])
        return answered([int(self.pipeline.predict(row)[0])], self.pipeline.predict_proba(row)[0])
