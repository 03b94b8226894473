"""What a pool needs of memory that can be shared, whatever kind it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from tritonkit.client.shm.settings import SharedMemory
    from tritonkit.wire.transport import Method

__all__ = ["RegionMemory", "memory_maker"]


class RegionMemory(Protocol):
    """One region of `size` bytes."""

    register: Method
    unregister: Method
    size: int

    def request(self, name: str) -> bytes:
        """The message that lets a server open it under `name`."""

    def hide(self) -> None:
        """Take its name away: no other process can open it."""

    def write(self, offset: int, array: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Copy an array into it, as row-major values of `dtype`."""

    def write_raw(self, offset: int, raw: bytes) -> None:
        """Copy bytes into it."""

    def whole(self) -> NDArray[np.uint8]:
        """All of it as a new read-only array."""

    def free(self) -> None:
        """No server has it open; arrays that look into it stay valid."""


def memory_maker(settings: SharedMemory) -> Callable[[int], RegionMemory]:
    """What makes a region of so many bytes.

    Raises:
        UsageError: memory of a GPU is wanted, and there is no GPU or no package for it.
    """
    if settings.device is None:
        from tritonkit.client.shm.system import SystemMemory, sweep

        sweep()
        return SystemMemory
    from tritonkit.client.shm.cuda import cuda_maker

    return cuda_maker(settings.device)
