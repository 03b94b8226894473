"""The parts of a plan: one frozen value per Triton model, every default resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tritonkit.datatypes import DataType
from tritonkit.releases import EMBEDDED, Release
from tritonkit.repository.export.artifact import TensorInfo
from tritonkit.repository.modelspec.base import Target
from tritonkit.repository.modelspec.fields import (
    BatchInput,
    BatchOutput,
    InputFields,
    ModelMetric,
    ModelOperations,
    OutputFields,
    RepositoryAgent,
)
from tritonkit.repository.modelspec.sequences import SequenceBatching
from tritonkit.repository.modelspec.serving import DynamicBatching, Instances, Optimization, VersionPolicy, WarmupSample

__all__ = ["EnsembleStep", "Kind", "ModelPlan", "Port", "Target", "TensorPlan"]

Kind = Literal["cpu", "gpu"]
"""The kind of device that an instance runs on."""


@dataclass(frozen=True)
class TensorPlan:
    """One input or output of a Triton model: `dims` without the batch axis, -1 where it is free.

    Empty dims stand for a tensor of one value per item. Triton has no rank 0, so a client sends [1] and the network
    gets its own shape (`reshape` in the configuration).
    """

    name: str
    dtype: DataType
    dims: tuple[int, ...]
    ragged: bool = False
    """Whether requests of one batch may differ in its sizes; the backend pads."""
    optional: bool = False
    """Whether a request may leave an input out."""
    fields: InputFields | OutputFields | None = None
    """Other fields from the spec."""
    single: bool = False
    """Whether the network takes one item at a time, with an axis of size 1 in front that requests leave out."""

    @property
    def network_dims(self) -> tuple[int, ...] | None:
        """Dims that the network sees in place of `client_dims` (`reshape`); None where they are the same."""
        dims = (1, *self.dims) if self.single else self.dims
        return None if dims == self.client_dims else dims

    @property
    def client_dims(self) -> tuple[int, ...]:
        """The dims a client sends or gets: [1] for one value per item."""
        return self.dims or (1,)

    @property
    def type(self) -> str:
        """Dtype and dims, such as `FP32 [-1,64]`."""
        return f"{self.dtype} [{','.join(map(str, self.client_dims))}]"

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True)
class Port:
    """An input or output of a part: the tensor of the part, and the pipeline's name for it."""

    info: TensorInfo
    tensor: str


@dataclass(frozen=True)
class EnsembleStep:
    """One model of an ensemble; the maps lead from the model's tensor names to the ensemble's."""

    model: str
    input_map: Mapping[str, str]
    output_map: Mapping[str, str]


@dataclass(frozen=True)
class ModelPlan:
    """One Triton model: the content of its `config.pbtxt`, and the files it needs next to it.

    `backend` is None for an ensemble. File names are relative: `version_files` and `version_texts` to the version
    folder, `model_files` to the model's folder, `warmup_files` to its `warmup/`.
    """

    name: str
    backend: str | None
    max_batch_size: int
    inputs: tuple[TensorPlan, ...]
    outputs: tuple[TensorPlan, ...]
    instances: tuple[Instances, ...] = ()
    """Instance groups, each with its kind and count."""
    version_policy: VersionPolicy = field(default_factory=lambda: VersionPolicy(latest=1))
    dynamic_batching: DynamicBatching | None = None
    sequence_batching: SequenceBatching | None = None
    optimization: Optimization = field(default_factory=Optimization)
    decoupled: bool = False
    response_cache: bool = False
    warmup: tuple[WarmupSample, ...] = ()
    """Warm-up samples, whose files are names in `<model>/warmup/`."""
    batch_input: tuple[BatchInput, ...] = ()
    batch_output: tuple[BatchOutput, ...] = ()
    default_model_filename: str = ""
    cc_model_filenames: Mapping[str, str] = field(default_factory=dict)
    metric_tags: Mapping[str, str] = field(default_factory=dict)
    model_metrics: tuple[ModelMetric, ...] = ()
    model_operations: ModelOperations = field(default_factory=ModelOperations)
    model_repository_agents: tuple[RepositoryAgent, ...] = ()
    max_inflight_requests: int = 0
    config: str = ""
    """More of the configuration, as protobuf's text."""
    given: str = ""
    """The whole configuration of a model that was taken in as it is; the other fields describe it."""
    section: str = ""
    """The spec's file and section, for messages about `config` and fields that a release lacks."""
    triton: Release = EMBEDDED
    """The oldest release that is to serve it."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[EnsembleStep, ...] = ()
    version_files: Mapping[str, Path] = field(default_factory=dict)
    version_texts: Mapping[str, bytes] = field(default_factory=dict)
    model_files: Mapping[str, Path] = field(default_factory=dict)
    warmup_files: Mapping[str, bytes] = field(default_factory=dict)
    fewer_cores: Mapping[int, ModelPlan] = field(default_factory=dict)
    """The same model on that many of the cores, where it is served in another way there."""
    notes: tuple[str, ...] = ()
    """Reasons of choices that a person may want to know, such as why there is no warm-up."""
