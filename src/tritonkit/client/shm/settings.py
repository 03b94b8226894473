"""Settings of shared memory for tensors."""

from __future__ import annotations

from dataclasses import dataclass

from tritonkit.client.checks import check_setting

__all__ = ["SharedMemory"]


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Pass tensors in memory that client and server share, instead of in the message.

    Args:
        smallest: bytes; a call whose inputs and outputs are smaller together is sent as usual, which is
            as fast for it.
        limit: most bytes of all regions of a client together; other tensors are sent as usual.
        device: the number of the GPU whose memory is shared, None for the machine's own.
        device_outputs: give outputs that lie in the GPU's memory as `DeviceArray`, for `torch.from_dlpack` and the
            like, in place of numpy arrays; calls of any size then go through the GPU's memory.

    Raises:
        UsageError: a value is out of range.
    """

    smallest: int = 512 * 1024
    limit: int = 1024**3
    device: int | None = None
    device_outputs: bool = False

    def __post_init__(self) -> None:
        check_setting(self, "smallest", self.smallest >= 1, "at least 1 byte")
        least = f"at least smallest={self.smallest} bytes"
        check_setting(self, "limit", self.limit >= self.smallest, least)
        fine = self.device is None or self.device >= 0
        check_setting(self, "device", fine, "a GPU's number, or None")
        fine = not self.device_outputs or self.device is not None
        check_setting(self, "device_outputs", fine, "False without a GPU's number as device")
