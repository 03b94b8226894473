"""The regions of one client: taken by calls, and used again unless that is unsafe."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tritonkit.client.log import logger
from tritonkit.client.shm.call_regions import CallRegions
from tritonkit.client.shm.cuda import CudaDevice, CudaMemory
from tritonkit.client.shm.layout import Tensor, lay_out, size_class, sizes_of
from tritonkit.client.shm.owner import Owner
from tritonkit.client.shm.server_regions import OpenRegion, ServerRegions
from tritonkit.client.shm.settings import SharedMemory
from tritonkit.client.shm.system import SystemMemory, sweep
from tritonkit.client.steps import Steps, run_async, run_blocking
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tritonkit.client.shm.server_regions import RegionMemory

__all__ = ["RegionPool"]


class RegionPool:
    """Shared memory for the calls of one client, in one process. Threads and tasks may share it.

    Args:
        settings: sizes, limits and the kind of memory.

    Raises:
        UsageError: this machine has no such memory.
    """

    def __init__(self, settings: SharedMemory | None = None) -> None:
        self._settings = settings or SharedMemory()
        self._make: Callable[[int], RegionMemory] = SystemMemory
        self.gpu: CudaDevice | None = None
        """The GPU whose memory it is, which takes callers' arrays as they lie there."""
        if self._settings.device is None:
            sweep()
        else:
            self.gpu = CudaDevice(self._settings.device)
            self._make = partial(CudaMemory, self.gpu, self._settings.device_outputs)
        self._owner = Owner()
        self._pid = os.getpid()
        self._servers: dict[Any, ServerRegions] = {}
        self._lock = threading.Lock()
        self._reserved = 0
        self._made = self._full = False

    @property
    def size(self) -> int:
        """Bytes of all regions now."""
        return sum(server.size() for server in list(self._servers.values()))

    def for_call(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, int]) -> CallRegions | None:
        """Shared memory for one call; None if the call is too small to benefit.

        Args:
            inputs: datatype and array by name, as conformed to the model.
            outputs: the bytes of outputs to be written there, as `output_sizes` gives them.

        Raises:
            UsageError: the process is a fork, and the regions are its parent's.
        """
        if os.getpid() != self._pid:
            raise UsageError(
                "shared memory",
                found=f"made in process {self._pid} and used in a fork of it, {os.getpid()}",
                todo="make the Client after forking",
            )
        sizes = sizes_of(inputs)
        total = sum(sizes.values()) + sum(outputs.values())
        if total < (1 if self._settings.device_outputs else self._settings.smallest):
            return None
        layout = lay_out(sizes, outputs)
        if size_class(layout.size) > self._settings.limit:
            return None
        return CallRegions(self, inputs, layout)

    def leave(self, transport: Any, timeout_s: float = 1.0) -> Steps[None]:
        """Let a server forget every region, before its transport is closed; never fails.

        Regions that the server still uses after `timeout_s` seconds stay with it until this process has ended
        and another client on the machine comes. Arrays that are views of regions stay valid.
        """
        with self._lock:
            server = self._servers.pop(transport, None)
        if server is not None and os.getpid() == self._pid:
            left = yield from server.leave(timeout_s)
            if left:
                logger.debug("%d shared memory regions left at %s", left, transport.address)

    def close(self) -> None:
        """`leave` every server of blocking transports; before these are closed."""
        for transport in list(self._servers):
            run_blocking(self.leave(transport))

    async def aclose(self) -> None:
        """`leave` every server with asyncio transports, before these are closed."""
        for transport in list(self._servers):
            await run_async(self.leave(transport))

    def take(self, transport: Any, size: int, timeout_s: float) -> Steps[tuple[ServerRegions, OpenRegion] | None]:
        """A region for `size` bytes that the server at the transport has opened; None: send bytes."""
        end = time.monotonic() + timeout_s
        size = size_class(size)
        with self._lock:
            server = self._servers.get(transport)
            if server is None:
                kind = "System" if self._settings.device is None else "Cuda"
                server = self._servers[transport] = ServerRegions(transport, self._owner, kind)
        yield from server.tidy(timeout_s)
        region = server.take(size)
        if region is None and time.monotonic() >= server.refused_until and self._reserve(size):
            try:
                yield from server.adopt_orphans(max(end - time.monotonic(), 0.001))
                memory = self._memory(size)
                if memory is not None:
                    region = yield from server.open(memory, max(end - time.monotonic(), 0.001))
            finally:
                with self._lock:
                    self._reserved -= size
        return None if region is None else (server, region)

    def _reserve(self, size: int) -> bool:
        with self._lock:
            if self.size + self._reserved + size <= self._settings.limit:
                self._reserved += size
                return True
            servers = list(self._servers.values())
        # Other sizes were needed before: their free regions make room for the next calls.
        for server in servers:
            server.retire_free()
        return False

    def _memory(self, size: int) -> RegionMemory | None:
        try:
            memory = self._make(size)
        except UsageError as error:
            # The first region failed, so shared memory cannot work at all, and the caller must know.
            if not self._made:
                raise
            if not self._full:
                logger.warning("tensors are sent in messages: %s", error)
            self._full = True
            return None
        self._made = True
        return memory
