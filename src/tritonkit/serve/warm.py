"""One request per model, made from its own configuration: ready means that each was answered."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tritonkit.datatypes import BY_CONFIG
from tritonkit.serve.shm import dtype_name, tensor_bytes
from tritonkit.wire.protos import schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tritonkit.serve.repository import ServedModel

__all__ = ["NoSample", "warm_request"]


class NoSample(Exception):
    """A model whose BYTES input has no warm-up sample: what it accepts cannot be guessed."""


def warm_request(model: ServedModel, models: Mapping[str, ServedModel], number: int) -> Any:
    """The protocol's `ModelInferRequest` of batch 1: out of `model_warmup`, else zeros with open axes 1.

    An ensemble may not have a warm-up of its own: its inputs are those of the steps that take them.

    Args:
        number: tells sequences apart, and is not 0.

    Raises:
        NoSample: a BYTES input without a sample.
    """
    request = schema().ModelInferRequest(model_name=model.name, id="tritonkit-warm")
    batch = (1,) if model.config.max_batch_size > 0 else ()
    for tensor in model.config.input:
        owner, sample = _sample(model, tensor.name, models)
        if sample is None and tensor.optional:
            continue
        dims = (
            tuple(sample.dims)
            if sample is not None
            else tuple(max(1, size) for size in tensor.dims)
        )
        dtype = dtype_name(tensor)
        request.raw_input_contents.append(_raw(owner, tensor.name, dtype, dims, sample))
        request.inputs.add(name=tensor.name, datatype=BY_CONFIG[dtype].name, shape=(*batch, *dims))
    if model.config.HasField("sequence_batching"):
        request.parameters["sequence_id"].int64_param = number
        request.parameters["sequence_start"].bool_param = True
        request.parameters["sequence_end"].bool_param = True
    return request


def _sample(
    model: ServedModel, name: str, models: Mapping[str, ServedModel]
) -> tuple[ServedModel, Any]:
    """The warm-up entry for an input, and the model that has it."""
    for step in model.config.ensemble_scheduling.step:
        for key, value in step.input_map.items():
            if value == name and step.model_name in models:
                owner, sample = _sample(models[step.model_name], key, models)
                if sample is not None:
                    return owner, sample
    for warmup in model.config.model_warmup[:1]:
        if name in warmup.inputs:
            return model, warmup.inputs[name]
    return model, None


def _raw(model: ServedModel, name: str, dtype: str, dims: tuple[int, ...], sample: Any) -> bytes:
    """The bytes of an input. Random data is sent as zeros too: what counts is that an answer comes,
    and a zero is a valid index everywhere."""
    if sample is not None and sample.input_data_file:
        file: Path = model.folder / "warmup" / sample.input_data_file
        return file.read_bytes()
    if dtype != "TYPE_STRING":
        return bytes(tensor_bytes(dtype, dims, 1, 0))
    if sample is None or not sample.zero_data:
        raise NoSample(f"input {name!r} is BYTES, and model_warmup holds no sample of it")
    return struct.pack("<I", 0) * (tensor_bytes(dtype, dims, 1, 0) // 4)
