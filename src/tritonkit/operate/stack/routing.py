"""Routes of a running gateway, written again when keys change and during a release."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tritonkit.errors import ServerError, UsageError
from tritonkit.operate import keys
from tritonkit.operate.gateway import GatewaySpec, Places, Split, Upstream, write_clusters, write_routes
from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.gateway.clusters import CANDIDATE
from tritonkit.operate.stack.values import StackSettings

__all__ = ["Routing"]

_PAUSE_S, _TAKEN_S = 0.05, 10.0


class Routing:
    """Keys, replicas and the candidate of a release, as the gateway has them.

    Args:
        models: the names of the served models.
    """

    def __init__(
        self,
        settings: StackSettings,
        spec: GatewaySpec,
        places: Places,
        admin: GatewayAdmin,
        models: Sequence[str],
        replicas: Sequence[Upstream],
    ) -> None:
        self._settings, self._spec, self._places, self._admin = settings, spec, places, admin
        self._models, self._replicas = models, replicas
        self._split: Split | None = None
        self._unended = False
        self._lock = threading.Lock()
        self._known, self._told = self._changed(), ""

    def poll(self) -> None:
        """Load changed keys, and try again to end a split that could not be ended; called every tick. If keys cannot be
        read, or Envoy refuses them, the known keys stay and the new ones are tried again."""
        if self._unended and self._lock.acquire(blocking=False):
            try:
                self._end_split()
            except (UsageError, ServerError) as error:
                self._left(f"requests may still go to a candidate: {error.where}: {error.found}")
            finally:
                self._lock.release()
        if (changed := self._changed()) != self._known and self._take_keys():
            self._known = changed

    def learn(self, models: Sequence[str]) -> None:
        """Add served models; this takes effect when the routes are next written."""
        with self._lock:
            self._models = tuple(dict.fromkeys([*self._models, *models]))

    def split(self, split: Split | None) -> None:
        """Send a part of some models' requests to a candidate; None: all to the replicas. Returns once the routes are
        in effect and, for None, once the candidate has answered its last requests.

        Raises:
            ServerError: Envoy does not accept the routes, or does not find the candidate healthy.
            UsageError: the keys cannot be read, or the files cannot be written. A split that could not be ended is
                ended as soon as possible.
        """
        with self._lock:
            if split is None:
                self._unended = self._unended or self._split is not None
                self._end_split()
                return
            former, self._split = self._split, split
            try:
                write_clusters(self._spec, self._places, self._replicas, split)
                self._want(split)
                self._write_routes()
            except BaseException:
                self._split = former
                raise

    def _end_split(self) -> None:
        if not self._unended:
            return
        self._split = None
        self._write_routes()
        self._await("the candidate's last answers", self._idle)
        write_clusters(self._spec, self._places, self._replicas)
        self._unended = False

    def _want(self, split: Split) -> None:
        names = [f"grpc{CANDIDATE}", *([f"rest{CANDIDATE}"] if split.candidate.rest else [])]
        if not self._await("the candidate", lambda: all(map(self._admin.healthy, names))):
            raise ServerError(
                "the gateway",
                found=f"it does not find the candidate within {_TAKEN_S:g} s",
                wanted="one that its health checks reach",
                todo="see its log: .tritonkit/run/*/server.log",
            )

    def _idle(self) -> bool:
        return not any(self._admin.active_of(f"{name}{CANDIDATE}") for name in ("grpc", "rest"))

    def _write_routes(self) -> None:
        """Write routes; ServerError if Envoy refuses them. If it does not answer, it reads them at its next start."""
        self._await("the gateway", lambda: self._admin.taken() is not None)
        refused, taken = self._admin.rejected(), self._admin.taken()
        write_routes(self._spec, self._places, self._models, self._split)
        if refused is None or taken is None:
            return
        self._await(
            "the new routes", lambda: (self._admin.taken() or 0) > taken or (self._admin.rejected() or 0) > refused
        )
        if (self._admin.rejected() or 0) > refused:
            raise ServerError(
                "the gateway",
                found="Envoy refuses the new routes",
                todo=f"its log is {self._places.clusters.with_name('gateway.log')}",
            )

    def _await(self, what: str, done: Callable[[], bool]) -> bool:
        """Whether a condition was met in time; if not, an event reports it."""
        deadline = time.monotonic() + _TAKEN_S
        while not done():
            if time.monotonic() > deadline:
                self._settings.emit("gateway", f"still waits for {what} after {_TAKEN_S:g} s")
                return False
            time.sleep(_PAUSE_S)
        return True

    def _changed(self) -> int:
        try:
            return (self._settings.gateway / keys.FILE).stat().st_mtime_ns
        except OSError:
            return 0

    def _take_keys(self) -> bool:
        """Write the routes with the changed keys; returns whether that succeeded."""
        with self._lock:
            try:
                self._write_routes()
            except (UsageError, ServerError) as error:
                return self._left(f"the keys are left as they were: {error.where}: {error.found}")
        self._settings.emit("gateway", "keys were read again")
        self._told = ""
        return True

    def _left(self, why: str) -> bool:
        """Report a failure once, however often it is tried; always False."""
        if why != self._told:
            self._settings.emit("gateway", why)
        self._told = why
        return False
