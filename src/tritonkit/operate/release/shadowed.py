"""Rules about the answers to copies."""

from __future__ import annotations

from collections.abc import Sequence

from tritonkit.operate.release.evidence import AgainstShare
from tritonkit.operate.release.judge import RuleState
from tritonkit.operate.release.rules import Rule
from tritonkit.operate.release.shadow import ShadowCounts

__all__ = ["ShadowJudge"]


class ShadowJudge:
    """Judges the share of answers that differ by the rules `differ>...`."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [rule for rule in rules if rule.kind == "differ"]
        self._counts = ShadowCounts()

    def look(self, counts: ShadowCounts) -> None:
        """Take the counts as they are now."""
        self._counts = counts

    @property
    def findings(self) -> list[RuleState]:
        """The state of every rule."""
        counts = self._counts
        words = f"{counts.differ} of {counts.compared} copies"
        kinds = dict(counts.kinds)  # the shadow's thread goes on adding
        common = max(kinds, key=lambda kind: kinds[kind], default="")
        words += f", most often: {common}" if common else ""
        return [
            RuleState(str(rule), words, AgainstShare(rule.limit, counts.differ, counts.compared).value)
            for rule in self._rules
        ]
