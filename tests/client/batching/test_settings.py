"""Settings that a user may give."""

from __future__ import annotations

from typing import Any

import pytest

from tritonkit.client.batching import Adaptive
from tritonkit.errors import UsageError


def test_the_defaults_are_a_batch_of_64_within_10_ms() -> None:
    """`Adaptive()` is what the page says."""
    assert Adaptive() == Adaptive(
        max_batch=64, target_latency_ms=10.0, min_wait_ms=0.0, max_wait_ms=None, in_flight=None
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_batch", 0),
        ("max_batch", 2.5),
        ("max_batch", True),
        ("in_flight", 0),
        ("target_latency_ms", -1.0),
        ("target_latency_ms", float("nan")),
        ("min_wait_ms", float("inf")),
        ("max_wait_ms", "5"),
    ],
)
def test_a_value_that_cannot_be_meant_is_named(name: str, value: Any) -> None:
    """The error names the setting and what was found."""
    with pytest.raises(UsageError, match=name) as caught:
        Adaptive(**{name: value})
    assert repr(value) in caught.value.found


def test_the_longest_wait_is_not_below_the_least() -> None:
    """A minimum above the maximum is refused."""
    with pytest.raises(UsageError, match="max_wait_ms"):
        Adaptive(min_wait_ms=5, max_wait_ms=2)
