"""The regions that one server has opened: which are free, and which it should forget.

Facts of Triton 2.51 that shape this, all tried:

- A region in use cannot be unregistered, and a call that was given up goes on using it: its output
  still arrives there. So a region whose call got no answer is never used again.
- A second registration of a key that is still open, under another name, maps a file descriptor that
  the server has closed. So every region has another key and another name, used once.
- A restarted server knows nothing, and says so at the next call by naming the region.
- Unregistering what is unknown succeeds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritonkit.client.log import logger
from tritonkit.client.shm.owner import Owner, is_orphan
from tritonkit.client.steps import Send, Sleep, Steps
from tritonkit.errors import ClientError, InferenceError, Overloaded
from tritonkit.wire.messages import message, parse

if TYPE_CHECKING:
    from tritonkit.client.shm.memory import RegionMemory
    from tritonkit.wire.transport import Method

__all__ = ["OpenRegion", "ServerRegions"]

_LONGEST_OPEN_S = 30.0
_LONGEST_FORGET_S = 0.5
"""How long a server may take to open or forget a region; both take it half a millisecond."""

_AGAIN_S = 0.5
"""A region that was in use is tried again after so long."""

_REFUSED_S = 60.0
"""A server that cannot open regions is not tried again for so long."""


@dataclass(eq=False, slots=True)
class OpenRegion:
    """A region that a server has opened. One call at a time uses it."""

    name: str
    memory: RegionMemory
    generation: int


@dataclass(slots=True)
class _Retired:
    """A region that the server should forget, not before a moment of the clock; no memory: another process's."""

    name: str
    unregister: Method
    memory: RegionMemory | None = None
    not_before: float = 0.0


@dataclass(eq=False)
class ServerRegions:
    """The regions at one server, over one transport. Threads may share it."""

    transport: Any
    owner: Owner
    generation: int = 0
    refused_until: float = 0.0
    orphans_adopted: bool = False
    free: dict[int, list[OpenRegion]] = field(default_factory=dict)
    in_use: set[OpenRegion] = field(default_factory=set)
    retired: deque[_Retired] = field(default_factory=deque)
    returned: deque[tuple[OpenRegion, bool]] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, size: int) -> OpenRegion | None:
        """A free region of that size class."""
        with self.lock:
            self._settle()
            regions = self.free.get(size)
            if not regions:
                return None
            region = regions.pop()  # the one used last: its pages are in the caches
            self.in_use.add(region)
            return region

    def give_back(self, region: OpenRegion, safe: bool) -> None:
        """Return a region; `safe` says that the server is done with it.

        Takes no lock: the garbage collector calls this in the middle of anything.
        """
        self.returned.append((region, safe))

    def lost(self, region: OpenRegion) -> None:
        """The server does not know this region: it was restarted and knows none from before."""
        with self.lock:
            if region.generation == self.generation:
                self.generation += 1

    def retire_free(self) -> None:
        """Give up the regions that no call uses."""
        with self.lock:
            self._settle()
            for region in [region for regions in self.free.values() for region in regions]:
                self._retire(region)
            self.free.clear()

    def size(self) -> int:
        """Bytes of all regions, those included that the server has not forgotten yet."""
        with self.lock:
            self._settle()
            free = sum(size * len(regions) for size, regions in self.free.items())
            in_use = sum(region.memory.size for region in self.in_use)
            return (
                free
                + in_use
                + sum(retired.memory.size for retired in self.retired if retired.memory is not None)
            )

    def open(self, memory: RegionMemory, timeout_s: float) -> Steps[OpenRegion | None]:
        """Let the server open a new region; None if it cannot, and then not again for a minute.

        Raises:
            ServerUnavailable, DeadlineExceeded, Overloaded, UsageError: as from the transport.
        """
        region = OpenRegion(self.owner.new_name(), memory, self.generation)
        body = (memory.request(region.name),)
        try:
            yield Send(self.transport, memory.register, body, min(timeout_s, _LONGEST_OPEN_S))
            with self.lock:
                self.in_use.add(region)
        except BaseException as error:
            if isinstance(error, InferenceError) and not isinstance(error, Overloaded):
                memory.free()
                self._refused(error)
                return None
            with self.lock:  # without an answer the server may have opened it
                self._retire(region)
            raise
        finally:
            memory.hide()
        return region

    def tidy(self, timeout_s: float, most: int = 2) -> Steps[None]:
        """Let the server forget up to `most` regions that are used no more; never fails."""
        end = time.monotonic() + timeout_s
        for _ in range(most):
            left = end - time.monotonic()
            retired = self._next_retired() if left > 0 else None
            if retired is None:
                return
            done = False
            try:
                done = yield from self._forgotten(retired, left)
            finally:
                if not done:
                    retired.not_before = time.monotonic() + _AGAIN_S
                    with self.lock:
                        self.retired.append(retired)

    def adopt_orphans(self, memory: RegionMemory, timeout_s: float) -> Steps[None]:
        """Ask once which regions the server has, to let it forget those of killed processes."""
        if self.orphans_adopted:
            return
        self.orphans_adopted = True
        method: Any = memory.register.replace("Register", "Status")
        try:
            answer = yield Send(self.transport, method, (message(method),), timeout_s)
            names = [name for name in parse(method, answer).regions if is_orphan(name)]
        except (ClientError, AttributeError):
            return
        with self.lock:
            self.retired.extend(_Retired(name, memory.unregister) for name in names)

    def leave(self, timeout_s: float) -> Steps[int]:
        """Let the server forget everything, waiting for what is in use; how many are left."""
        end = time.monotonic() + timeout_s
        with self.lock:
            self._settle()
            for region in list(self.in_use):
                self._retire(region)
        self.retire_free()
        while self.retired and (left := end - time.monotonic()) > 0:
            before = len(self.retired)
            yield from self.tidy(left, before)
            if len(self.retired) == before:
                yield Sleep(min(left, _AGAIN_S / 5))
                with self.lock:
                    for retired in self.retired:
                        retired.not_before = 0.0
        return len(self.retired)

    def _forgotten(self, retired: _Retired, timeout_s: float) -> Steps[bool]:
        body = (message(retired.unregister, name=retired.name),)
        try:
            yield Send(self.transport, retired.unregister, body, min(timeout_s, _LONGEST_FORGET_S))
        except ClientError:
            return False
        if retired.memory is not None:
            retired.memory.free()
        return True

    def _next_retired(self) -> _Retired | None:
        with self.lock:
            self._settle()
            if self.retired and self.retired[0].not_before <= time.monotonic():
                return self.retired.popleft()
        return None

    def _settle(self) -> None:
        while self.returned:
            region, safe = self.returned.popleft()
            if region not in self.in_use:  # the server was left meanwhile
                continue
            self.in_use.remove(region)
            if safe and region.generation == self.generation:
                self.free.setdefault(region.memory.size, []).append(region)
            else:
                self._retire(region)

    def _retire(self, region: OpenRegion) -> None:
        self.in_use.discard(region)
        memory = region.memory
        self.retired.append(_Retired(region.name, memory.unregister, memory))

    def _refused(self, error: InferenceError) -> None:
        if not self.refused_until:
            logger.warning(
                "%s cannot open shared memory of this process (%s): tensors are sent in messages."
                " The server must allow it (tritonkit serve --shared-memory, and its key); both need one"
                " machine, one user and one /dev/shm (containers: --ipc)",
                self.transport.address,
                error.found,
            )
        self.refused_until = time.monotonic() + _REFUSED_S
