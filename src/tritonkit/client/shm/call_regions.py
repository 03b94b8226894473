"""The shared memory of one call: a region for each of its attempts, and arrays that are views of it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tritonkit.client.dlpack import DeviceArray
from tritonkit.client.shm.cuda import CudaMemory
from tritonkit.client.shm.layout import ITEM_SIZES, Layout, Tensor
from tritonkit.client.wire.request import Region
from tritonkit.client.wire.tensors import FIXED, from_raw, to_raw
from tritonkit.errors import InferenceError, InvalidInput, ModelNotFound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client.shm.pool import RegionPool
    from tritonkit.client.shm.server_regions import OpenRegion, ServerRegions
    from tritonkit.client.steps import Steps

__all__ = ["CallRegions", "Described", "Placement"]

Described: TypeAlias = tuple[str, tuple[int, ...]]
"""Datatype and shape of an output that came without bytes."""

_BYTE = np.dtype(np.uint8)


class Placement:
    """The tensors of one attempt, in a region that its server has opened."""

    def __init__(self, server: ServerRegions, region: OpenRegion, layout: Layout) -> None:
        self.server = server
        self.region = region
        self.viewed = False
        """Whether arrays are views of the region: the last of them gives it back."""
        self.inputs = _locations(region, layout.inputs)
        """The place of each input in shared memory; all others go in the message."""
        self.outputs = _locations(region, layout.outputs)
        """The place for each output in shared memory; all others come in the message."""

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the inputs into the region."""
        memory = self.region.memory
        if isinstance(memory, CudaMemory):
            memory.settle()
        for name, location in self.inputs.items():
            datatype, array = tensors[name]
            dtype = FIXED.get(datatype, _BYTE)
            if datatype not in FIXED and not isinstance(array, DeviceArray):
                array = np.frombuffer(to_raw(array, datatype), _BYTE)
            memory.write(location.offset, array, dtype)

    def read(self, described: Mapping[str, Described]) -> dict[str, Any]:
        """The outputs, see `CallRegions.read`."""
        whole: Any = self.region.memory.whole()
        returning = weakref.finalize(whole, self.server.give_back, self.region, True)
        returning.atexit = False
        self.viewed = True
        return {name: self._view(whole, name, *output) for name, output in described.items()}

    def _view(self, whole: Any, name: str, datatype: str, shape: tuple[int, ...]) -> Any:
        _, size, offset = self.outputs.get(name, ("", 0, 0))
        length = math.prod(shape) * ITEM_SIZES.get(datatype, size + 1)
        if not length:
            return _empty(datatype, shape)
        if length > size:
            raise InferenceError(
                f"output {name} at {self.server.transport.address}",
                found=f"{datatype} {list(shape)} in shared memory",
                wanted=f"at most the {size} bytes that the model's configuration declares",
            )
        if isinstance(self.region.memory, CudaMemory):
            return self.region.memory.output(whole, offset, datatype, shape)
        raw = whole[offset : offset + length]
        if datatype in FIXED:
            return raw.view(FIXED[datatype]).reshape(shape)
        return from_raw(raw.tobytes(), datatype, shape)


class CallRegions:
    """Shared memory of one call: a region for each attempt, given back by `end`.

    Two attempts never share a region: the server may still write to that of the first.
    """

    def __init__(self, pool: RegionPool, inputs: Mapping[str, Tensor], layout: Layout) -> None:
        self._pool = pool
        self._inputs = inputs
        self._layout = layout
        self._attempts: list[tuple[str, Placement | None]] = []

    def place(self, transport: Any, timeout_s: float) -> Steps[Placement | None]:
        """Write the inputs into memory that the transport's server can read, for one attempt.

        Returns:
            The places, for the request; None when the tensors must travel in the message.

        Raises:
            ServerUnavailable, DeadlineExceeded, Overloaded: the attempt failed, as `send` would.
            UsageError: no room for the client's first region.
        """
        taken = yield from self._pool.take(transport, self._layout.size, timeout_s)
        placement = None if taken is None else Placement(*taken, self._layout)
        self._attempts.append((transport.address, placement))
        if placement is not None:
            placement.write(self._inputs)
        return placement

    def read(self, endpoint: str, described: Mapping[str, Described]) -> dict[str, NDArray[Any]]:
        """The outputs that the server at `endpoint` wrote, as it described them.

        They are read-only views of the region where numpy can look at the bytes as they are, copies of a GPU's, or
        lent as `DeviceArray`. The region is not
        used again before the last view, and the last slice of a view, is gone.

        Raises:
            InferenceError: an output is larger than its place.
        """
        placement = self._last(endpoint)
        if described and placement is not None:
            return placement.read(described)
        # They have no bytes because they are empty.
        return {name: _empty(*output) for name, output in described.items()}

    def end(self, endpoint: str | None = None, error: BaseException | None = None) -> bool:
        """Give the regions back; they are used again only if the server has finished with them.

        Args:
            endpoint: the address that answered, if one did.
            error: the error that the call raised, if it failed.

        Returns:
            Whether the call failed because the server does not know its region, as after a restart. Nothing of
            it has run, so it may be made again with new regions.
        """
        placements = [placement for _, placement in self._attempts if placement is not None]
        done, lost = self._last(endpoint), False
        if isinstance(error, (InferenceError, ModelNotFound, InvalidInput)):
            # With several attempts it is unknown to which of them this error belongs.
            done = self._attempts[0][1] if len(self._attempts) == 1 else None
        for placement in placements:
            region = placement.region
            if isinstance(error, (InferenceError, ModelNotFound)) and region.name in str(error):
                placement.server.lost(region)
                lost = True
            if not placement.viewed:
                placement.server.give_back(region, placement is done)
        self._attempts.clear()
        return lost

    def _last(self, endpoint: str | None) -> Placement | None:
        at = [placement for address, placement in self._attempts if address == endpoint]
        return at[-1] if at else None


def _locations(region: OpenRegion, places: Mapping[str, tuple[int, int]]) -> dict[str, Region]:
    return {tensor: Region(region.name, size, at) for tensor, (at, size) in places.items()}


def _empty(datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.empty(shape, object if datatype == "BYTES" else FIXED.get(datatype, np.float32))
