"""Inference requests: protobuf writes the description of a call, and the tensors' bytes are added to it.

The part that all calls of one model share is written once, and descriptions of inputs are cached by shape; a call
adds its parameters and its tensors. A protobuf message may be a sequence of parts, so each tensor's bytes follow its
own description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tritonkit.client.wire.parameters import set_parameters
from tritonkit.client.wire.protos import schema
from tritonkit.client.wire.tensors import FIXED, wire_array
from tritonkit.client.wire.varint import varint
from tritonkit.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tritonkit.client.wire.parameters import Parameter
    from tritonkit.client.wire.signature import ModelSignature, TensorSpec

__all__ = ["Prepared", "Region"]

_LARGE = 16 * 1024
"""Bytes from which a tensor is a separate piece: copying less is cheaper than one more piece."""

_MOST_SHAPES = 256

_NONE: Mapping[str, Any] = {}

_RAW_TAG = b"\x3a"
"""The tag before the length of a tensor's bytes: `raw_input_contents`, field 7."""


class Region(NamedTuple):
    """A place in shared memory that the server knows by name; sizes in bytes."""

    name: str
    byte_size: int
    offset: int = 0


class Prepared:
    """The requests of one model, version and choice of outputs. Threads may share it.

    Args:
        signature: the model's inputs and outputs.
        version: the version to request, empty for the server's choice.
        outputs: names of the outputs to request, None for all.
        classes: the number of best classes to give in place of an output's values, by its name.
    """

    def __init__(
        self,
        signature: ModelSignature,
        version: str,
        outputs: tuple[str, ...] | None,
        classes: Mapping[str, int] = _NONE,
    ) -> None:
        self._where = f"model {signature.name}"
        self._message = schema().ModelInferRequest
        self._start = _written(self._message(model_name=signature.name, model_version=version))
        self._outputs = tuple(signature.outputs) if outputs is None else outputs
        self._classes = classes
        named = outputs is not None or bool(classes)
        self._head = self._start + (self._asked(_NONE) if named else b"")
        self._inputs = {name: _Input(spec, self._message) for name, spec in signature.inputs.items()}

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
                drop the request when its caller no longer waits.
            priority: sent as Triton's parameter of that name; 0 is the model's default.
            request_id: comes back in the answer.
            parameters: others by name, such as `sequence_id`.
            regions: places of the inputs in shared memory; their arrays give only the shape.
            output_regions: places for outputs; the others come as bytes.

        Returns:
            Pieces of one message. Large tensors are views: do not change the arrays before the
            request was sent.

        Raises:
            InvalidInput: a parameter no field can hold, or an array of another type than the model's.
        """
        try:
            head = self._start + self._asked(output_regions) if output_regions else self._head
            if timeout_s is not None or priority or request_id or parameters:
                head += self._options(timeout_s, priority, request_id, parameters)
            if regions:
                head += b"".join(
                    self._inputs[name].placed(arrays[name].shape, region) for name, region in regions.items()
                )
                arrays = {name: arrays[name] for name in arrays if name not in regions}
            return self._with_tensors(head, arrays)
        except (ValueError, OverflowError) as error:
            raise InvalidInput(self._where, found=str(error)) from error

    def _with_tensors(self, head: bytes, arrays: Mapping[str, NDArray[Any]]) -> list[bytes | memoryview]:
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
        request = self._message()
        for name in self._outputs:
            output = request.outputs.add(name=name)
            if name in self._classes:
                set_parameters(output, {"classification": self._classes[name]})
            if name in regions:
                set_parameters(output, _location(regions[name]))
        return _written(request)

    def _options(
        self, timeout_s: float | None, priority: int, request_id: str, parameters: Mapping[str, Parameter]
    ) -> bytes:
        request = self._message()
        if timeout_s is not None:
            request.parameters["timeout"].int64_param = max(1, int(timeout_s * 1e6))
        if request_id:
            request.id = request_id
        if priority:
            if not 0 < priority < 1 << 64:
                raise ValueError(f"priority {priority}: a whole number of 64 bits is wanted")
            request.parameters["priority"].uint64_param = priority
        if parameters:
            set_parameters(request, parameters)
            # A map has no order of its own, and a cache's key must be the same in every process.
            written: bytes = request.SerializeToString(deterministic=True)
            return written
        return _written(request)


class _Input:
    """One input of a model, with the message part before its bytes, by shape."""

    __slots__ = ("_message", "_name", "datatype", "dtype", "heads")

    def __init__(self, spec: TensorSpec, message: Any) -> None:
        self._name, self._message = spec.name, message
        self.datatype = spec.datatype
        self.dtype = FIXED.get(spec.datatype)
        self.heads: dict[tuple[int, ...], bytes] = {}

    def head(self, shape: tuple[int, ...], size: int) -> bytes:
        """The description of an input, and the tag and length of its bytes; cached if `shape` says all."""
        head = self.placed(shape, None) + _RAW_TAG + varint(size)
        if self.datatype != "BYTES":
            if len(self.heads) >= _MOST_SHAPES:
                self.heads.clear()
            self.heads[shape] = head
        return head

    def placed(self, shape: Sequence[int], region: Region | None) -> bytes:
        """The description of an input, which may lie in shared memory."""
        request = self._message()
        tensor = request.inputs.add(name=self._name, datatype=self.datatype, shape=shape)
        if region is not None:
            set_parameters(tensor, _location(region))
        return _written(request)


def _location(region: Region) -> dict[str, Parameter]:
    location: dict[str, Parameter] = {"shared_memory_region": region.name, "shared_memory_byte_size": region.byte_size}
    return location | ({"shared_memory_offset": region.offset} if region.offset else {})


def _written(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return written
