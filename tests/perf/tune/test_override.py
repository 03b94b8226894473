"""Configurations for a load: what differs between two, and the order in which an ensemble stays served. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from tests.conftest import PROJECT
from tritonkit.client.wire.messages import schema
from tritonkit.perf.tune import InstanceGroup, Point
from tritonkit.perf.tune.override import configurations, in_order, unlike
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.results import choose, evaluate, wanted_variants

NETWORK = """
name: "net" backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
instance_group { kind: KIND_CPU count: 2 }
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 500 }
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
"""


def read(text: str) -> Any:
    """A `ModelConfig` message."""
    return text_format.Parse(text, schema().ModelConfig())


def config(name: str, most: int, *, ensemble: bool = False) -> Any:
    """One with this batch limit."""
    made = schema().ModelConfig(name=name, max_batch_size=most)
    if ensemble:
        made.ensemble_scheduling.SetInParent()
    return made


def test_what_triton_fills_in_is_no_difference() -> None:
    """Names of groups, the file, policies and warm-up."""
    filled = read(NETWORK)
    filled.instance_group[0].name = "net_0"
    filled.default_model_filename = "model.onnx"
    filled.version_policy.latest.num_versions = 1
    filled.optimization.input_pinned_memory.enable = True
    filled.model_warmup.add(name="w")
    assert unlike(read(NETWORK), filled) is None
    open_sizes = NETWORK.replace("preferred_batch_size: [ 4 ]", "")
    largest = NETWORK.replace("preferred_batch_size: [ 4 ]", "preferred_batch_size: [ 8 ]")
    assert unlike(read(open_sizes), read(largest)) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("max_batch_size: 8", "max_batch_size: 4", "max_batch_size 4, not 8"),
        ("count: 2", "count: 1", "instance counts [1], not [2]"),
        ("microseconds: 500", "microseconds: 0", "dynamic_batching"),
        ("preferred_batch_size: [ 4 ]", "", "dynamic_batching"),
        ('string_value: "1"', 'string_value: "2"', "parameters"),
        ("onnxruntime", "openvino", "backend openvino, not onnxruntime"),
        ("dims: [ 4 ]", "dims: [ 5 ]", "inputs"),
        ("KIND_CPU", "KIND_GPU", "instances on GPU, not CPU"),
    ],
)
def test_what_matters_is_named(old: str, new: str, words: str) -> None:
    """The field, what is served and what was wanted."""
    assert old in NETWORK
    assert words in (unlike(read(NETWORK), read(NETWORK.replace(old, new))) or "")


def test_a_group_without_a_kind_may_run_anywhere() -> None:
    """Triton decides, and reports what it decided."""
    assert unlike(read(NETWORK.replace("KIND_CPU", "KIND_AUTO")), read(NETWORK)) is None


def test_no_batching_is_another_thing_than_batching_at_once() -> None:
    """An empty `dynamic_batching` turns it on."""
    plain, batching = config("net", 8), config("net", 8)
    batching.dynamic_batching.SetInParent()
    assert "dynamic_batching off" in (unlike(batching, plain) or "")


def test_an_ensemble_that_shrinks_goes_first() -> None:
    """And one that grows, stays or is not served goes last."""
    many = {name: config(name, 8, ensemble=name == "all") for name in ("a", "net", "all")}
    few = {name: config(name, 1, ensemble=name == "all") for name in ("a", "net", "all")}
    assert in_order(few, many) == ["all", "a", "net"]
    assert in_order(many, few) == ["a", "net", "all"]
    assert in_order(few, few) == ["a", "net", "all"]
    assert in_order(few, {}) == ["a", "net", "all"]


def test_they_are_what_a_build_would_publish() -> None:
    """The override covers every part of a pipeline, for the cores of the machine that serves."""
    spec = load(PROJECT / "models" / "digits", PROJECT)
    results = evaluate(spec, wanted_variants(spec, ()), BuildCache.of_project(PROJECT), threads=2)
    artifact = choose(spec, results)
    point = Point(InstanceGroup(artifact.variant, 3, 2), 4, (2,), 1000)
    made = configurations(spec, artifact, Path(PROJECT), 6, point)
    assert list(made) == ["digits_decode_image", "digits_network", "digits_top_k", "digits"]
    assert {config.max_batch_size for config in made.values()} == {4}
    network = made["digits_network"]
    assert [group.count for group in network.instance_group] == [3]
    assert list(network.dynamic_batching.preferred_batch_size) == [2]
    assert network.dynamic_batching.max_queue_delay_microseconds == 1000
    assert network.parameters["intra_op_thread_count"].string_value == "2"
