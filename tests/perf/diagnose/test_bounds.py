"""Bounded queues that may stand still, and where they do not."""

from __future__ import annotations

import os

import pytest

from tritonkit.client.wire.protos import schema
from tritonkit.perf.diagnose.bounds import in_flight_note, stall_note
from tritonkit.perf.diagnose.configuration import facts_of
from tritonkit.perf.diagnose.snapshot import ModelFacts

FACTS = [ModelFacts("free"), ModelFacts("tight", bounded=True)]


def test_a_bound_is_named_where_the_server_sleeps_on_it() -> None:
    """Before 26.08, and without the guard: of this process it is known to have none."""
    note = stall_note(FACTS, "2.51.0", os.getpid())
    assert "the queue of tight has a bound" in note
    assert "it runs without tritonkit's guard" in note
    assert "unless tritonkit's guard is in it" in stall_note(FACTS, "2.71.0", None)


def test_nothing_is_said_where_it_does_not_matter() -> None:
    """No bound, a newer server, or one whose version says nothing."""
    assert stall_note(FACTS[:1], "2.51.0", None) == ""
    assert stall_note(FACTS, "2.72.0", None) == ""
    assert stall_note(FACTS, "unknown", None) == ""


@pytest.mark.parametrize(
    ("batching", "bounded"),
    [
        ({}, False),
        ({"max_queue_delay_microseconds": 500, "preferred_batch_size": [4]}, False),
        ({"default_queue_policy": {"timeout_action": "DELAY"}}, False),
        ({"default_queue_policy": {"max_queue_size": 1}}, True),
        ({"default_queue_policy": {"default_timeout_microseconds": 1}}, True),
        ({"default_queue_policy": {"allow_timeout_override": True}}, True),
        ({"priority_levels": 1, "default_priority_level": 1}, True),
    ],
)
def test_a_configuration_says_whether_its_queue_is_bounded(batching: dict[str, object], bounded: bool) -> None:
    """All that keeps Triton from fetching a batch ahead (core, `PriorityQueue`)."""
    config = schema().ModelConfig(name="m", backend="python", dynamic_batching=batching)
    assert facts_of(config).bounded is bounded


def test_a_bound_on_an_ensemble_is_named() -> None:
    """Requests that wait for it are in no figure; without the guard, as in this process, it bounds nothing."""
    facts = [ModelFacts("free"), ModelFacts("tight", in_flight=4)]
    note = in_flight_note(facts, None)
    assert "max_inflight_requests of tight (4) lets the other requests wait" in note
    assert "where tritonkit's guard is in the server" in note
    assert "(4) bounds nothing: the server runs without" in in_flight_note(facts, os.getpid())
    assert in_flight_note(facts[:1], None) == ""


@pytest.mark.parametrize(("text", "in_flight"), [("4", 4), ("0", 0), ("many", 0), ("", 0)])
def test_a_configuration_says_how_many_may_be_under_way(text: str, in_flight: int) -> None:
    """The parameter that the build writes gives the bound; reading it adds nothing."""
    config = schema().ModelConfig(name="m", platform="ensemble")
    assert facts_of(config).in_flight == 0
    assert not config.parameters
    config.parameters["tritonkit.max_inflight_requests"].string_value = text
    assert facts_of(config).in_flight == in_flight


def test_what_a_python_model_calls_is_read() -> None:
    """The parameter in which the spec's `calls` arrive names them; reading it adds nothing."""
    config = schema().ModelConfig(name="m", backend="python")
    assert facts_of(config).calls == ()
    assert not config.parameters
    config.parameters["tritonkit.calls"].string_value = "leaf twig"
    assert facts_of(config).calls == ("leaf", "twig")
