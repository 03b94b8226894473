"""The value of a rule: a cause with its place, the evidence, the change to make and the gain to expect."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["HEALTHY", "Diagnosis", "Finding"]

HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause.

    Args:
        cause: the cause's name. where: the model, server or machine.
        share: the share of the loss that it explains, 0 to 1, as its rule counts it.
        evidence: sentences with the numbers that made the rule fire.
        change: the advice. gain: the expected gain, and how it was computed.
    """

    cause: str
    where: str
    share: float
    evidence: tuple[str, ...]
    change: str
    gain: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, causes before their consequences; the first is the verdict."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The name of the bottleneck, or "healthy"."""
        return self.findings[0].cause if self.findings else HEALTHY

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"verdict": self.verdict} | asdict(self)
