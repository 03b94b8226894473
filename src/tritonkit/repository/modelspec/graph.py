"""The pipeline of a `model.yaml` as a graph: its entries fit each other and the rest of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonkit.repository.modelspec.entries import PipelineNetwork, PipelineStep
from tritonkit.repository.modelspec.network import SOURCES

if TYPE_CHECKING:
    from tritonkit.repository.modelspec.model import ModelFile

__all__ = ["check_pipeline"]

_OF_A_GRAPH = {"idempotent", "max_batch_size", "response_cache"}
"""Settings under `serving` that an ensemble has."""


def check_pipeline(model: ModelFile) -> None:
    """Check that a pipeline has its networks, and each under one name.

    Raises:
        ValueError: an entry, or a section that belongs to a network, is missing or does not fit.
    """
    words, others = model.pipeline.count("network"), [part for part in model.pipeline if part != "network"]
    if words > 1:
        raise ValueError("pipeline has `network` twice; wanted it once, and further networks as {name:, network:}")
    if not model.has_network and all(isinstance(part, PipelineStep) for part in others):
        raise ValueError("pipeline has no network; wanted `network` exactly once, or networks of its own")
    if model.has_network and "network" not in model.model_fields_set:
        raise ValueError(f"network is missing; wanted one of {', '.join(SOURCES)} under it")
    llm = [model.network.llm, *(part.network.llm for part in others if isinstance(part, PipelineNetwork))]
    if model.pipeline and any(llm):
        raise ValueError("pipeline is given; wanted none for llm, which takes and gives text")
    if not model.has_network:
        _check_without_network(model)
    names = [part.key for part in others]
    if twice := [name for name in names if names.count(name) > 1 or name == "network"]:
        raise ValueError(f"pipeline has two parts called {twice[0]!r}; give one another name")


def _check_without_network(model: ModelFile) -> None:
    """Refuse sections that would be about a network that the spec does not have."""
    given = [*filter(model.model_fields_set.__contains__, ("network", "quality", "optimize"))]
    given += [f"serving.{name}" for name in sorted(model.serving.model_fields_set - _OF_A_GRAPH)]
    if given:
        raise ValueError(
            f"{given[0]} is given, and pipeline has no `network`; wanted it in the entry of a network, or `network` in"
            " its place in pipeline"
        )
