"""Splitting requests of different lengths into runs; test_padding of the servers has the rest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from backend_config import ModelError, TensorSpec
from backend_padding import RUN_COST, RUN_COST_ON_GPU, Padding, read_padding, split
from hypothesis import given
from hypothesis import strategies as st

REQUESTS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 4)), min_size=1, max_size=9).map(
    lambda items: sorted(items, reverse=True)
)


def cost(requests: list[tuple[int, int]], edges: list[int], run_cost: int) -> int:
    """Positions that runs between these edges compute."""
    runs = [requests[first:end] for first, end in pairwise([0, *edges, len(requests)])]
    return sum(run_cost + max(n for n, _ in run) * sum(rows for _, rows in run) for run in runs)


@given(REQUESTS, st.sampled_from([RUN_COST, 400, RUN_COST_ON_GPU]))
def test_no_way_to_split_costs_less(requests: list[tuple[int, int]], run_cost: int) -> None:
    """The chosen split is the cheapest of all possible ones, which are tried."""
    runs = split(requests, run_cost)
    assert [place for run in runs for place in run] == list(range(len(requests)))
    chosen = cost(requests, [run.start for run in runs[1:]], run_cost)
    edges = range(1, len(requests))
    ways = ([e for i, e in enumerate(edges) if 1 << i & bits] for bits in range(1 << len(edges)))
    assert chosen == min(cost(requests, way, run_cost) for way in ways)


@given(REQUESTS, st.sampled_from([RUN_COST, RUN_COST_ON_GPU]), st.integers(1, 900))
def test_no_run_goes_beyond_its_bound(requests: list[tuple[int, int]], run_cost: int, most: int) -> None:
    """The cheapest of all ways within the bound is taken; a request that is larger runs alone."""

    def fits(edges: list[int]) -> bool:
        runs = [requests[first:end] for first, end in pairwise([0, *edges, len(requests)])]
        return all(len(run) == 1 or run[0][0] * sum(rows for _, rows in run) <= most for run in runs)

    runs = split(requests, run_cost, most)
    chosen = [run.start for run in runs[1:]]
    assert [place for run in runs for place in run] == list(range(len(requests)))
    assert fits(chosen)
    edges = range(1, len(requests))
    ways = ([e for i, e in enumerate(edges) if 1 << i & bits] for bits in range(1 << len(edges)))
    assert cost(requests, chosen, run_cost) == min(cost(requests, way, run_cost) for way in ways if fits(way))


def test_padding_and_cutting() -> None:
    """Any axis after the batch's is padded; a request that is long enough is passed on unchanged."""
    padding = Padding({"a": (2, 5)}, {"b": 1})
    a = np.zeros((2, 3, 4), np.int32)
    padded = padding.padded({"a": a, "other": a}, 6)
    assert padded["a"].shape == (2, 3, 6)
    assert (padded["a"][..., 4:] == 5).all()
    assert padded["a"].dtype == np.int32
    assert padded["other"] is a
    assert padding.padded({"a": a}, 4)["a"] is a
    assert padding.cut({"b": a, "other": a}, 2)["b"].shape == (2, 2, 4)


@pytest.mark.parametrize(
    ("padding", "message"),
    [
        ('{"x": {"axis": 0, "value": 0}}', ""),
        ('{"x": {"axis": 1, "value": 0}}', "found axis 1"),
        ('{"x": {"axis": 0}}', "found value , wanted a whole number of INT64"),
        ('{"x": {"axis": 0, "value": 0.5}}', "found value 0.5, wanted a whole number"),
        ('{"x": {"axis": 0, "value": 9223372036854775808}}', "wanted a whole number of INT64"),
        ('{"x": {"axis": 0, "value": true}}', "found value True"),
        ('{"x": {"axis": "a", "value": 0}}', "found axis a"),
        ('{"y": {"axis": 0}}', "wanted tensors of the model"),
        ('{"text": {"axis": 0, "value": 0}}', "cannot be padded"),
        ("[]", "wanted an object"),
        ("{", "wanted an object"),
    ],
)
def test_the_parameter_is_read(padding: str, message: str) -> None:
    """The parameter is read, and refused if it names a tensor that does not exist."""
    inputs = {"x": TensorSpec("x", "INT64", (-1, -1)), "text": TensorSpec("text", "BYTES", (-1, -1))}
    config = {
        "max_batch_size": 4,
        "input": [{"name": "x", "allow_ragged_batch": True}],
        "parameters": {"tritonkit.pad": {"string_value": padding}},
    }
    if not message:
        assert read_padding(config, inputs, {}).inputs == {"x": (1, 0)}
        return
    with pytest.raises(ModelError, match=message):
        read_padding(config | {"input": []}, inputs, {})


@pytest.mark.parametrize(
    ("most", "message"),
    [("24", ""), ("0", "found 0"), ("-1", "found -1"), ("2.5", "found 2.5"), ("²", "found ²"), ("9" * 19, "found 999")],
)
def test_the_bound_is_read(most: str, message: str) -> None:
    """A whole number above 0, next to the parameter that pads."""
    inputs = {"x": TensorSpec("x", "INT64", (-1, -1))}
    config = {
        "max_batch_size": 4,
        "input": [{"name": "x", "allow_ragged_batch": True}],
        "parameters": {
            "tritonkit.pad": {"string_value": '{"x": {"axis": 0, "value": 0}}'},
            "tritonkit.max_batch_tokens": {"string_value": most},
        },
    }
    if not message:
        assert read_padding(config, inputs, {}).most == 24
        del config["parameters"]["tritonkit.pad"]  # type: ignore[attr-defined]
        message = "wanted it with tritonkit.pad"
    with pytest.raises(ModelError, match=message):
        read_padding(config, inputs, {})
