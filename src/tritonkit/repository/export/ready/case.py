"""The input of one metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tritonkit.repository.export.ready.answers import RightAnswers
from tritonkit.repository.export.ready.prepared import Item
from tritonkit.repository.modelspec.quality import Metric

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """The outputs that one metric measures, with the right answers and the reference's outputs."""

    metric: Metric
    where: str
    answers: RightAnswers
    tensors: Mapping[str, str]
    items: Sequence[Item]
    reference_items: Sequence[Item]
    """The reference's items, which stand for the right answers where there are none."""
    sources: Sequence[tuple[int, int]]
    """The row of each item, and its side in a pair."""

    @cached_property
    def values(self) -> list[Any]:
        """The measured output of each item."""
        return [item[self.tensors["output"]] for item in self.items]

    @cached_property
    def reference(self) -> list[Any]:
        """The reference's output of each item."""
        return [item[self.tensors["output"]] for item in self.reference_items]

    @cached_property
    def rows(self) -> list[int]:
        """The row of each item."""
        return [row for row, _ in self.sources]
