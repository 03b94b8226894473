"""Inference requests, written straight into protobuf's bytes.

What never changes between calls of one model is written once, what depends on the shape of an input
is kept by shape; a call adds its parameters and its tensors. Triton's `ModelInferRequest` names its
fields by number, so their order is free: each tensor's bytes follow its own description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tritonkit.errors import InvalidInput
from tritonkit.wire.parameters import INT64, UINT64, entry, parameter
from tritonkit.wire.tensors import FIXED, wire_array
from tritonkit.wire.varint import SIZED, number, sized, text, varint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tritonkit.wire.parameters import Parameter
    from tritonkit.wire.signature import ModelSignature, TensorSpec

__all__ = ["Prepared", "Region"]

_LARGE = 16 * 1024
"""Bytes from which a tensor is a piece of its own: copying less is cheaper than one more piece."""

_KEPT_SHAPES = 256

_NONE: Mapping[str, Any] = {}

# Fields of ModelInferRequest, of its inputs and its outputs.
_MODEL, _VERSION, _ID, _PARAMETERS, _INPUTS, _OUTPUTS, _RAW = range(1, 8)
_NAME, _DATATYPE, _SHAPE, _TENSOR_PARAMETERS = 1, 2, 3, 4
_OUTPUT_PARAMETERS = 2

_RAW_TAG = varint(_RAW << 3 | SIZED)


class Region(NamedTuple):
    """A place in shared memory that the server knows by name; sizes in bytes."""

    name: str
    byte_size: int
    offset: int = 0


class Prepared:
    """The requests of one model, version and choice of outputs. Threads may share it.

    Args:
        signature: what the model takes.
        version: the version to ask for, empty for the server's choice.
        outputs: names of the outputs to ask for, None for all.
    """

    def __init__(
        self, signature: ModelSignature, version: str, outputs: tuple[str, ...] | None
    ) -> None:
        self._where = f"model {signature.name}"
        self._start = text(_MODEL, signature.name) + text(_VERSION, version)
        self._outputs = tuple(signature.outputs) if outputs is None else outputs
        self._head = self._start + (b"" if outputs is None else self._asked(_NONE))
        self._inputs = {name: _Input(spec) for name, spec in signature.inputs.items()}

    def encode(
        self,
        arrays: Mapping[str, NDArray[Any]],
        *,
        timeout_s: float | None = None,
        priority: int = 0,
        request_id: str = "",
        parameters: Mapping[str, Parameter] = _NONE,
        regions: Mapping[str, Region] = _NONE,
        output_regions: Mapping[str, Region] = _NONE,
    ) -> list[bytes | memoryview]:
        """Write one request.

        Args:
            arrays: every input, already checked against the signature; any byte order and strides.
            timeout_s: sent as Triton's `timeout` parameter, in microseconds, so that a scheduler may
                drop the request when nobody waits for it any more.
            priority: sent as Triton's parameter of that name; 0 is the model's default.
            request_id: comes back in the answer.
            parameters: others by name, such as `sequence_id`.
            regions: where the inputs lie that are in shared memory; their arrays give only the shape.
            output_regions: where outputs shall be put; the others come as bytes.

        Returns:
            Pieces of one message. Large tensors are views: do not change the arrays before the
            request was sent.

        Raises:
            InvalidInput: a parameter no field can hold, or an array of another type than the model's.
        """
        try:
            head = self._start + self._asked(output_regions) if output_regions else self._head
            if timeout_s is not None:
                head += _timeout(timeout_s)
            if priority or request_id or parameters:
                head += _options(priority, request_id, parameters)
            if regions:
                head += b"".join(
                    self._inputs[name].placed(arrays[name].shape, region)
                    for name, region in regions.items()
                )
                arrays = {name: arrays[name] for name in arrays if name not in regions}
            return self._with_tensors(head, arrays)
        except (ValueError, OverflowError) as error:
            raise InvalidInput(self._where, found=str(error)) from error

    def _with_tensors(
        self, head: bytes, arrays: Mapping[str, NDArray[Any]]
    ) -> list[bytes | memoryview]:
        pieces: list[bytes | memoryview] = []
        run: list[Any] = [head]
        for name, array in arrays.items():
            tensor = self._inputs[name]
            shape = array.shape
            if array.dtype is not tensor.dtype or not array.flags.c_contiguous:
                array = wire_array(array, tensor.datatype)
            size = array.nbytes
            run.append(tensor.heads.get(shape) or tensor.head(shape, size))
            if size < _LARGE:
                run.append(array)
            else:
                pieces += (b"".join(run), array.reshape(-1).view(np.uint8).data)
                run = []
        if run:
            pieces.append(b"".join(run))
        return pieces

    def _asked(self, regions: Mapping[str, Region]) -> bytes:
        return b"".join(
            sized(
                _OUTPUTS,
                text(_NAME, name)
                + (_location(_OUTPUT_PARAMETERS, regions[name]) if name in regions else b""),
            )
            for name in self._outputs
        )


class _Input:
    """One input of a model: what stands before its bytes, by shape."""

    __slots__ = ("_start", "datatype", "dtype", "heads")

    def __init__(self, spec: TensorSpec) -> None:
        self.datatype = spec.datatype
        self.dtype = FIXED.get(spec.datatype)
        self.heads: dict[tuple[int, ...], bytes] = {}
        self._start = text(_NAME, spec.name) + text(_DATATYPE, spec.datatype)

    def head(self, shape: tuple[int, ...], size: int) -> bytes:
        """The description of an input, and the tag and length of its bytes; kept if `shape` says all."""
        head = self._described(shape) + _RAW_TAG + varint(size)
        if self.datatype != "BYTES":
            if len(self.heads) >= _KEPT_SHAPES:
                self.heads.clear()
            self.heads[shape] = head
        return head

    def placed(self, shape: tuple[int, ...], region: Region) -> bytes:
        """The description of an input that lies in shared memory."""
        return self._described(shape, _location(_TENSOR_PARAMETERS, region))

    def _described(self, shape: Sequence[int], more: bytes = b"") -> bytes:
        sizes = b"".join(map(varint, shape))
        return sized(_INPUTS, self._start + (sized(_SHAPE, sizes) if sizes else b"") + more)


def _timeout(timeout_s: float) -> bytes:
    value = varint(max(1, int(timeout_s * 1e6)))
    return _TIMEOUTS[len(value)] + value


def _options(priority: int, request_id: str, parameters: Mapping[str, Parameter]) -> bytes:
    written = text(_ID, request_id)
    if priority:
        if not 0 < priority < 1 << 64:
            raise ValueError(f"priority {priority}: a whole number of 64 bits is wanted")
        written += entry(_PARAMETERS, "priority", number(UINT64, priority))
    return written + b"".join(parameter(_PARAMETERS, *item) for item in parameters.items())


def _location(field: int, region: Region) -> bytes:
    return (
        parameter(field, "shared_memory_region", region.name)
        + parameter(field, "shared_memory_byte_size", region.byte_size)
        + (parameter(field, "shared_memory_offset", region.offset) if region.offset else b"")
    )


# What stands before the number in a `timeout` parameter, by the bytes the number takes.
_TIMEOUTS = [b""] + [
    entry(_PARAMETERS, "timeout", number(INT64, 0)[:-1] + bytes(size))[:-size]
    for size in range(1, 11)
]
