"""The interface of every runtime: a network that runs on batches, and reports where its time goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tritonkit.repository.export.samples import Batch

__all__ = ["OperatorTime", "Runner", "Runs"]


@dataclass(frozen=True)
class OperatorTime:
    """Time of one operator in one run: its name in the graph, its kind, milliseconds."""

    name: str
    kind: str
    ms: float


class Runs(Protocol):
    """A network that can be run, wherever it is."""

    def run(self, batch: Batch) -> Batch:
        """Outputs by name, batch axis first."""
        ...


class Runner(Runs, Protocol):
    """An opened network."""

    def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
        """Mean time of each operator over `repeats` runs, by the runtime's own profiler."""
        ...
