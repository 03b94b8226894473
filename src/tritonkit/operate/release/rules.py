"""When a release goes back: `p99>20ms`, `p99>2x`, `errors>0.1%`, `differ>1%`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tritonkit.errors import UsageError
from tritonkit.repository.modelspec.units import parse_duration

__all__ = ["DEFAULT", "Rule", "choose_rules", "parse_percent", "parse_rules", "parse_steps"]

DEFAULT = "p99>2x,errors>0.1%"
_DEFAULT_ALONE = "errors>0.1%"
"""Rule for the step in which the stable version gets no more requests to compare with."""
_WANTED = "such as p99>20ms, p99>2x (of the stable version's), errors>0.1%, differ>1%"
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,2})?)>(.+)")
_MOST_STEPS = 20


@dataclass(frozen=True)
class Rule:
    """One reason to go back.

    Args:
        kind: `latency`: a percentile in milliseconds; `ratio`: a percentile relative to the stable version's; `errors`:
            the share of requests that the server failed; `differ`: the share of copies with different answers.
        limit: milliseconds, a ratio, or a share from 0 to 1, depending on the kind.
        percent: the percentile, such as 99; 0 for other kinds.
    """

    kind: Literal["latency", "ratio", "errors", "differ"]
    limit: float
    percent: float = 0.0

    def __str__(self) -> str:
        if self.kind == "latency":
            return f"p{self.percent:g}>{self.limit:g}ms"
        if self.kind == "ratio":
            return f"p{self.percent:g}>{self.limit:g}x"
        return f"{self.kind}>{self.limit * 100:g}%"


def parse_rules(text: str, where: str = "--abort-if") -> tuple[Rule, ...]:
    """Read rules separated by commas.

    Raises:
        UsageError: a rule cannot be read, or is given twice.
    """
    rules: list[Rule] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        rule = _rule(part, where)
        if any((rule.kind, rule.percent) == (other.kind, other.percent) for other in rules):
            raise UsageError(where, found=f"{part!r} and another limit of the same metric", wanted="one limit")
        rules.append(rule)
    return tuple(rules)


def choose_rules(text: str | None, steps: Sequence[float], *, copies: bool) -> tuple[Rule, ...]:
    """Rules that can be judged in these steps.

    Args:
        text: rules as `parse_rules` reads them; None: the default.
        steps: percentages of the requests.
        copies: whether copies are compared.

    Raises:
        UsageError: a rule is a ratio although the only step has all requests, or `differ` without copies.
    """
    alone = len(steps) == 1
    rules = parse_rules((_DEFAULT_ALONE if alone else DEFAULT) if text is None else text)
    if alone and any(rule.kind == "ratio" for rule in rules):
        raise UsageError(
            "--abort-if", found="a ratio to the stable version, and one step of 100 %", wanted="p99>20ms, or more steps"
        )
    if not copies and any(rule.kind == "differ" for rule in rules):
        raise UsageError("--abort-if", found="`differ` without --shadow", wanted="copies to compare: --shadow 10%")
    return rules


def _rule(part: str, where: str) -> Rule:
    match = _PERCENTILE.fullmatch(part)
    if match and 0 < float(match[1]) < 100:
        percent, limit = float(match[1]), match[2].strip()
        if limit.endswith("x"):
            times = _number(limit[:-1])
            if times is not None and 1 <= times <= 1000:
                return Rule("ratio", times, percent)
        else:
            try:
                ms = parse_duration(limit) / 1000
            except ValueError:
                ms = 0.0
            if ms:
                return Rule("latency", ms, percent)
    name, _, value = part.partition(">")
    if name in ("errors", "differ") and (share := parse_percent(value, where, part) / 100) < 1:
        return Rule("errors" if name == "errors" else "differ", share)
    raise UsageError(where, found=repr(part), wanted=_WANTED)


def parse_percent(text: str, where: str, found: str = "") -> float:
    """`5%` or `5` as 5.0; above 0 and at most 100.

    Raises:
        UsageError: the text is not such a percentage.
    """
    percent = _number(text.strip().removesuffix("%"))
    if percent is None or not 0 < percent <= 100:
        raise UsageError(where, found=repr(found or text), wanted="a percentage above 0 and up to 100, such as 5%")
    return percent


def parse_steps(text: str, canary: str | None) -> tuple[float, ...]:
    """The percentages of requests that a candidate gets one after the other: rising, the last one 100.

    Args:
        text: the percentages, separated by commas.
        canary: the first percentage, in place of those up to it; None: no change.

    Raises:
        UsageError: the percentages do not rise to 100.
    """
    parts = [piece for piece in text.split(",") if piece.strip()]
    steps = [parse_percent(piece, "--steps") for piece in parts]
    if canary is not None:
        first = parse_percent(canary, "--canary")
        steps = [first, *(step for step in steps if step > first)] if first < 100 else [100.0]
    rising = all(one < next_one for one, next_one in pairwise(steps))
    if not steps or not rising or steps[-1] != 100 or len(steps) > _MOST_STEPS:
        raise UsageError(
            "--steps",
            found=", ".join(f"{step:g}" for step in steps) or repr(text),
            wanted=f"up to {_MOST_STEPS} percentages that rise to 100, such as 5,25,100",
        )
    return tuple(steps)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None
