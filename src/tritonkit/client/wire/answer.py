"""Answers, read straight from protobuf's bytes: arrays are views of them.

Fields may come in any order and unknown ones are skipped, as in every protobuf reader. A server
answers one model with the same bytes again and again, except for the outputs' values: the bytes
around these are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tritonkit.client.wire.contents import typed_array
from tritonkit.client.wire.parameters import Parameter, read_parameters
from tritonkit.client.wire.protos import parsed
from tritonkit.client.wire.tensors import FIXED, from_raw
from tritonkit.client.wire.varint import Data, fields, read_field
from tritonkit.errors import InferenceError

__all__ = ["Answer", "Placed", "decode", "stream_response"]

T = TypeVar("T")

Placed: TypeAlias = tuple[str, tuple[int, ...], int]
"""An output that lies in shared memory: datatype, shape, and bytes (0 if only its content determines them)."""

_NO_PARAMETERS: Mapping[str, Parameter | None] = MappingProxyType({})


class Answer(NamedTuple):
    """A server's answer: outputs by name, in its order, as read-only arrays.

    `in_region` holds the outputs that the server put into shared memory instead.
    """

    model: str
    version: str
    id: str
    parameters: Mapping[str, Parameter | None]
    outputs: dict[str, NDArray[Any]]
    in_region: dict[str, Placed]


_COPIED = 64 * 1024
"""Bytes up to which an answer is copied into a bytes object: cheaper to read than a view."""

_SHORT = 256
"""Bytes up to which the description of an output, or parameters, are cached."""

_FIELDS = range(16 * 1024)
_OUTPUT_FIELDS = 1024
"""Fields of an answer, and of an output's description: each becomes an object, and a server that sends
small ones without end would fill the memory."""

_MOST_AXES = 64
"""Numpy's limit."""

# Tags (field number, wire type) of ModelInferResponse, InferOutputTensor, ModelStreamInferResponse.
_MODEL, _VERSION, _ID, _PARAMETERS, _OUTPUTS, _RAW = 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32
_PACKED_SHAPE = 0x1A
_ERROR, _RESPONSE = 0x0A, 0x12


def decode(body: bytes | memoryview, in_regions: Container[str] = ()) -> Answer:
    """Read a `ModelInferResponse`.

    Args:
        body: the message. Arrays of a large one are views of it, which keep it in memory.
        in_regions: names of outputs that were to be put into shared memory: Triton does not say
            in its answer where it put an output.

    Raises:
        InferenceError: the bytes are no such message, or contradict themselves: a tensor whose bytes
            do not fill its shape, an unknown datatype, an output without bytes.
    """
    try:
        data = _readable(body)
        form = _forms.get(len(data))
        if form is not None and not in_regions and form.fits(data):
            return form.answer(data)
        return _answer(data, in_regions)
    except (ValueError, IndexError, OverflowError) as error:
        raise _unreadable(error) from error


def stream_response(body: bytes | memoryview, in_regions: Container[str] = ()) -> tuple[str, Answer | None]:
    """Read a `ModelStreamInferResponse`: the server's error (empty if none), and the answer.

    The parameter `triton_final_response` of the answer says whether it is the last to its request;
    an answer that says only that has no outputs. With an error the answer holds the request's id, if
    the server gave it.

    Raises:
        InferenceError: the same errors as `decode`.
    """
    try:
        data = _readable(body)
        error, answer = "", None
        for tag, start, end in fields(data):
            if tag == _ERROR:
                error = _text(data[start:end])
            elif tag == _RESPONSE:
                answer = _answer(data[start:end], in_regions)
    except (ValueError, IndexError, OverflowError) as problem:
        raise _unreadable(problem) from problem
    return error, answer


def _readable(body: bytes | memoryview) -> Data:
    return bytes(body) if len(body) <= _COPIED else memoryview(body).toreadonly()


def _unreadable(error: Exception) -> InferenceError:
    return InferenceError(
        "the server's answer",
        found="an answer that cannot be read",
        wanted="bytes for every output, filling its shape",
        details=str(error),
    )


class _Output(NamedTuple):
    """The description of one output; `size` is its number of bytes, -1 if only their content determines it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    size: int
    region_size: int | None
    contents: Any
    is_typed: bool


def _answer(data: Data, in_regions: Container[str]) -> Answer:
    model = version = request_id = ""
    pieces: list[Data] = []
    described: list[_Output] = []
    raw: list[tuple[int, int]] = []
    at, end = 0, len(data)
    for _ in _FIELDS:
        if at >= end:
            break
        begin, tag = at, data[at]
        # The short way: a field with a one-byte tag, and a length of one byte.
        if tag & 0x87 == 2 and (size := data[at + 1]) < 128:
            start = at + 2
            at = start + size
        else:
            tag, start, at = read_field(data, at)
        if at > end:
            raise ValueError("a field runs past the end")
        if tag == _RAW:
            raw.append((start, at))
        elif tag == _OUTPUTS:
            described.append(_described(bytes(data[start:at])))
        elif tag == _MODEL:
            model = _text(data[start:at])
        elif tag == _VERSION:
            version = _text(data[start:at])
        elif tag == _PARAMETERS:
            pieces.append(data[begin:at])
        elif tag == _ID:
            request_id = _text(data[start:at])
    if at < end:
        raise ValueError(f"more than {len(_FIELDS)} fields")
    parameters = _parameters(b"".join(pieces)) if pieces else _NO_PARAMETERS
    outputs, in_region = _outputs(data, described, raw, in_regions)
    if not parameters and not in_regions:
        _cache_form(data, Answer(model, version, request_id, _NO_PARAMETERS, {}, {}), described, raw)
    return Answer(model, version, request_id, parameters, outputs, in_region)


def _cached(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """A reader that remembers what it read of short bytes: answers carry the same few again and again."""
    cached = lru_cache(1024)(read)
    return lambda entry: cached(entry) if len(entry) <= _SHORT else read(entry)


@_cached
def _parameters(entries: bytes) -> Mapping[str, Parameter | None]:
    return MappingProxyType(read_parameters(parsed("ModelInferResponse", entries)))


class _Form(NamedTuple):
    """The common part of answers of one length: `fixed` are places and their bytes."""

    fixed: Sequence[tuple[int, int, bytes]]
    bare: Answer
    outputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any], int, int]]

    def fits(self, data: Data) -> bool:
        """Whether this answer differs in nothing but the values of its outputs."""
        for start, end, there in self.fixed:  # noqa: SIM110 - `all` costs as much as the rest
            if data[start:end] != there:
                return False
        return True

    def answer(self, data: Data) -> Answer:
        """The answer of this form with these values."""
        model, version, request_id, parameters, _, _ = self.bare
        outputs: dict[str, NDArray[Any]] = {}
        for name, shape, dtype, start, end in self.outputs:
            outputs[name] = np.ndarray(shape, dtype, data[start:end])
        return Answer(model, version, request_id, parameters, outputs, {})


_forms: dict[int, _Form] = {}
"""The last form seen of each length in bytes."""

_MOST_FORMS = 1024
_LONGEST_FORM = 4096
"""Bytes around the values of an answer whose form is cached."""


def _cache_form(data: Data, bare: Answer, described: Sequence[_Output], raw: Sequence[tuple[int, int]]) -> None:
    """Remember an answer whose description determines the sizes of all values."""
    if type(data) is not bytes or len(raw) != len(described):
        return
    if any(output.dtype is None or output.region_size is not None for output in described):
        return
    outputs = [
        (output.name, output.shape, output.dtype, start, end)
        for output, (start, end) in zip(described, raw, strict=True)
        if output.dtype is not None
    ]
    starts = [0, *(end for _, end in raw)]
    ends = [*(start for start, _ in raw), len(data)]
    fixed = [(at, end, data[at:end]) for at, end in zip(starts, ends, strict=True)]
    if sum(len(text) for _, _, text in fixed) > _LONGEST_FORM:
        return
    if len(_forms) >= _MOST_FORMS:
        _forms.clear()
    _forms[len(data)] = _Form(fixed, bare, outputs)


def _outputs(
    data: Data, described: Sequence[_Output], raw: Sequence[tuple[int, int]], in_regions: Container[str]
) -> tuple[dict[str, NDArray[Any]], dict[str, Placed]]:
    outputs: dict[str, NDArray[Any]] = {}
    in_region: dict[str, Placed] = {}
    places: Iterable[tuple[int, int] | None] = raw
    if len(raw) != len(described):
        places = _matched(described, raw, in_regions)
    for output, place in zip(described, places, strict=True):
        name = output.name
        elsewhere = output.is_typed or output.region_size is not None
        if elsewhere and place is not None and place[0] < place[1]:
            raise ValueError(f"bytes of output {name}, which came in another way too")
        if output.region_size is not None or (name in in_regions and _is_elsewhere(output, place)):
            in_region[name] = (output.datatype, output.shape, _placed_size(output))
        else:
            outputs[name] = _array(data, output, place)
    return outputs, in_region


def _is_elsewhere(output: _Output, place: tuple[int, int] | None) -> bool:
    """Whether there are elements and no bytes for them."""
    return (place is None or place[0] == place[1]) and 0 not in output.shape


def _matched(
    described: Sequence[_Output], raw: Sequence[tuple[int, int]], in_regions: Container[str]
) -> Iterator[tuple[int, int] | None]:
    """The bytes of each output, if not every output has any."""
    left = iter(raw)
    for output in described:
        elsewhere = output.region_size is not None or output.name in in_regions
        yield None if elsewhere or output.is_typed or not raw else next(left, (0, 0))
    if next(left, None) is not None:
        raise ValueError("bytes without an output")


def _array(data: Data, output: _Output, place: tuple[int, int] | None) -> NDArray[Any]:
    if place is None:
        return typed_array(output.contents, output.datatype, output.shape)
    start, end = place
    if output.size not in (-1, end - start):
        raise ValueError(f"{end - start} bytes of output {output.name}, {output.size} fill its shape")
    # A slice of bytes is a small copy, aligned for numpy; a slice of a view is none.
    if output.dtype is not None:
        return np.ndarray(output.shape, output.dtype, data[start:end])
    return from_raw(data[start:end], output.datatype, output.shape)


@_cached
def _described(entry: bytes) -> _Output:
    for count, (tag, start, end) in enumerate(fields(entry)):
        if count > _OUTPUT_FIELDS or (tag == _PACKED_SHAPE and end - start > _MOST_AXES * 10):
            raise ValueError("an output with too many fields or axes")
    output = parsed("ModelInferResponse.InferOutputTensor", entry)
    shape = tuple(output.shape)
    if len(shape) > _MOST_AXES or any(size < 0 for size in shape):
        raise ValueError(f"a shape that no array has: {shape[:_MOST_AXES]}")
    dtype = FIXED.get(output.datatype)
    return _Output(
        name=output.name,
        datatype=output.datatype,
        shape=shape,
        dtype=dtype,
        size=-1 if dtype is None else prod(shape) * dtype.itemsize,
        region_size=_region_size(read_parameters(output)),
        contents=output.contents,
        is_typed=bool(output.contents.ListFields()),
    )


def _region_size(parameters: Mapping[str, Parameter | None]) -> int | None:
    if "shared_memory_region" not in parameters:
        return None
    size = parameters.get("shared_memory_byte_size")
    return size if type(size) is int and size >= 0 else 0


def _placed_size(output: _Output) -> int:
    return output.region_size or max(output.size, 0)


def _text(data: Data) -> str:
    return str(data, "utf-8")
