"""The results of a build so far, spec by spec; each spec comes after those whose models its pipeline has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tritonkit.errors import BuildError, TritonkitError
from tritonkit.repository.export import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.results import Result
from tritonkit.repository.publish.current import Recognized
from tritonkit.repository.publish.publish import Rendered
from tritonkit.repository.publish.rendering import Members
from tritonkit.repository.render.values import ModelPlan

__all__ = ["Made", "RenderMembers"]

RenderMembers = Callable[[Spec, Artifact, Members], Sequence[Rendered]]
"""A function that renders the models of a spec, given the models of the other specs in its pipeline."""


@dataclass
class Made:
    """Results of a build so far."""

    keep_going: bool
    results: list[Result] = field(default_factory=list)
    served: dict[str, str] = field(default_factory=dict)
    recognized: dict[str, Recognized] = field(default_factory=dict)
    """Spec -> its published models, which were not rendered."""
    rendered: list[Rendered] = field(default_factory=list)
    failed: dict[str, TritonkitError] = field(default_factory=dict)
    withheld: set[str] = field(default_factory=set)
    """Specs that were made, and are not published, because the pipeline that they belong to failed."""
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    """Spec -> the artifact to serve."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Spec -> the hash of everything that its models were made from."""
    called: dict[str, ModelPlan] = field(default_factory=dict)
    """Spec -> the model that its callers see, once it was rendered."""

    def fail(self, name: str, error: TritonkitError) -> None:
        """Leave a model out; without `keep_going` the build ends."""
        if not self.keep_going:
            raise error
        self.failed[name] = error
        self._forget(name)

    def withhold(self, spec: Spec) -> None:
        """Leave the networks of a pipeline out that failed: its published ensemble fits the published ones."""
        for member in spec.tree:
            if member.entry and member.folder == spec.folder:
                self.withheld.add(member.name)
                self._forget(member.name)

    def _forget(self, name: str) -> None:
        self.served.pop(name, None)
        self.recognized.pop(name, None)

    def add(self, spec: Spec, models: Sequence[Rendered]) -> None:
        """Keep the rendered models of a spec."""
        self.rendered += models
        self.called[spec.name] = models[-1].plan

    def require_members(self, spec: Spec) -> None:
        """BuildError if another spec in the pipeline failed."""
        for key, member in spec.members.items():
            if member.name in self.failed:
                raise BuildError(
                    f"{spec.file} pipeline.{key}",
                    found=f"{member.name} could not be built, and the pipeline of {spec.name} has it",
                    wanted="all models of a pipeline",
                    todo=f"see the error of {member.name}",
                )

    def members_of(self, spec: Spec, render: RenderMembers) -> Members:
        """The models of the other specs in a pipeline. Those that were recognized are rendered to be known."""
        for member in spec.members.values():
            if member.name not in self.called and member.name in self.artifacts:
                models = render(member, self.artifacts[member.name], self.members_of(member, render))
                self.called[member.name] = models[-1].plan
        return {m.name: self.called[m.name] for m in spec.members.values() if m.name in self.called}

    @property
    def publishable(self) -> list[Rendered]:
        """Rendered models of the specs that did not fail, and whose pipeline did not."""
        left_out = self.failed.keys() | self.withheld
        return [model for model in self.rendered if model.artifact.model not in left_out]

    @property
    def kept(self) -> set[str]:
        """Specs whose published models stay as they are."""
        return set(self.failed) | self.withheld | set(self.recognized)

    @property
    def owners(self) -> list[tuple[str, str]]:
        """Each Triton model with its spec."""
        recognized = [(change.model, spec) for spec, own in self.recognized.items() for change in own.changes]
        return recognized + [(model.plan.name, model.artifact.model) for model in self.rendered]
