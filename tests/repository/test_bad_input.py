"""Pipelines and files that cannot be served: each is one message with the place, the fault, the expected, and a way."""

from __future__ import annotations

import json
import pickle
import zlib
from pathlib import Path

import pytest
import yaml

from tests.conftest import WriteModel
from tests.repository.render import test_graph as graphs
from tests.repository.render import test_mapped as maps
from tritonkit.errors import TritonkitError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.inspection import inspect_model
from tritonkit.repository.optimize.make import build, plan
from tritonkit.repository.scaffold import new_from_tree

PICKLE = pickle.dumps({"a": 1}, 4)
FIRST, LAST = graphs.FIRST, graphs.LAST
GRAPHS = {
    "a cycle": (
        graphs.CYCLE,
        {},
        "pipeline.sum: page_sum takes late, which page_last gives only after it;"
        " wanted: parts in the order of their tensors, without a cycle; do: join the names",
    ),
    "a tensor that nobody makes": (
        [FIRST, graphs.MISSPELLED],
        {},
        "pipeline.sum: page_sum takes rigth, which no part before it gives;"
        " wanted: a tensor that is there: one of x, z; do: join the names",
    ),
    "a tensor that nobody takes": (
        [FIRST, graphs.part("dead", "w", "z"), LAST],
        {},
        "pipeline.dead: page_dead gives y FP32 [4], and no later part takes that;"
        " wanted: an input of page_last: x FP32 [4]; do: join the two names",
    ),
    "a dtype": (
        [FIRST, graphs.part("last", inputs="z", file="ints")],
        {},
        "pipeline.last: tensor z: page_first gives y FP32 [4]; page_last takes x INT64 [4];"
        " wanted: one dtype and shape at both ends; do: change a parameter",
    ),
    "a batch limit": (
        [FIRST, graphs.part("last", inputs="z", max_batch_size=4)],
        {"serving": {"max_batch_size": 8}},
        "serving.max_batch_size: 8, and page_first has max_batch_size 64, page_last has max_batch_size 4;"
        " wanted: 1 to 4, the smallest of its parts; do: leave it out, which means 4",
    ),
    "parts without batches": (
        [FIRST, graphs.UNBATCHED],
        {},
        "pipeline: page_first has max_batch_size 64, page_last has max_batch_size 0;"
        " wanted: a batch axis in all parts, or in none; do: leave max_batch_size of the steps out",
    ),
    "a map over a fixed number of items": (
        [maps.CROPS, maps.texts("fixed")],
        {"ensemble": {"outputs": ["y"]}},
        "pipeline.texts.map.over: fixed has 5 items in every request; wanted: a tensor whose first axis is free (-1),"
        " or the number of items that count, in map.count; do: name the tensor with the number under count:",
    ),
    "a pickle in a network of a pipeline": (
        [{"name": "net", "network": {"onnx": "pickled.onnx"}}],
        {},
        "pipeline.net.network.onnx: pickled.onnx (21 bytes) is not an ONNX file: it is a pickle; wanted: an ONNX file;"
        " do: export it: torch.onnx.export",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_pipeline_that_does_not_fit(write_model: WriteModel, name: str) -> None:
    """`tritonkit inspect` and a build say the same."""
    pipeline, more, expected = GRAPHS[name]
    text = yaml.safe_dump({"name": "page", "pipeline": pipeline, **more}, sort_keys=False)
    spec = write_model(text, "page", **{**maps.FILES, **graphs.FILES, "pickled__onnx": PICKLE})
    [line] = inspect_model(spec, "cpu", 2).unknown
    assert line.startswith(f"{spec.file} {expected}")


TENSORS = "inputs: {x: {dtype: FP32, shape: [4]}}, outputs: {y: {dtype: FP32, shape: [4]}}"


@pytest.mark.parametrize("in_pipeline", [False, True], ids=["alone", "in a pipeline"])
@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.pt", "m.pt2", "m.xml", "m.plan", "m.onnx", "m.dat"])
def test_a_pickle_of_any_name(write_model: WriteModel, name: str, in_pipeline: bool) -> None:
    """A renamed one is told by its content, and the place is the network's own."""
    network = f"{{file: {name}, {TENSORS}}}"
    text = f"name: net\nnetwork: {network}\n"
    if in_pipeline:
        text = f"name: net\npipeline: [{{name: one, network: {network}}}]\n"
    spec = write_model(text, **{name.replace(".", "__"): PICKLE})
    place = f"{spec.file} {'pipeline.one.' if in_pipeline else ''}network.file"
    with pytest.raises(TritonkitError) as caught:
        inspect_model(spec.tree[0], "cpu", 2)
    assert (caught.value.where, caught.value.exit_code) == (place, 2)
    assert caught.value.found.startswith(f"{name} is weights without a network")
    assert caught.value.wanted.startswith("a network that a backend opens as it is")
    assert caught.value.todo


def test_a_pickle_in_place_of_an_onnx_file(write_model: WriteModel, tmp_path: Path) -> None:
    """A build names it with the words of `tritonkit inspect`."""
    spec = write_model("{name: net, network: {onnx: m.onnx}}", m__onnx=PICKLE)
    with pytest.raises(TritonkitError) as caught:
        build(plan(spec, cache := BuildCache(tmp_path / "cache")), cache)
    assert inspect_model(spec, "cpu", 2).unknown == (caught.value.in_a_line(),)


LIGHTGBM = "tree\nversion=v9\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\nend of trees\n"
XGBOOST = json.dumps({"version": [99, 0, 1], "learner": {}})


@pytest.mark.parametrize(
    ("name", "content", "place", "found", "wanted", "todo"),
    [
        ("m.txt", LIGHTGBM.encode(), ": version", "v9", "v2, v3, v4", "save_model"),
        ("m.json", XGBOOST.encode(), ": version", "a file of XGBoost 99.0.1", "XGBoost 1 to 3", "save_model"),
        ("m.pkl", PICKLE, "", "a pickle, which can run any code", "XGBoost (JSON", "skops.io.dump"),
        ("m.json", PICKLE, "", "a pickle, which can run any code", "XGBoost (JSON", "skops.io.dump"),
        ("m.joblib", zlib.compress(PICKLE), "", "a pickle, which can run any code", "XGBoost (JSON", "skops.io.dump"),
    ],
    ids=["lightgbm", "xgboost", "pickle", "a pickle called json", "joblib"],
)
def test_trees_that_cannot_be_read(
    root: Path, tmp_path: Path, name: str, content: bytes, place: str, found: str, wanted: str, todo: str
) -> None:
    """Another version of a library's format, and pickles."""
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(TritonkitError) as caught:
        new_from_tree(root, "m", file)
    assert caught.value.exit_code == 2
    assert str(file) in caught.value.where
    assert caught.value.where.endswith(place)
    assert found in caught.value.found
    assert wanted in caught.value.wanted
    assert todo in caught.value.todo
