"""A served model's inputs and outputs, read from its own metadata and configuration."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tritonkit.client.wire.protos import data_type_name
from tritonkit.datatypes import DATATYPES
from tritonkit.errors import InferenceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CALLS", "IDEMPOTENT", "INDEPENDENT_ITEMS", "ModelSignature", "TensorSpec", "signature_from"]

CALLS = "tritonkit.calls"
"""The parameter of a model's configuration with the names of the models that its Python calls, separated by spaces."""
IDEMPOTENT = "tritonkit.idempotent"
"""The parameter of a model's configuration; `idempotent` of a spec's `serving` writes it."""
INDEPENDENT_ITEMS = "tritonkit.independent_items"
"""The parameter of a model's configuration: `proven` by the build, or `declared` by the spec."""

_MOST_AXES = 64
"""Numpy's limit."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output.

    `dims` is the shape of one item, -1 where any size is allowed, without the batch axis.
    `batched` says whether the model puts a batch axis before it: a batching model does, except for
    TensorRT's shape tensors.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    batched: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """The inputs and outputs of one model by name; `max_batch_size` 0 means no batch axis."""

    name: str
    versions: tuple[str, ...]
    max_batch_size: int
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    idempotent: bool = False
    """Whether its configuration declares that a request may run twice."""
    independent_items: str = ""
    """Independence of a batch's items by the configuration: `proven` or `declared`; empty if it says nothing."""
    configured: bool = True
    """Whether the server gave the model's configuration, an extension of Triton's. Without it no axis is known to be a
    batch's, and nothing of sequences and streams; without names too, any inputs are sent as they are given."""


def signature_from(metadata: Any, config: Any | None) -> ModelSignature:
    """Read a signature from a `ModelMetadataResponse` and a `ModelConfig` message, if the server has one.

    Shapes come from the configuration: there an item's shape stands without the batch axis.

    Raises:
        InferenceError: a datatype or a number of axes that no tensor has.
    """
    if config is None:
        max_batch_size, inputs, outputs = 0, metadata.inputs, metadata.outputs
    else:
        max_batch_size, inputs, outputs = config.max_batch_size, config.input, config.output
    read = _plain_spec if config is None else _batched_spec if max_batch_size > 0 else _spec
    return ModelSignature(
        name=metadata.name,
        versions=tuple(metadata.versions),
        max_batch_size=max_batch_size,
        inputs=MappingProxyType({tensor.name: read(tensor) for tensor in inputs}),
        outputs=MappingProxyType({tensor.name: read(tensor) for tensor in outputs}),
        idempotent=config is not None and _declared_idempotent(config),
        independent_items="" if config is None else _independent_items(config),
        configured=config is not None,
    )


def _declared_idempotent(config: Any) -> bool:
    """The value of the parameter; it cannot be true for a model that keeps state between requests."""
    if IDEMPOTENT not in config.parameters or config.HasField("sequence_batching"):
        return False
    text: str = config.parameters[IDEMPOTENT].string_value
    return text.lower() == "true"


def _independent_items(config: Any) -> str:
    if INDEPENDENT_ITEMS not in config.parameters:
        return ""
    text: str = config.parameters[INDEPENDENT_ITEMS].string_value
    return text if text in ("proven", "declared") else ""


def _plain_spec(tensor: Any) -> TensorSpec:
    """A tensor of a model's metadata, whose shape includes the batch axis if there is one."""
    if tensor.datatype not in DATATYPES:
        raise InferenceError(
            "a model's metadata",
            found=f"the datatype {tensor.datatype!r} of tensor {tensor.name}",
            wanted=f"one of {', '.join(DATATYPES)}",
        )
    return TensorSpec(tensor.name, tensor.datatype, _dims(tensor.shape))


def _spec(tensor: Any, batched: bool = False) -> TensorSpec:
    """A tensor of a model's configuration: an input, or an output, which has no `optional`."""
    optional = getattr(tensor, "optional", False)
    datatype = _datatype(tensor.data_type)
    return TensorSpec(tensor.name, datatype, _dims(tensor.dims), batched, optional)


def _batched_spec(tensor: Any) -> TensorSpec:
    return _spec(tensor, batched=not tensor.is_shape_tensor)


def _dims(sizes: Sequence[int]) -> tuple[int, ...]:
    if len(sizes) > _MOST_AXES:
        raise InferenceError(
            "a model's configuration", found=f"a tensor of {len(sizes)} axes", wanted=f"at most {_MOST_AXES}"
        )
    return tuple(sizes)


def _datatype(number: int) -> str:
    try:
        name = data_type_name(number).removeprefix("TYPE_")
    except ValueError:
        raise InferenceError(
            "a model's configuration", found=f"a datatype of number {number}", wanted="Triton's own"
        ) from None
    # The one type with two names: STRING in a configuration, BYTES in a request.
    return "BYTES" if name == "STRING" else name
