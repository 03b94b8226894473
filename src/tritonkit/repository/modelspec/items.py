"""`map:` of a pipeline: a pipeline that runs for every item of a request, where requests have different numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from tritonkit.repository.modelspec.base import ModelName, Strict, Target
from tritonkit.repository.modelspec.fields import Ensemble
from tritonkit.repository.modelspec.serving import Serving

if TYPE_CHECKING:
    from tritonkit.repository.modelspec.model import Example, PipelineEntry

__all__ = ["ITEM", "Items", "PipelineMap"]

ITEM = "_item"
"""End of the name of the spec that runs for every item."""

_REFUSED = ("decoupled", "sequence_batching", "response_cache", "variant", "threads", "max_batch_tokens")
"""Settings under `serving` that a map does not have."""


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
