"""Who is told how a build gets on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.repository.modelspec import Spec
    from tritonkit.repository.optimize.make import BuildPlan
    from tritonkit.repository.optimize.results import Result

__all__ = ["Progress"]


class Progress:
    """Told what a build does, in order; this one does nothing with it."""

    def waiting(self) -> None:
        """Another build of the same project goes on, and this one waits until it has ended."""

    def start(self, plan: BuildPlan) -> None:
        """A variant is about to be made; not called for what the cache holds."""

    def runs(self, plan: BuildPlan) -> None:
        """The Python of the model's folder may run now; told for each variant that needs it."""

    def say(self, text: str) -> None:
        """What it is at, in a short phrase."""

    def warn(self, text: str) -> None:
        """Something a person should know of, such as a damaged file in the cache."""

    def done(self, result: Result) -> None:
        """A variant is made, or failed, or was in the cache; its speed is not known yet."""

    def trying(self, spec: Spec) -> None:
        """Python of the model's folder is about to run in a server, which tries it in batches."""

    def timing(self, model: str, count: int) -> None:
        """Variants of a model are about to be measured in turns; not called where their speed is known."""

    def timed(self, results: Sequence[Result]) -> None:
        """All variants of a model, now with their speed."""

    def publishing(self) -> None:
        """All is made and good enough; what comes now writes the repository."""
