"""Whether and how tensors travel in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from tritonkit.errors import UsageError

__all__ = ["SharedMemory"]


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Tensors in memory that client and server both see, instead of in the message.

    Args:
        smallest: bytes; a call with less to hand over, inputs and outputs together, is sent as usual:
            below it that is as quick.
        limit: bytes that all regions of a client may hold together; what does not fit is sent as
            usual.
        device: the number of the GPU whose memory is shared, None for the machine's own.

    Raises:
        UsageError: a value out of range.
    """

    smallest: int = 512 * 1024
    limit: int = 1024**3
    device: int | None = None

    def __post_init__(self) -> None:
        if self.smallest < 1:
            raise UsageError(
                "SharedMemory", found=f"smallest={self.smallest}", wanted="at least 1 byte"
            )
        if self.limit < self.smallest:
            raise UsageError(
                "SharedMemory",
                found=f"limit={self.limit}",
                wanted=f"at least smallest={self.smallest} bytes",
            )
        if self.device is not None and self.device < 0:
            raise UsageError(
                "SharedMemory", found=f"device={self.device}", wanted="a GPU's number, or None"
            )
