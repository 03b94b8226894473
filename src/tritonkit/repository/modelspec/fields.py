"""Fields of Triton's configuration that few models need, under Triton's own names."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tritonkit.repository.modelspec.base import MAX_SIZE, InnerPath, Strict

__all__ = [
    "BatchInput",
    "BatchOutput",
    "Ensemble",
    "Fields",
    "InputFields",
    "ModelMetric",
    "ModelOperations",
    "OutputFields",
    "RepositoryAgent",
    "SecondaryDevice",
]

Names = Annotated[tuple[str, ...], Field(min_length=1)]
OneName = Annotated[tuple[str, ...], Field(min_length=1, max_length=1)]


class InputFields(Strict):
    """Fields of an input in Triton's configuration other than its name, dtype and shape."""

    format: Literal["none", "nhwc", "nchw"] = "none"
    """Layout of an image's three axes."""
    allow_ragged_batch: bool = False
    """Whether requests of one batch may differ in its sizes. The backend must accept such batches: a Python model does,
    NVIDIA's backends do with `batch_input`; ours pad instead (`free_axes` with `pad`)."""
    is_shape_tensor: bool = False
    """Whether it is a shape tensor of TensorRT."""
    is_non_linear_format_io: bool = False
    """Whether it has a non-linear format of TensorRT. From Triton 24.08 on."""


class OutputFields(Strict):
    """Fields of an output in Triton's configuration other than its name, dtype and shape."""

    label_filename: InnerPath | None = None
    """A file of the model's folder with one label per line; Triton gives the labels to callers who request classes."""
    is_shape_tensor: bool = False
    """Whether it is a shape tensor of TensorRT."""
    is_non_linear_format_io: bool = False
    """Whether it has a non-linear format of TensorRT. From Triton 24.08 on."""


class BatchInput(Strict):
    """An input that NVIDIA's backends make from all requests of a batch."""

    kind: Literal[
        "element_count",
        "accumulated_element_count",
        "accumulated_element_count_with_zero",
        "max_element_count_as_shape",
        "item_shape",
        "item_shape_flatten",
    ]
    target_name: Names
    """Inputs of the network that receive it; callers do not send them."""
    dtype: Literal["INT32", "FP32"] = "INT32"
    source_input: OneName
    """The input from which it is derived."""


class BatchOutput(Strict):
    """An output that NVIDIA's backends split by the requests of a batch."""

    kind: Literal["scatter_with_input_shape"] = "scatter_with_input_shape"
    target_name: Names
    source_input: OneName


class ModelMetric(Strict):
    """A histogram of Triton's metrics whose buckets are the model's own. From Triton 24.11 on."""

    family: str
    buckets: Annotated[tuple[float, ...], Field(min_length=1)]
    """Upper bounds of the buckets, ascending."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if any(high <= low for low, high in pairwise(self.buckets)):
            raise ValueError(f"buckets are {list(self.buckets)}; wanted them in ascending order")
        return self


class ModelOperations(Strict):
    """Libraries of custom operators."""

    op_library_filename: tuple[str, ...] = ()
    """Paths as the server's backend opens them."""


class RepositoryAgent(Strict):
    """An agent of the server that works on the model's folder before the model is loaded."""

    name: str
    parameters: dict[str, str] = {}


class SecondaryDevice(Strict):
    """A further device of an instance."""

    kind: Literal["nvdla"] = "nvdla"
    device_id: Annotated[int, Field(ge=0, le=MAX_SIZE, strict=True)] = 0


class Fields(Strict):
    """Fields that any model's configuration can have, including an ensemble's."""

    input: dict[str, InputFields] = {}
    """Fields of inputs by name."""
    output: dict[str, OutputFields] = {}
    """Fields of outputs by name."""
    metric_tags: dict[str, str] = {}
    """Labels of the model's metrics."""
    model_metrics: tuple[ModelMetric, ...] = ()
    model_repository_agents: tuple[RepositoryAgent, ...] = ()
    config: str = ""
    """More of `config.pbtxt`, in protobuf's text format. It is merged last, for settings without a key of their own."""


class Ensemble(Fields):
    """Settings of the ensemble that a pipeline becomes, where they do not follow from its parts."""

    inputs: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """All tensors that callers send; by default those of the pipeline's first part."""
    outputs: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """All tensors that callers get; by default those that no part takes."""
    max_inflight_requests: Annotated[int, Field(ge=0, le=MAX_SIZE, strict=True)] = 0
    """Most requests in progress at a time; others wait in the order of their arrival. 0 for no limit. From Triton 25.11
    on the limit holds at each step (before 26.04 at each request); before, tritonkit's guard enforces it in the
    ensemble."""
