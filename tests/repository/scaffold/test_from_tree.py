"""`tritonkit new --tree`: the folders it writes build, and answer as the library does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import yaml

from tests.repository.trees import models
from tritonkit.errors import BuildError, UsageError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.onnx_file import open_session
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize import build, plan
from tritonkit.repository.scaffold import new_from_onnx, new_from_tree
from tritonkit.repository.trees import sklearn_file

pytestmark = pytest.mark.needs("trees")


def built(folder: Path, root: Path) -> Any:
    """The artifact of a folder."""
    spec = load(folder, root)
    cache = BuildCache(root / "cache")
    return build(plan(spec, cache), cache)


def named(file: Path) -> Any:
    """XGBoost's file of a table with names."""
    import pandas as pd
    import xgboost

    rows = models.table()
    table = pd.DataFrame(rows[:, :3], columns=["age", "a column: #1", "größe"])
    table["city"] = pd.Categorical([("yes", "no", "1e3")[n % 3] for n in range(len(rows))])
    model = xgboost.XGBRegressor(n_estimators=6, enable_categorical=True, n_jobs=1)
    model.fit(table, models.target(rows) + np.arange(len(rows)) % 3)
    model.save_model(file)
    return model


def test_columns_without_names(root: Path, tmp_path: Path) -> None:
    """The network is the model, and its rows batch."""
    models.xgboost_file(tmp_path / "model.json", rounds=3)
    said: list[str] = []
    folder = new_from_tree(root, "plain", tmp_path / "model.json", say=said.append)
    assert "those of XGBoost" in said[-1]
    assert load(folder, root, target="nvidia").model.serving.variant == "fil"
    artifact = built(folder, root)
    assert artifact.signature.batched
    assert [(t.name, t.dtype, t.shape) for t in artifact.signature.inputs] == [("features", "FP32", (5,))]
    assert [(t.name, t.dtype, t.shape) for t in artifact.signature.outputs] == [("prediction", "FP32", (1,))]


def test_columns_with_names(root: Path, tmp_path: Path) -> None:
    """A record's columns go through features.yaml, whatever texts they hold, to the library's answers."""
    import pandas as pd

    model = named(tmp_path / "model.json")
    folder = new_from_tree(root, "named", tmp_path / "model.json")
    features = yaml.safe_load((folder / "features.yaml").read_text())
    assert [feature["name"] for feature in features] == ["age", "a column: #1", "größe", "city"]
    assert features[3]["categories"] == sorted(["yes", "no", "1e3"])
    settings = yaml.safe_load((folder / "model.yaml").read_text())
    assert list(json.loads(settings["example"]["record"]["text"])) == ["age", "a column: #1", "größe", "city"]
    assert built(folder, root).signature.batched
    sys.path.insert(0, str(Path(__file__).parents[3] / "python_backends" / "steps" / "assemble_features"))
    try:
        from assemble_features_core import Settings, assemble
        from assemble_features_file import read_features
    finally:
        sys.path.pop(0)
    records = [{"age": 1.5, "city": "no"}, {"a column: #1": None, "größe": -2, "city": None}, {}]
    made = assemble(
        [json.dumps(record).encode() for record in records],
        read_features(folder / "features.yaml", 4),
        Settings(4, nan="keep"),
    )
    table = pd.DataFrame(records, columns=["age", "a column: #1", "größe", "city"])
    table["city"] = table["city"].astype("category")
    expected = model.predict(table.astype(dict.fromkeys(["age", "a column: #1", "größe"], float)))
    answers = open_session(folder / "trees.onnx", "").run(None, {"features": made})[0][:, 0]
    np.testing.assert_allclose(answers, expected, rtol=1e-5)
    with pytest.raises(ValueError, match="unknown category"):
        assemble([b'{"city": "Paris"}'], read_features(folder / "features.yaml", 4), Settings(4, nan="keep"))


def test_lightgbm_takes_doubles(root: Path, tmp_path: Path) -> None:
    """Its input is FP64, as LightGBM compares."""
    models.lightgbm_file(tmp_path / "model.txt", rounds=3)
    signature = built(new_from_tree(root, "light", tmp_path / "model.txt"), root).signature
    assert signature.inputs[0].dtype == "FP64"


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_catboosts_onnx_gets_tensors(root: Path, tmp_path: Path, classes: int) -> None:
    """A classifier's list of dictionaries becomes a tensor with a column for each class."""
    model = models.catboost_file(tmp_path / "model.onnx", "onnx", classes=classes)
    folder = new_from_tree(root, "cat", tmp_path / "model.onnx")
    built(folder, root)
    rows = np.nan_to_num(models.table()).astype(np.float32)
    outputs = open_session(folder / "model.onnx", "").run(None, {"features": rows})
    expected = model.predict_proba(rows) if classes else model.predict(rows).reshape(-1, 1)
    np.testing.assert_allclose(outputs[-1], expected, rtol=1e-4, atol=1e-5)


def pipeline(file: Path, **more: Any) -> Any:
    """A pipeline of scikit-learn on named columns, as a skops file."""
    import pandas as pd
    import skops.io
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rows = models.table()
    table = pd.DataFrame(rows[:, :3], columns=["age", "income", "height"])
    table["city"] = [("Köln", "Oslo", "Praha")[n % 3] for n in range(len(rows))]
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (numbers, ["age", "income", "height"]), (OneHotEncoder(handle_unknown="ignore"), ["city"])
    )
    estimator = more.pop("estimator", None) or RandomForestClassifier(10, max_depth=4, random_state=0)
    made = make_pipeline(columns, estimator).fit(table, models.target(rows, 3))
    skops.io.dump(made, file)
    return made


@pytest.mark.slow
def test_a_pipeline_of_scikit_learn(root: Path, tmp_path: Path) -> None:
    """Each named column is an input, texts as BYTES; classes and probabilities are scikit-learn's."""
    pipeline(tmp_path / "pipeline.skops")
    said: list[str] = []
    folder = new_from_tree(root, "rows", tmp_path / "pipeline.skops", say=said.append)
    assert "those of scikit-learn" in said[-1]
    inputs = {t.name: t.dtype for t in built(folder, root).signature.inputs}
    assert inputs["city"] == "BYTES"
    assert list(inputs) == ["age", "income", "height", "city"]


@pytest.mark.parametrize(
    "kind", ["RandomForestRegressor", "HistGradientBoostingClassifier", "GradientBoostingClassifier"]
)
def test_trees_of_scikit_learn(root: Path, tmp_path: Path, kind: str) -> None:
    """Their answers are scikit-learn's; where missing values differ, a warning names the columns."""
    import skops.io
    from sklearn import ensemble

    rows = np.nan_to_num(models.table())
    skops.io.dump(getattr(ensemble, kind)(random_state=0).fit(rows, models.target(rows, 2)), tmp_path / "m.skops")
    said: list[str] = []
    folder = new_from_tree(root, "m", tmp_path / "m.skops", say=said.append)
    assert any("300 rows are those of scikit-learn" in text for text in said)
    assert any("missing values" in text for text in said) == (kind == "RandomForestRegressor")
    assert [t.shape for t in built(folder, root).signature.inputs] == [(5,)]


def test_an_empty_text_is_a_missing_one(root: Path, tmp_path: Path) -> None:
    """An imputer of texts fills it, as it fills None in a DataFrame."""
    import pandas as pd
    import skops.io
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    table = pd.DataFrame({"city": ["Oslo", "Wien", None, "Wien"] * 9}, dtype=object)
    texts = make_pipeline(SimpleImputer(missing_values=None, strategy="most_frequent"), OneHotEncoder())
    made = make_pipeline(texts, LinearRegression()).fit(table, np.arange(36) % 4)
    skops.io.dump(made, tmp_path / "m.skops")
    session = open_session(new_from_tree(root, "m", tmp_path / "m.skops") / "trees.onnx", "")
    answers = session.run(None, {"city": np.array([[""], ["Oslo"]], object)})[0].ravel()
    np.testing.assert_allclose(answers, made.predict(table.iloc[[2, 0]]), rtol=1e-5)


def test_a_tree_of_scikit_learn_that_leads_out_of_itself(root: Path, tmp_path: Path) -> None:
    """scikit-learn would read memory that is not the tree's."""
    import skops.io
    from sklearn.tree import DecisionTreeRegressor

    rows = np.nan_to_num(models.table())
    tree = DecisionTreeRegressor(max_depth=3).fit(rows, models.target(rows))
    state = tree.tree_.__getstate__()
    state["nodes"]["left_child"][0] = 10**6
    tree.tree_.__setstate__(state)
    skops.io.dump(tree, tmp_path / "m.skops")
    with pytest.raises(UsageError, match="a tree: a child that is none of its"):
        new_from_tree(root, "m", tmp_path / "m.skops")


class Strange:
    """A type that skops does not know."""


def test_a_skops_file_with_types_of_others_is_refused(root: Path, tmp_path: Path) -> None:
    """Their code is not run."""
    import skops.io

    skops.io.dump({"a": Strange()}, tmp_path / "strange.skops")
    with pytest.raises(UsageError, match="Strange"):
        new_from_tree(root, "strange", tmp_path / "strange.skops")
    (tmp_path / "zip.skops").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(UsageError, match="skops file"):
        new_from_tree(root, "strange", tmp_path / "zip.skops")


def test_a_skops_file_that_grows_is_refused(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive's own sizes are read before anything of it is."""
    monkeypatch.setattr(sklearn_file, "_MAX_BYTES", 10**6)
    with ZipFile(tmp_path / "large.skops", "w", ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", bytes(2 * 10**6))
    assert (tmp_path / "large.skops").stat().st_size < 10**4
    with pytest.raises(UsageError, match="an archive that holds 2000000 bytes"):
        new_from_tree(root, "m", tmp_path / "large.skops")


def test_an_estimator_that_has_no_converter_is_named(root: Path, tmp_path: Path) -> None:
    """The message says which, in one line."""
    from sklearn.semi_supervised import LabelSpreading

    pipeline(tmp_path / "pipeline.skops", estimator=LabelSpreading())
    with pytest.raises(UsageError, match="cannot be converted to ONNX") as caught:
        new_from_tree(root, "rows", tmp_path / "pipeline.skops")
    assert "LabelSpreading" in caught.value.found
    assert not list((root / "models").iterdir())


@pytest.mark.parametrize("name", ["model.json", "model.ubj", "model.txt"])
def test_trees_given_to_onnx_name_this_option(root: Path, tmp_path: Path, name: str) -> None:
    """The message of --onnx says what the file is."""
    write = models.lightgbm_file if name.endswith("txt") else models.xgboost_file
    write(tmp_path / name, rounds=1)
    with pytest.raises(BuildError, match="tritonkit new --tree"):
        new_from_onnx(root, "m", tmp_path / name)


def test_a_wrong_file_names_the_option_for_it(root: Path, tmp_path: Path) -> None:
    """A folder, a network of PyTorch and an absent file; nothing is written."""
    (tmp_path / "net.pt").write_bytes(b"PK")
    for file, words in (
        (tmp_path, "--hf or --llm"),
        (tmp_path / "net.pt", "--torch"),
        (tmp_path / "absent.json", "no file"),
        (Path("/dev/zero"), "regular file"),
    ):
        with pytest.raises(UsageError, match=words):
            new_from_tree(root, "m", file)
    (tmp_path / "broken.onnx").write_bytes(b"\x08\xff")
    with pytest.raises(UsageError, match=r"(?s)--tree .*broken\.onnx: broken.*not a whole ONNX file.*copy it again"):
        new_from_tree(root, "m", tmp_path / "broken.onnx")
    assert not (root / "models").exists() or not list((root / "models").iterdir())
