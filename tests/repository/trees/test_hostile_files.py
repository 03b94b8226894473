"""Damaged files and those of strangers: one message each, no traceback, no memory without bound."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritonkit.errors import UsageError
from tritonkit.repository.trees import onnx_of, read_forest
from tritonkit.repository.trees.forest import MAX_DEPTH
from tritonkit.repository.trees.reading import kind_of

LIGHTGBM = """tree
version=v4
num_class=1
num_tree_per_iteration=1
max_feature_idx=1
objective=regression
feature_names=a b
feature_infos=[0:1] 0:1:2

Tree=0
num_leaves=3
num_cat=1
split_feature=0 1
threshold=0.5 0
decision_type=2 1
left_child=1 -1
right_child=-3 -2
leaf_value=1 2 3
cat_boundaries=0 1
cat_threshold=5
is_linear=0
shrinkage=1


end of trees

parameters:
[boosting: gbdt]

end of parameters

pandas_categorical:null
"""


def xgboost() -> dict[str, Any]:
    """A file of XGBoost with one tree of two splits, one by a category."""
    tree = {
        "tree_param": {"num_nodes": "5", "size_leaf_vector": "1"},
        "left_children": [1, 3, -1, -1, -1],
        "right_children": [2, 4, -1, -1, -1],
        "split_indices": [0, 1, 0, 0, 0],
        "split_conditions": [0.5, 0, 3, 1, 2],
        "split_type": [0, 1, 0, 0, 0],
        "default_left": [1, 0, 0, 0, 0],
        "categories": [0, 2],
        "categories_nodes": [1],
        "categories_segments": [0],
        "categories_sizes": [2],
    }
    model = {"trees": [tree], "tree_info": [0], "gbtree_model_param": {"num_parallel_tree": "1"}}
    return {
        "version": [3, 1, 0],
        "learner": {
            "learner_model_param": {"base_score": "[5E-1]", "num_class": "0", "num_feature": "2", "num_target": "1"},
            "objective": {"name": "reg:squarederror"},
            "gradient_booster": {"name": "gbtree", "model": model},
            "attributes": {},
        },
    }


def catboost() -> dict[str, Any]:
    """A file of CatBoost with one tree of two levels."""
    return {
        "features_info": {
            "float_features": [{"flat_feature_index": n, "nan_value_treatment": "AsFalse"} for n in (0, 1)]
        },
        "oblivious_trees": [
            {
                "splits": [{"float_feature_index": n, "border": 0.5, "split_type": "FloatFeature"} for n in (0, 1)],
                "leaf_values": [1, 2, 3, 4],
            }
        ],
        "scale_and_bias": [1, [0.5]],
    }


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with another value at a place; `...` removes it."""
    *parents, last = path.split(".")
    place: Any = document
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def refused(file: Path) -> str:
    """The message of a file."""
    with pytest.raises(UsageError) as caught:
        onnx_of(kind_of(file) and read_forest(file))
    return str(caught.value)


def answers(content: bytes, rows: list[list[float]], dtype: type) -> list[float]:
    """The predictions of an ONNX file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"features": np.array(rows, dtype)})[0][:, 0].tolist()


def test_the_files_of_these_tests_are_right(tmp_path: Path) -> None:
    """Without a change they are read, and answer by hand."""
    rows = [[0, 0], [0, 1], [1, 0], [0, np.nan], [np.nan, 2], [0.5, 99]]
    file = tmp_path / "model"
    file.write_text(json.dumps(xgboost()))
    assert answers(onnx_of(read_forest(file)), rows, np.float32) == [2.5, 1.5, 3.5, 2.5, 2.5, 3.5]
    file.write_text(LIGHTGBM)
    assert answers(onnx_of(read_forest(file)), rows, np.float64) == [1, 2, 3, 2, 1, 2]
    file.write_text(json.dumps(catboost()))
    assert answers(onnx_of(read_forest(file)), rows, np.float32) == [1.5, 3.5, 2.5, 1.5, 3.5, 3.5]


GBTREE = "learner.gradient_booster.model"
TREE = f"{GBTREE}.trees.0"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("learner", ..., "format|keys"),
        ("learner.objective", ..., "learner.objective: it is missing"),
        ("learner.gradient_booster.name", "gblinear", "gblinear"),
        ("learner.learner_model_param.base_score", "x", "base_score"),
        ("learner.learner_model_param.base_score", "[1,2,3]", "3 numbers"),
        ("learner.learner_model_param.base_score", "[NaN]", "finite"),
        ("learner.learner_model_param.num_feature", "many", "num_feature"),
        ("learner.learner_model_param.num_feature", "1" * 5000, "num_feature"),
        ("learner.learner_model_param.num_feature", "999999999999", "columns"),
        ("learner.learner_model_param.num_feature", "1", "column 1"),
        ("learner.learner_model_param.num_class", "999999999", "outputs"),
        ("learner.attributes.best_iteration", "7", "best_iteration"),
        ("learner.attributes.best_iteration", "x", "best_iteration"),
        ("learner.feature_names", ["a", "a"], "names"),
        (f"{GBTREE}.tree_info", [5], "output 5"),
        (f"{GBTREE}.tree_info", [], "tree_info"),
        (f"{GBTREE}.trees", {}, "trees"),
        (f"{GBTREE}.trees", [7], "trees"),
        (f"{TREE}.left_children", [1, 0, -1, -1, -1], "two parents, or above itself"),
        (f"{TREE}.left_children", [0, 3, -1, -1, -1], "two parents, or above itself"),
        (f"{TREE}.left_children", [2, 3, -1, -1, -1], "two parents, or above itself"),
        (f"{TREE}.left_children", [9, 3, -1, -1, -1], "none of its 5 nodes"),
        (f"{TREE}.right_children", [-7, 4, -1, -1, -1], "none of its 5 nodes"),
        (f"{TREE}.left_children", [1.5, 3, -1, -1, -1], "whole numbers"),
        (f"{TREE}.left_children", [1e300, 3, -1, -1, -1], "whole numbers"),
        (f"{TREE}.left_children", ["a"] * 5, "numbers"),
        (f"{TREE}.left_children", [[1], 3, -1, -1, -1], "numbers"),
        (f"{TREE}.left_children", "12345", "numbers|list"),
        (f"{TREE}.left_children", [], "0 nodes"),
        (f"{TREE}.right_children", [2, 4], "2 numbers"),
        (f"{TREE}.split_conditions", [float("nan"), 0, 3, 1, 2], "NaN"),
        (f"{TREE}.split_conditions", [0.5, 0, float("inf"), 1, 2], "finite"),
        (f"{TREE}.split_indices", [5, 1, 0, 0, 0], "column 5"),
        (f"{TREE}.categories", [0, -2], "category"),
        (f"{TREE}.categories", [0, 1e9], "category"),
        (f"{TREE}.categories_sizes", [99], "categories_nodes"),
        (f"{TREE}.categories_segments", [-1], "categories_nodes"),
        (f"{TREE}.categories_nodes", [77], "categories_nodes"),
        (f"{TREE}.categories_nodes", [3], "no categories"),
        (f"{TREE}.split_indices", [-3, 1, 0, 0, 0], "split_indices: -3"),
        (f"{TREE}.tree_param.size_leaf_vector", "3", "several outputs"),
    ],
)
def test_a_damaged_file_of_xgboost(tmp_path: Path, path: str, value: Any, words: str) -> None:
    """The message names the place."""
    file = tmp_path / "model.json"
    file.write_text(json.dumps(changed(xgboost(), path, value)))
    assert re.search(words, refused(file))


def every_part() -> list[dict[str, Any]]:
    """Documents that have, together, all that is read."""
    stopped, of_names = xgboost(), xgboost()
    stopped["learner"]["attributes"] = {"best_iteration": "0"}
    learner = of_names["learner"]
    learner |= {"feature_names": ["a", "b"], "feature_types": ["q", "c"]}
    model = learner["gradient_booster"]["model"]
    model["cats"] = {"enc": [{"values": []}, {"values": [97, 98], "offsets": [0, 1, 2]}]}
    learner["gradient_booster"] = {"name": "dart", "weight_drop": [1.0], "gbtree": {"model": model}}
    levels, free = catboost(), catboost()
    levels["features_info"]["float_features"] = []
    levels["oblivious_trees"] = [{"splits": [], "leaf_values": [1]}]
    del free["oblivious_trees"]
    split = {"float_feature_index": 0, "border": 0.5}
    free["trees"] = [{"split": split, "left": {"value": 1.0}, "right": {"value": [2.0]}}]
    free["model_info"] = {"params": {"loss_function": {"type": "Logloss"}}}
    return [stopped, of_names, levels, free]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value of a document."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(way for key, one in members for way in places(one, (*path, key)))]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(every_part())))
def test_an_odd_value_at_any_place_is_read_or_refused(tmp_path: Path, number: int) -> None:
    """No value of a file leads to another error than the one for its person."""
    file = tmp_path / "model.json"
    for path in places(every_part()[number])[1:]:
        for value in (None, -1, float("inf"), float("nan"), "", "x", [], [-1] * 5, [1, 2, 3, 4, 5], {}):
            document = every_part()[number]
            place: Any = document
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            file.write_text(json.dumps(document))
            with contextlib.suppress(UsageError):
                onnx_of(read_forest(file))


def chain(depth: int) -> dict[str, Any]:
    """A tree whose nodes lie in a row."""
    inner = list(range(depth))
    document = xgboost()
    count = 2 * depth + 1
    document["learner"]["gradient_booster"]["model"]["trees"][0] = {
        "tree_param": {},
        "left_children": [*(n + 1 for n in inner), *[-1] * (depth + 1)],
        "right_children": [*(depth + 1 + n for n in inner), *[-1] * (depth + 1)],
        "split_indices": [0] * count,
        "split_conditions": [0.5] * count,
        "default_left": [0] * count,
    }
    return document


def test_a_tree_may_be_deep_and_not_too_deep(tmp_path: Path) -> None:
    """The deepest tree that is taken opens; a deeper one is refused."""
    file = tmp_path / "model.json"
    file.write_text(json.dumps(chain(MAX_DEPTH)))
    assert answers(onnx_of(read_forest(file)), [[0, 0]], np.float32) == [1.0]
    file.write_text(json.dumps(chain(MAX_DEPTH + 1)))
    assert "below each other" in refused(file)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version=v4", "version=v9", "v9"),
        ("version=v4\n", "", "version"),
        ("version=v4", "version=", "version: none"),
        ("num_leaves=3", "num_leaves=", "num_leaves: ''"),
        ("end of trees", "end", "ends within its trees"),
        ("end of parameters", "end", "ends within its parameters"),
        ("max_feature_idx=1", "max_feature_idx=x", "max_feature_idx"),
        ("max_feature_idx=1", "max_feature_idx=0", "column 1|names"),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=0", "num_tree_per_iteration"),
        ("num_leaves=3", "num_leaves=-1", "num_leaves"),
        ("num_leaves=3", "num_leaves=999999999", "numbers"),
        ("is_linear=0", "is_linear=1", "linear"),
        ("left_child=1 -1", "left_child=0 -1", "two parents, or above itself"),
        ("left_child=1 -1", "left_child=1 -9", "none of its 5 nodes"),
        ("left_child=1 -1", "left_child=1", "1 numbers"),
        ("split_feature=0 1", "split_feature=-4 1", "split_feature"),
        ("threshold=0.5 0", "threshold=nan 0", "NaN"),
        ("threshold=0.5 0", "threshold=0.5 3", "cat_boundaries"),
        ("threshold=0.5 0", "threshold=0.5 nan", "cat_boundaries"),
        ("cat_boundaries=0 1", "cat_boundaries=0 9", "cat_boundaries"),
        ("cat_threshold=5", "cat_threshold=-5", "cat_threshold"),
        ("cat_threshold=5", "cat_threshold=99999999999", "cat_threshold"),
        ("leaf_value=1 2 3", "leaf_value=1 2 inf", "finite"),
        ("leaf_value=1 2 3\n", "", "leaf_value"),
        ("objective=regression", "objective=binary sigmoid:x", "objective"),
    ],
)
def test_a_damaged_file_of_lightgbm(tmp_path: Path, old: str, new: str, words: str) -> None:
    """The message names the tree and the key."""
    file = tmp_path / "model.txt"
    assert old in LIGHTGBM
    file.write_text(LIGHTGBM.replace(old, new, 1))
    assert re.search(words, refused(file))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("features_info.categorical_features", [{"feature_index": 0}], "statistics"),
        ("features_info.float_features", ..., "float_features"),
        ("features_info.float_features", [7], "float_features"),
        ("features_info.float_features", [], "float_feature_index|columns"),
        ("features_info.float_features", [{"flat_feature_index": -2}] * 2, "flat_feature_index -2"),
        ("oblivious_trees", [], "no trees"),
        ("oblivious_trees.0.leaf_values", [1, 2], "2 numbers"),
        ("oblivious_trees.0.leaf_values", [1, 2, 3, float("inf")], "finite"),
        ("oblivious_trees.0.splits.0.float_feature_index", 9, "float_feature_index"),
        ("oblivious_trees.0.splits.0.border", None, "border|NaN"),
        ("oblivious_trees.0.splits.0.split_type", "OneHotFeature", "something else"),
        ("oblivious_trees.0.splits", [{}] * 64, "splits"),
        ("scale_and_bias", [1], "scale_and_bias"),
        ("scale_and_bias", [1, []], "no bias"),
    ],
)
def test_a_damaged_file_of_catboost(tmp_path: Path, path: str, value: Any, words: str) -> None:
    """The message names the place."""
    file = tmp_path / "model.json"
    document = catboost()
    if "splits.0" in path:
        place = document["oblivious_trees"][0]["splits"][0]
        place[path.rpartition(".")[2]] = value
    elif "oblivious_trees.0" in path:
        document["oblivious_trees"][0][path.rpartition(".")[2]] = value
    else:
        changed(document, path, value)
    file.write_text(json.dumps(document))
    assert re.search(words, refused(file))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"binf\0\0", "old binary format"),
        (b"CBM1\0", "CatBoost's own binary"),
        (b"\x89HDF\r\n", "HDF5"),
        (b"[{}]", "dump_model"),
        (b'{"nodeid": 0}', "dump_model"),
        (b'{"tree_info": []}', "dump_model"),
        (b'{"a": 1}', "keys 'a'"),
        (b'{"a": ', "not JSON"),
        (b"[" * 100_000, "dump_model"),
        (b'{"a":' * 100_000, "deep"),
        (b'{"a":' + b"1" * 10_000 + b"}", "digits"),
        (b'{"\xff": 1}', "UTF-8"),
        (b"tree\nversion=v4\n\xff", "UTF-8"),
        (pickle.dumps({"a": 1}), "pickle"),
        (b"0123456789", "another format"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, words: str) -> None:
    """The message names the kind, and the way round it."""
    file = tmp_path / "model"
    file.write_bytes(content)
    assert words in refused(file)


def test_a_pickle_is_refused_by_its_name_too(tmp_path: Path) -> None:
    """joblib compresses, so the first bytes tell nothing. The message says how to write another format."""
    file = tmp_path / "model.joblib"
    file.write_bytes(b"x\x9c...")
    with pytest.raises(UsageError) as caught:
        kind_of(file)
    assert "skops.io.dump" in caught.value.todo
    assert "to_onnx" in caught.value.todo


def ubj(key: bytes, value: bytes) -> bytes:
    """A document of one member."""
    return b"{L" + struct.pack(">q", len(key)) + key + value + b"}"


@pytest.mark.parametrize(
    "value",
    [
        b"[$l#L" + struct.pack(">q", 1 << 60),
        b"[$l#L" + struct.pack(">q", -1),
        b"[#L" + struct.pack(">q", 1 << 60),
        b"[$Z#L" + struct.pack(">q", 1 << 60),
        b"[$T#l" + struct.pack(">i", 5),
        b"[$l",
        b"[" * 100_000,
        b"{i\x01a" * 100_000,
        b"SL" + struct.pack(">q", 1 << 60),
        b"Sd\0\0\0\0",
        b"Si\x01\xff",
        b"Q",
        b"d\0",
        b"",
        b"{i\x01aZi\x01aZ}",
        b"{$i#i\x01",
        b"Z}more",
    ],
)
def test_damaged_ubjson(tmp_path: Path, value: bytes) -> None:
    """A length beyond the end reserves nothing, and the message says at which byte."""
    file = tmp_path / "model.ubj"
    file.write_bytes(ubj(b"a", value))
    assert "byte " in refused(file)


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    """A file that ends early is never half a model."""
    file = tmp_path / "model"

    def pack(value: Any) -> bytes:
        if isinstance(value, dict):
            members = (b"L" + struct.pack(">q", len(k)) + k.encode() + pack(v) for k, v in value.items())
            return b"{" + b"".join(members) + b"}"
        if isinstance(value, list) and value and not isinstance(value[0], dict):
            return b"[$d#L" + struct.pack(">q", len(value)) + np.array(value, ">f4").tobytes()
        if isinstance(value, list):
            return b"[" + b"".join(map(pack, value)) + b"]"
        return b"SL" + struct.pack(">q", len(value)) + value.encode()

    whole = pack(xgboost())
    file.write_bytes(whole)
    assert read_forest(file).features == 2
    trees_of_lightgbm = LIGHTGBM.partition("\nend of trees")[0]
    for content in (whole, json.dumps(xgboost()).encode(), trees_of_lightgbm.encode()):
        for cut in range(1, len(content), 41):
            file.write_bytes(content[:cut])
            refused(file)
