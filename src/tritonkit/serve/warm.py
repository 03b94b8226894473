"""One request per model, made from its configuration; a server is ready when each was answered."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tritonkit.client.wire.protos import schema
from tritonkit.datatypes import BY_CONFIG
from tritonkit.serve.shm import dtype_name, tensor_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tritonkit.serve.repository import ServedModel

__all__ = ["WARMUP", "NoSample", "Sample", "warm_request"]


WARMUP = "tritonkit.warmup"
"""A parameter of the configuration; with `off`, tritonkit sends the model no warm request at all."""


class NoSample(Exception):
    """No request can be made up for a model: its valid input cannot be guessed, or it turned warm requests off."""


@dataclass(frozen=True)
class Sample:
    """A first request, and whether any of its inputs is made up, so that the model may rightly refuse it."""

    request: Any
    made_up: bool


def warm_request(model: ServedModel, models: Mapping[str, ServedModel], number: int) -> Sample:
    """The protocol's `ModelInferRequest` of batch 1: out of `model_warmup`, else zeros with open axes 1.

    An ensemble may not have a warm-up of its own: its inputs are those of the steps that take them. An optional input
    without a sample is left out.

    Args:
        number: the sequence's number, which is not 0.

    Raises:
        NoSample: a BYTES input without a sample, a Python model that has no `model_warmup`, or one that wants none.
    """
    if _is_off(model, models):
        raise NoSample("model_warmup is off")
    request = schema().ModelInferRequest(model_name=model.name, id="tritonkit-warm")
    batch = (1,) if model.config.max_batch_size > 0 else ()
    made_up = False
    for tensor in model.config.input:
        owner, sample = _sample(model, tensor.name, models)
        if sample is None and tensor.optional:
            continue
        if sample is None and owner.backend == "python":
            raise NoSample(f"{owner.name} is a Python model without model_warmup: it is sent nothing made up")
        made_up |= sample is None
        dims = tuple(sample.dims) if sample is not None else tuple(max(1, size) for size in tensor.dims)
        dtype = dtype_name(tensor)
        request.raw_input_contents.append(_raw(owner, tensor.name, dtype, dims, sample))
        request.inputs.add(name=tensor.name, datatype=BY_CONFIG[dtype].name, shape=(*batch, *dims))
    if model.config.HasField("sequence_batching"):
        request.parameters["sequence_id"].int64_param = number
        request.parameters["sequence_start"].bool_param = True
        request.parameters["sequence_end"].bool_param = True
    return Sample(request, made_up)


def _is_off(model: ServedModel, models: Mapping[str, ServedModel]) -> bool:
    """Whether warm requests are off for a model or a part of it."""
    if WARMUP in model.config.parameters:
        return bool(model.config.parameters[WARMUP].string_value == "off")
    return any(_is_off(models[part], models) for part in model.parts if part in models)


def _sample(model: ServedModel, name: str, models: Mapping[str, ServedModel]) -> tuple[ServedModel, Any]:
    """The warm-up entry for an input, and the model that has it. Without an entry, it is a model that takes the input,
    preferably one in Python."""
    takers = [model] if not model.parts else []
    for step in model.config.ensemble_scheduling.step:
        for key, value in step.input_map.items():
            if value == name and step.model_name in models:
                owner, sample = _sample(models[step.model_name], key, models)
                if sample is not None:
                    return owner, sample
                takers.append(owner)
    for warmup in model.config.model_warmup[:1]:
        if name in warmup.inputs:
            return model, warmup.inputs[name]
    takers.sort(key=lambda taker: taker.backend != "python")
    return (takers or [model])[0], None


def _raw(model: ServedModel, name: str, dtype: str, dims: tuple[int, ...], sample: Any) -> bytes:
    """The bytes of an input. Zeros replace random data too, because any answer counts and zero is a valid index
    everywhere."""
    if sample is not None and sample.input_data_file:
        file: Path = model.folder / "warmup" / sample.input_data_file
        return file.read_bytes()
    if dtype != "TYPE_STRING":
        return bytes(tensor_bytes(dtype, dims, 1, 0))
    if sample is None or not sample.zero_data:
        raise NoSample(f"input {name!r} is BYTES, and model_warmup holds no sample of it")
    return struct.pack("<I", 0) * (tensor_bytes(dtype, dims, 1, 0) // 4)
