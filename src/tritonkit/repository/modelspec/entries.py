"""The entries of `pipeline` in model.yaml: steps, networks, models of other specs, and maps, which run a pipeline for
every item of a request."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from tritonkit.repository.modelspec.base import FileReference, ModelName, Strict, Target
from tritonkit.repository.modelspec.fields import Ensemble
from tritonkit.repository.modelspec.network import Network
from tritonkit.repository.modelspec.optimize import Optimize
from tritonkit.repository.modelspec.python import OwnPackages
from tritonkit.repository.modelspec.quality import Quality
from tritonkit.repository.modelspec.serving import Serving

__all__ = [
    "ITEM",
    "Example",
    "PipelineEntry",
    "PipelineMap",
    "PipelineModel",
    "PipelineNetwork",
    "PipelineStep",
    "Scalar",
]

Scalar = bool | int | float | str

ITEM = "_item"
"""End of the name of the spec that runs for every item."""

_REFUSED = ("decoupled", "sequence_batching", "response_cache", "variant", "threads", "max_batch_tokens")
"""Settings under `serving` that a map does not have."""


class Example(Strict):
    """One item of a text or file input."""

    text: str | None = None
    file: FileReference | None = None
    more: tuple[str, ...] = ()
    """Further items of the same kind, texts or files, with which the build tries your own steps in batches."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.text is None) == (self.file is None):
            raise ValueError("wanted exactly one of text and file")
        return self


class PipelineStep(Strict):
    """A pre- or post-processing step around the network."""

    step: str
    """Name of a folder of python_backends/steps/, or of steps/ in the model's folder."""
    name: ModelName | None = None
    """Suffix of the Triton model's name; the step's name by default."""
    parameters: dict[str, Scalar | list[Scalar] | FileReference] = {}
    inputs: dict[str, str] = {}
    """Step input -> pipeline tensor, where the names differ."""
    outputs: dict[str, str] = {}
    """Step output -> pipeline tensor, where the names differ."""
    calls: tuple[ModelName, ...] | None = None
    """Models that the step's Python calls while it answers (BLS). They are loaded before it, and with it."""
    python: OwnPackages | None = None
    """Packages of a step of one's own, in place of those of its step.yaml."""
    serving: Serving = Serving()

    @property
    def key(self) -> str:
        """The entry's name in its pipeline."""
        return self.name or self.step

    def on(self, target: Target) -> PipelineStep:
        """The step with the settings that hold on a target."""
        return self.model_copy(update={"serving": self.serving.on(target)})


class PipelineNetwork(Strict):
    """A network of a pipeline in addition to `network`. It is built, judged and tuned as the spec SPEC_NAME."""

    name: ModelName
    network: Network
    inputs: dict[str, str] = {}
    """Network input -> pipeline tensor, where the names differ."""
    outputs: dict[str, str] = {}
    """Network output -> pipeline tensor, where the names differ."""
    python: OwnPackages | None = None
    """Packages of `network.python`."""
    quality: Quality = Quality()
    optimize: Optimize = Optimize()
    serving: Serving = Serving()
    example: dict[str, Example] = {}
    """Real data for the network's BYTES inputs."""

    @property
    def key(self) -> str:
        """The entry's name in its pipeline."""
        return self.name


class PipelineModel(Strict):
    """The model of another spec of the project, as its callers see it: its pipeline belongs to it."""

    model: ModelName
    """The name of the spec."""
    name: ModelName | None = None
    """The entry's name, where a pipeline has one model twice; the model's name by default."""
    inputs: dict[str, str] = {}
    """Input of the model -> pipeline tensor, where the names differ."""
    outputs: dict[str, str] = {}
    """Output of the model -> pipeline tensor, where the names differ."""

    @property
    def key(self) -> str:
        """The entry's name in its pipeline."""
        return self.name or self.model


class Items(Strict):
    """The items of a request, and what runs for each of them."""

    over: Annotated[tuple[str, ...], Field(min_length=1)]
    """Tensors of the pipeline whose first axis is that of the items: [N, 3, 48, W] where an item is [3, 48, W]."""
    count: str | None = None
    """Tensor with the number of items of a request that count, [1], as `detect` gives it; without it all do."""
    pipeline: Annotated[tuple[PipelineEntry, ...], Field(min_length=1)]
    """The entries that run for every item, as in a pipeline. They become the spec SPEC_NAME_item."""
    ensemble: Ensemble = Ensemble()
    """Tensors that the pipeline of an item takes and gives, where they do not follow from its entries."""
    example: dict[str, Example] = {}
    """Real data for BYTES inputs of an item."""
    max_in_flight: Annotated[int, Field(ge=1, le=1 << 16, strict=True)] | None = None
    """Items that each instance of the map has in calls at a time; by default twice the largest batch of the pipeline of
    an item, at least 64."""

    @model_validator(mode="after")
    def _networks_of_its_own(self) -> Self:
        if "network" in self.pipeline:
            raise ValueError("pipeline has `network`; wanted a network of its own: {name:, network:}, or {model: SPEC}")
        return self


class PipelineMap(Strict):
    """A pipeline for every item of a request, such as the crops of a page, in batches over all requests in flight."""

    name: ModelName
    map: Items
    inputs: dict[str, str] = {}
    """Input of the pipeline of an item -> tensor of this pipeline, where the names differ."""
    outputs: dict[str, str] = {}
    """Output of the pipeline of an item -> tensor of this pipeline, where the names differ."""
    serving: Serving = Serving()
    """Settings of the Python model that calls it."""

    @property
    def key(self) -> str:
        """The entry's name in its pipeline."""
        return self.name

    def on(self, target: Target) -> PipelineMap:
        """The map with the settings that hold on a target."""
        return self.model_copy(update={"serving": self.serving.on(target)})

    @model_validator(mode="after")
    def _serves_calls(self) -> Self:
        if refused := [name for name in _REFUSED if name in self.serving.model_fields_set]:
            raise ValueError(f"serving has {refused[0]}; a map only calls other models, which have it")
        return self


def _kind(given: object) -> str:
    """The kind of an entry by the key that it has, so that an error is about the kind that was meant."""
    if isinstance(given, str):
        return "the word network"
    keys = given if isinstance(given, dict) else type(given).model_fields if isinstance(given, Strict) else {}
    return next((f"a {kind}" for kind in ("network", "map", "model") if kind in keys), "a step")


def _of_one_kind(given: object) -> object:
    """Refuse an entry that is of no kind, or of several."""
    keys = [key for key in _KINDS if key in given] if isinstance(given, dict) else []
    if len(keys) > 1:
        raise ValueError(f"found {' and '.join(keys)} in one entry; wanted one of them")
    if not (keys or given == "network" or isinstance(given, dict | Strict)):
        raise ValueError(f"found {given!r}; wanted `network`, or a mapping with one of {', '.join(_KINDS)}")
    return given


_KINDS = ("step", "network", "map", "model")
PipelineEntry = Annotated[
    Annotated[Literal["network"], Tag("the word network")]
    | Annotated[PipelineStep, Tag("a step")]
    | Annotated[PipelineNetwork, Tag("a network")]
    | Annotated[PipelineMap, Tag("a map")]
    | Annotated[PipelineModel, Tag("a model")],
    Discriminator(_kind),
    BeforeValidator(_of_one_kind),
]
Items.model_rebuild()
PipelineMap.model_rebuild()
