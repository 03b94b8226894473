"""Rules and steps as people write them."""

from __future__ import annotations

import pytest

from tritonkit.errors import UsageError
from tritonkit.operate.release import DEFAULT, Rule, parse_rules, parse_steps


def test_rules_are_read() -> None:
    """Latency, ratio, shares."""
    assert parse_rules("p99>20ms, p50>1.5x,errors>0.1%,differ>1%") == (
        Rule("latency", 20.0, 99.0),
        Rule("ratio", 1.5, 50.0),
        Rule("errors", 0.001),
        Rule("differ", 0.01),
    )
    assert [str(rule) for rule in parse_rules(DEFAULT)] == ["p99>2x", "errors>0.1%"]
    assert parse_rules("") == ()
    assert str(parse_rules("p99.9>1s")[0]) == "p99.9>1000ms"


@pytest.mark.parametrize(
    "text",
    [
        "p99",
        "p99<20ms",
        "p100>20ms",
        "p0>1ms",
        "p99>",
        "p99>20",
        "p99>0ms",
        "p99>0.5x",
        "p99>nanx",
        "errors>0%",
        "errors>100%",
        "differ>100%",
        "errors>101%",
        "errors>x",
        "late>1%",
        "p99>20ms,p99>30ms",
        "errors>inf",
        "p99=20ms",
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    """With what was wanted."""
    with pytest.raises(UsageError) as error:
        parse_rules(text)
    assert error.value.wanted


def test_steps_rise_to_all() -> None:
    """The command line has two ways to give the first step."""
    assert parse_steps("5,25,100", None) == (5, 25, 100)
    assert parse_steps("5%, 25%, 100%", None) == (5, 25, 100)
    assert parse_steps("5,25,100", "1%") == (1, 5, 25, 100)
    assert parse_steps("5,25,100", "30") == (30, 100)
    assert parse_steps("5,25,100", "100") == (100,)
    assert parse_steps("0.5,100", None) == (0.5, 100)


@pytest.mark.parametrize("text", ["", "5,25", "25,5,100", "5,5,100", "0,100", "-1,100", "5,200", "a", "nan,100", ","])
def test_steps_that_do_not_add_up_are_refused(text: str) -> None:
    """They must rise, and end at 100."""
    with pytest.raises(UsageError):
        parse_steps(text, None)
