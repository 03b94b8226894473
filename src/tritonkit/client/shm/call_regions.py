"""What one call has of shared memory: a region for each of its attempts, and arrays that look into it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tritonkit.client.shm.layout import ITEM_SIZES, Layout, Tensor
from tritonkit.client.steps import Steps
from tritonkit.errors import InferenceError, InvalidInput, ModelNotFound
from tritonkit.wire.request import Region
from tritonkit.wire.tensors import FIXED, from_raw, to_raw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client.shm.server_regions import Site, Slot

__all__ = ["Borrow", "Found", "Lease", "Placed"]

Found: TypeAlias = tuple[str, tuple[int, ...]]
"""Datatype and shape of an output that came without bytes."""

Borrow: TypeAlias = "Callable[[Any, int, float], Steps[tuple[Site, Slot] | None]]"
"""Gives a region of so many bytes at a transport's server within so many seconds, or None."""


class Placed:
    """The tensors of one attempt, in a region that the server asked knows."""

    def __init__(self, site: Site, slot: Slot, layout: Layout) -> None:
        self.site = site
        self.slot = slot
        self.viewed = False
        self._layout = layout

    @property
    def inputs(self) -> dict[str, Region]:
        """Where the server finds each input; those not named go in the message."""
        return self._regions(self._layout.inputs)

    @property
    def outputs(self) -> dict[str, Region]:
        """Where the server writes each output; those not named come in the message."""
        return self._regions(self._layout.outputs)

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the inputs into the region."""
        memory = self.slot.memory
        for name, (offset, _) in self._layout.inputs.items():
            datatype, array = tensors[name]
            if datatype in FIXED:
                memory.write(offset, array, FIXED[datatype])
            else:
                memory.write_raw(offset, to_raw(array, datatype))

    def read(self, found: Mapping[str, Found]) -> dict[str, NDArray[Any]]:
        """The outputs, as read-only views of the region where numpy can look at the bytes as they are.

        The region is not used again before the last of them, and of their slices, is gone.

        Args:
            found: datatype and shape of each output, as the server answered.

        Raises:
            InferenceError: an output is larger than its place.
        """
        whole = self.slot.memory.whole()
        keeper = weakref.finalize(whole, self.site.give_back, self.slot, True)
        keeper.atexit = False
        self.viewed = True
        return {
            name: self._view(whole, name, datatype, shape)
            for name, (datatype, shape) in found.items()
        }

    def _regions(self, places: Mapping[str, tuple[int, int]]) -> dict[str, Region]:
        name = self.slot.name
        return {tensor: Region(name, size, offset) for tensor, (offset, size) in places.items()}

    def _view(
        self, whole: NDArray[np.uint8], name: str, datatype: str, shape: tuple[int, ...]
    ) -> NDArray[Any]:
        offset, size = self._layout.outputs.get(name, (0, 0))
        length = math.prod(shape) * ITEM_SIZES.get(datatype, size + 1)
        if not length:
            return _empty(datatype, shape)
        if length > size:
            raise InferenceError(
                f"output {name} at {self.site.transport.address}",
                found=f"{datatype} {list(shape)} in shared memory",
                wanted=f"at most the {size} bytes that the model's configuration says",
            )
        raw = whole[offset : offset + length]
        if datatype in FIXED:
            return raw.view(FIXED[datatype]).reshape(shape)
        return from_raw(raw.tobytes(), datatype, shape)


def _empty(datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.empty(shape, object if datatype == "BYTES" else FIXED.get(datatype, np.float32))


class Lease:
    """Shared memory of one call: a region for each attempt, given back by `end`."""

    def __init__(self, slot: Borrow, inputs: Mapping[str, Tensor], layout: Layout) -> None:
        self._slot = slot
        self._inputs = inputs
        self._layout = layout
        self._attempts: list[tuple[str, Placed | None]] = []

    def place(self, transport: Any, timeout_s: float) -> Steps[Placed | None]:
        """Write the inputs where the server at the transport can read them.

        One attempt each: two attempts never share a region, since the server may still write to that
        of the first.

        Returns:
            The places, for the request; None when the tensors must travel in the message.

        Raises:
            ServerUnavailable, DeadlineExceeded, Overloaded: the attempt failed, as `send` would.
            UsageError: no room for the client's first region.
        """
        found = yield from self._slot(transport, self._layout.size, timeout_s)
        placed = None if found is None else Placed(*found, self._layout)
        self._attempts.append((transport.address, placed))
        if placed is not None:
            placed.write(self._inputs)
        return placed

    def read(self, endpoint: str, found: Mapping[str, Found]) -> dict[str, NDArray[Any]]:
        """The outputs that the server at `endpoint` wrote, see `Placed.read`."""
        placed = self._last(endpoint)
        if not found:
            return {}
        if (
            placed is None
        ):  # nothing was to be put anywhere: these have no bytes because they are empty
            return {name: _empty(*told) for name, told in found.items()}
        return placed.read(found)

    def lost(self, error: BaseException) -> bool:
        """Whether the call failed because the server does not know its region, as after a restart.

        The same call may then be made once more, with a new lease: nothing of it was run.
        """
        if not isinstance(error, (InferenceError, ModelNotFound)):
            return False
        for _, placed in self._attempts:
            if placed is not None and placed.slot.name in str(error):
                placed.site.lost(placed.slot)
                return True
        return False

    def end(self, endpoint: str | None = None, error: BaseException | None = None) -> None:
        """Give the regions back; for use again only where the server has said that it is done.

        Args:
            endpoint: the address that answered, if one did.
            error: what the call raised otherwise.
        """
        done = self._last(endpoint) if endpoint is not None else None
        if isinstance(error, (InferenceError, ModelNotFound, InvalidInput)):
            # With more attempts than one, nobody knows whose error this is.
            done = self._attempts[0][1] if len(self._attempts) == 1 else None
        for _, placed in self._attempts:
            if placed is not None and not placed.viewed:
                placed.site.give_back(placed.slot, placed is done)
        self._attempts.clear()

    def _last(self, endpoint: str) -> Placed | None:
        at = [placed for address, placed in self._attempts if address == endpoint]
        return at[-1] if at else None
