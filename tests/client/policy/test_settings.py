"""Settings: what is refused, and what the defaults are."""

from __future__ import annotations

from typing import Any

import pytest

from tritonkit.client.policy import Breaker, Hedge, Limit, Retry
from tritonkit.errors import UsageError

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Retry, "attempts", 0),
        (Retry, "attempts", 2.5),
        (Retry, "attempts", True),
        (Retry, "budget", -0.1),
        (Retry, "budget", 10),
        (Retry, "budget", NAN),
        (Retry, "first_s", -1),
        (Retry, "longest_s", 0.001),
        (Breaker, "window_s", 0),
        (Breaker, "least_calls", 0),
        (Breaker, "failure_rate", 0),
        (Breaker, "failure_rate", 50),
        (Breaker, "open_s", NAN),
        (Breaker, "probes", 0),
        (Breaker, "probe_s", 0),
        (Hedge, "percentile", 95),
        (Hedge, "least_calls", 0),
        (Limit, "in_flight", 0),
        (Limit, "waiting", -1),
    ],
)
def test_nonsense_is_refused_by_name(kind: Any, name: str, value: Any) -> None:
    """A value that makes no sense is refused with its name, the value and what was wanted."""
    with pytest.raises(UsageError) as caught:
        kind(**{name: value})
    assert caught.value.where == kind.__name__
    assert name in caught.value.found
    assert caught.value.wanted


def test_nobody_may_wait() -> None:
    """`waiting=0` is sensible: full is full."""
    assert Limit(in_flight=1, waiting=0).waiting == 0
