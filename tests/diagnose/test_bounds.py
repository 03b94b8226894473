"""Bounded queues that may stand still, and where they do not."""

from __future__ import annotations

import os

import pytest

from tritonkit.diagnose.bounds import stall_note
from tritonkit.diagnose.configuration import facts_of
from tritonkit.diagnose.snapshot import ModelFacts
from tritonkit.wire.protos import schema

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
def test_a_configuration_says_whether_its_queue_is_bounded(
    batching: dict[str, object], bounded: bool
) -> None:
    """All that keeps Triton from fetching a batch ahead (core, `PriorityQueue`)."""
    config = schema().ModelConfig(name="m", backend="python", dynamic_batching=batching)
    assert facts_of(config).bounded is bounded


def test_what_a_python_model_calls_is_read() -> None:
    """By the parameter in which the spec's `calls` arrive; reading it adds nothing."""
    config = schema().ModelConfig(name="m", backend="python")
    assert facts_of(config).calls == ()
    assert not config.parameters
    config.parameters["tritonkit.calls"].string_value = "leaf twig"
    assert facts_of(config).calls == ("leaf", "twig")
