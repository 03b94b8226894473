"""What a rule gives: a cause with its place, its evidence, what to change and what that would bring."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["HEALTHY", "Diagnosis", "Finding"]

HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause.

    Args:
        cause: its name. where: the model, server or machine.
        share: the part of what is lost that it explains, 0 to 1, as its rule counts it.
        evidence: sentences with the numbers that made the rule fire.
        change: what to do. gain: what that would bring, and how that was computed.
    """

    cause: str
    where: str
    share: float
    evidence: tuple[str, ...]
    change: str
    gain: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, what explains others first; the first is the verdict."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The name of the bottleneck, or "healthy"."""
        return self.findings[0].cause if self.findings else HEALTHY

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"verdict": self.verdict} | asdict(self)
