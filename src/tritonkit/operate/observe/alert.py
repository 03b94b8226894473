"""An alert: when it fires, and what it says to the person on call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Alert", "Pace", "Severity"]


class Severity(StrEnum):
    """Urgency of an alert."""

    page = "page"
    """Somebody looks now: callers notice, or soon will."""
    ticket = "ticket"
    """Somebody looks within days."""


@dataclass(frozen=True)
class Pace:
    """Scale of the alerts' durations: 1 for production, less for tests of a live server.

    Calling it with seconds returns a duration in Prometheus' notation.
    """

    factor: float = 1.0

    def __call__(self, seconds: float) -> str:
        """A duration such as `5m`; whole seconds below a minute, at least one, milliseconds below ten."""
        scaled = seconds * self.factor
        for name, size in (("d", 86400), ("h", 3600), ("m", 60)):
            if scaled >= size and scaled % size == 0:
                return f"{scaled / size:.0f}{name}"
        return f"{scaled:.0f}s" if scaled >= 10 else f"{scaled * 1000:.0f}ms"


@dataclass(frozen=True)
class Alert:
    """One alert.

    Attributes:
        name: its name, for Prometheus and people.
        expr: PromQL that has a series for each thing at fault; made for a pace.
        for_s: the time for which the condition must hold before the alert fires, in seconds.
        summary: the problem, with labels of the series as `{{ $labels.model }}`.
        cause: the usual cause.
        command: a command that helps to investigate.
    """

    name: str
    severity: Severity
    expr: Callable[[Pace], str]
    for_s: float
    summary: str
    cause: str
    command: str
