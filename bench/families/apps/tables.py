"""Models of tables: pandas and the library that trained them; JSON in."""

import json

import numpy as np
import pandas as pd
import skops.io
from xgboost import XGBClassifier


def answered(names: list, numbers: np.ndarray) -> bytes:
    """Names and numbers as JSON."""
    return json.dumps({"names": names, "numbers": np.asarray(numbers, float).tolist()}).encode()


class Trees:
    """A classifier of XGBoost on a record."""

    def __init__(self, folder: str, _network: str, threads: int) -> None:
        self.model = XGBClassifier(n_jobs=threads)
        self.model.load_model(f"{folder}/model.json")
        booster = self.model.get_booster()
        self.types = {
            name: "category" if kind == "c" else float
            for name, kind in zip(booster.feature_names, booster.feature_types, strict=True)
        }

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        record = json.loads(json.loads(body)["record"])
        row = pd.DataFrame([{name: record.get(name) for name in self.types}]).astype(self.types)
        return answered([], self.model.predict_proba(row)[0, 1:])


class Pipeline:
    """A pipeline of scikit-learn on columns."""

    def __init__(self, folder: str, _network: str, _threads: int) -> None:
        self.pipeline = skops.io.load(f"{folder}/pipeline.skops", trusted=["numpy.dtype"])

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        row = pd.DataFrame([json.loads(body)])
        return answered([int(self.pipeline.predict(row)[0])], self.pipeline.predict_proba(row)[0])
