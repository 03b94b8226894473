"""The regions of one client: taken by calls, used again, given up when that is not safe."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from tritonkit.client.log import logger
from tritonkit.client.shm.call_regions import CallRegions
from tritonkit.client.shm.layout import Tensor, lay_out, size_class, sizes_of
from tritonkit.client.shm.memory import RegionMemory, memory_maker
from tritonkit.client.shm.owner import Owner
from tritonkit.client.shm.server_regions import OpenRegion, ServerRegions
from tritonkit.client.shm.settings import SharedMemory
from tritonkit.client.steps import Steps, run_async, run_blocking
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["RegionPool"]


class RegionPool:
    """Shared memory for the calls of one client, in one process. Threads and tasks may share it.

    Args:
        settings: from which size on, up to how much, and whose memory.

    Raises:
        UsageError: this machine has no such memory.
    """

    def __init__(self, settings: SharedMemory | None = None) -> None:
        self._settings = settings or SharedMemory()
        self._make: Callable[[int], RegionMemory] = memory_maker(self._settings)
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

    def for_call(
        self, inputs: Mapping[str, Tensor], outputs: Mapping[str, int]
    ) -> CallRegions | None:
        """Shared memory for one call; None when the call is too small to gain by it.

        Args:
            inputs: datatype and array by name, as conformed to the model.
            outputs: the bytes of outputs to be written there, as `output_sizes` gives them.

        Raises:
            UsageError: in a forked process, whose regions are its parent's.
        """
        if os.getpid() != self._pid:
            raise UsageError(
                "shared memory",
                found=f"made in process {self._pid} and used in a fork of it, {os.getpid()}",
                todo="make the Client after forking",
            )
        sizes = sizes_of(inputs)
        if sum(sizes.values()) + sum(outputs.values()) < self._settings.smallest:
            return None
        layout = lay_out(sizes, outputs)
        if size_class(layout.size) > self._settings.limit:
            return None
        return CallRegions(self._take, inputs, layout)

    def leave(self, transport: Any, timeout_s: float = 1.0) -> Steps[None]:
        """Let a server forget every region, before its transport is closed; never fails.

        What the server still uses after `timeout_s` seconds stays with it until this process has ended
        and another client on the machine comes. Arrays that look into regions stay valid.
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
        """`leave` every server of asyncio transports; before these are closed."""
        for transport in list(self._servers):
            await run_async(self.leave(transport))

    def _take(
        self, transport: Any, size: int, timeout_s: float
    ) -> Steps[tuple[ServerRegions, OpenRegion] | None]:
        """A region for `size` bytes that the server at the transport has opened; None: send bytes."""
        with self._lock:
            server = self._servers.get(transport)
            if server is None:
                server = self._servers[transport] = ServerRegions(transport, self._owner)
        end = time.monotonic() + timeout_s
        yield from server.tidy(timeout_s)
        region = server.take(size_class(size))
        if region is None and time.monotonic() >= server.refused_until:
            region = yield from self._new_region(server, size_class(size), end)
        return None if region is None else (server, region)

    def _new_region(self, server: ServerRegions, size: int, end: float) -> Steps[OpenRegion | None]:
        if not self._reserve(size):
            return None
        try:
            memory = self._memory(size)
            if memory is None:
                return None
            yield from server.adopt_orphans(memory, max(end - time.monotonic(), 0.001))
            return (yield from server.open(memory, max(end - time.monotonic(), 0.001)))
        finally:
            with self._lock:
                self._reserved -= size

    def _reserve(self, size: int) -> bool:
        with self._lock:
            servers = list(self._servers.values())
            taken = sum(server.size() for server in servers)
            if taken + self._reserved + size <= self._settings.limit:
                self._reserved += size
                return True
        # Other sizes were in demand before: what is free makes room for the calls to come.
        for server in servers:
            server.retire_free()
        return False

    def _memory(self, size: int) -> RegionMemory | None:
        try:
            memory = self._make(size)
        except UsageError as error:
            # The very first: it cannot work at all, and the caller wants to know.
            if not self._made:
                raise
            if not self._full:
                logger.warning("tensors are sent in messages: %s", error)
            self._full = True
            return None
        self._made = True
        return memory
