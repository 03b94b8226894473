"""The regions that one server has opened: the free ones, and those it should forget.

docs/client-shared-memory.md explains the behavior of Triton that shapes this. A region whose call got no answer is
never used again, because the answer may still arrive there. Every region has its own key and name, used once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tritonkit.client.log import logger
from tritonkit.client.shm.owner import Owner, is_orphan
from tritonkit.client.steps import Send, Sleep, Steps
from tritonkit.client.wire.messages import message, parse
from tritonkit.errors import ClientError, InferenceError, Overloaded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonkit.client.shm.cuda import CudaMemory
    from tritonkit.client.shm.system import SystemMemory

__all__ = ["OpenRegion", "RegionMemory", "ServerRegions"]

RegionMemory: TypeAlias = "SystemMemory | CudaMemory"

_LONGEST_OPEN_S = 30.0  # both take a server half a millisecond
_LONGEST_FORGET_S = 0.5
_AGAIN_S = 0.5  # until a region that was in use is tried again
_REFUSED_S = 60.0  # until a server that cannot open regions is tried again


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
    memory: RegionMemory | None = None
    not_before: float = 0.0


@dataclass(eq=False)
class ServerRegions:
    """The regions at one server, over one transport. Threads may share it."""

    transport: Any
    owner: Owner
    kind: str
    """The kind of memory in the methods' names: System or Cuda."""
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
        """Note that the server does not know this region: it was restarted and knows no older one."""
        with self.lock:
            if region.generation == self.generation:
                self.generation += 1

    def retire_free(self) -> None:
        """Give up the regions that no call uses."""
        with self.lock:
            self._settle()
            for regions in self.free.values():
                self._retire(regions)
            self.free.clear()

    def size(self) -> int:
        """Bytes of all regions, including those that the server has not forgotten yet."""
        with self.lock:
            self._settle()
            free = sum(size * len(regions) for size, regions in self.free.items())
            in_use = sum(region.memory.size for region in self.in_use)
            return free + in_use + sum(old.memory.size for old in self.retired if old.memory)

    def open(self, memory: RegionMemory, timeout_s: float) -> Steps[OpenRegion | None]:
        """Let the server open a new region; None if it cannot, and then not again for a minute.

        Raises:
            ServerUnavailable, DeadlineExceeded, Overloaded, UsageError: the transport raised it.
        """
        region = OpenRegion(self.owner.new_name(), memory, self.generation)
        try:
            timeout_s = min(timeout_s, _LONGEST_OPEN_S)
            yield self._send("Register", (memory.request(region.name),), timeout_s)
            with self.lock:
                self.in_use.add(region)
        except BaseException as error:
            if isinstance(error, InferenceError) and not isinstance(error, Overloaded):
                memory.free()
                self._refused(error)
                return None
            with self.lock:  # without an answer the server may have opened it
                self.in_use.discard(region)
                self._retire([region])
            raise
        finally:
            memory.hide()
        return region

    def tidy(self, timeout_s: float, most: int = 2) -> Steps[None]:
        """Let the server forget up to `most` unused regions; never fails."""
        end = time.monotonic() + timeout_s
        for _ in range(most):
            now = time.monotonic()
            with self.lock:
                self._settle()
                if now >= end or not self.retired or self.retired[0].not_before > now:
                    return
                retired = self.retired.popleft()
            body = (message(self._method("Unregister"), name=retired.name),)
            try:
                yield self._send("Unregister", body, min(end - now, _LONGEST_FORGET_S))
            except BaseException as error:
                retired.not_before = time.monotonic() + _AGAIN_S
                with self.lock:
                    self.retired.append(retired)
                if not isinstance(error, ClientError):
                    raise
            else:
                if retired.memory is not None:
                    retired.memory.free()

    def adopt_orphans(self, timeout_s: float) -> Steps[None]:
        """Ask once for the server's regions, and unregister those of killed processes."""
        if self.orphans_adopted:
            return
        self.orphans_adopted = True
        method = self._method("Status")
        try:
            answer = yield self._send("Status", (message(method),), timeout_s)
            names = [name for name in parse(method, answer).regions if is_orphan(name)]
        except (ClientError, AttributeError):
            return
        with self.lock:
            self.retired.extend(map(_Retired, names))

    def leave(self, timeout_s: float) -> Steps[int]:
        """Let the server forget everything, waiting for regions in use, and return the number that is left."""
        end = time.monotonic() + timeout_s
        self.retire_free()
        with self.lock:
            self._retire(self.in_use)
            self.in_use.clear()
        while self.retired and (left := end - time.monotonic()) > 0:
            before = len(self.retired)
            yield from self.tidy(left, before)
            if len(self.retired) == before:
                yield Sleep(min(left, _AGAIN_S / 5))
                with self.lock:
                    for retired in self.retired:
                        retired.not_before = 0.0
        return len(self.retired)

    def _method(self, verb: str) -> Any:
        return f"{self.kind}SharedMemory{verb}"

    def _send(self, verb: str, body: tuple[bytes], timeout_s: float) -> Send:
        return Send(self.transport, self._method(verb), body, timeout_s)

    def _settle(self) -> None:
        """Sort returned regions into free and retired ones."""
        while self.returned:
            region, safe = self.returned.popleft()
            if region not in self.in_use:  # the server was left meanwhile
                continue
            self.in_use.remove(region)
            if safe and region.generation == self.generation:
                self.free.setdefault(region.memory.size, []).append(region)
            else:
                self._retire([region])

    def _retire(self, regions: Iterable[OpenRegion]) -> None:
        self.retired.extend(_Retired(region.name, region.memory) for region in regions)

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
