"""Reports on the progress of a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.repository.modelspec import Spec
    from tritonkit.repository.optimize.make import BuildPlan
    from tritonkit.repository.optimize.results import Result

__all__ = ["Progress"]


class Progress:
    """Receiver of a build's steps, in order; this one ignores them."""

    def waiting(self) -> None:
        """This build waits until another build of the same project has ended."""

    def start(self, plan: BuildPlan) -> None:
        """A variant is about to be made; not called for what the cache holds."""

    def runs(self, plan: BuildPlan) -> None:
        """Python of the model's folder may run now; called for each variant that needs it."""

    def say(self, text: str) -> None:
        """A short phrase describes the current step."""

    def tell(self, text: str) -> None:
        """A step that takes minutes tells how far it is."""

    def warn(self, text: str) -> None:
        """A warning for a person, such as a damaged file in the cache."""

    def done(self, result: Result) -> None:
        """A variant was made, failed, or was cached; its speed is not known yet."""

    def trying(self, spec: Spec) -> None:
        """Python of the model's folder is about to run in a server, which tries it in batches."""

    def timing(self, model: str, count: int) -> None:
        """Variants of a model are about to be measured in turns; not called if their speed is known."""

    def timed(self, results: Sequence[Result]) -> None:
        """All variants of a model are known with their speed."""

    def publishing(self) -> None:
        """All models are made and good enough; the next step writes the repository."""
