"""Several servers of one repository, each with its part of the cores."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tritonkit.errors import TritonkitError, UsageError
from tritonkit.operate.gateway import Upstream
from tritonkit.operate.stack.values import StackPart, StackSettings, State
from tritonkit.serve import Endpoint, ServeEvent, Server

__all__ = ["RunningReplica", "divided", "start_replicas", "stop_replicas"]


class RunningReplica:
    """A server on some of the cores, which is started again there when it dies.

    Args:
        name: the server's name in logs and tables.
        cores: the cores that it and its children may use.
        repository, models: the models to serve; by default those of the settings.
        restarts: failed starts until it is given up; 0: it is not started again.
    """

    def __init__(
        self,
        settings: StackSettings,
        name: str,
        cores: Sequence[int],
        *,
        repository: Path | None = None,
        models: Sequence[str] | None = None,
        restarts: int = 5,
    ) -> None:
        self.name, self.cores = name, tuple(cores)
        self._settings, self._said = settings, ""
        self._state: State = "starting"
        self.error: BaseException | None = None
        self._server = Server(
            repository or settings.repository,
            models=models or settings.models,
            require=tuple(models) if models else settings.require,
            root=settings.root,
            grpc_port=0,
            http=True,
            http_port=0,
            metrics_port=0,
            drain_timeout_s=settings.drain_s,
            restarts=restarts,
            on_event=self._hear,
        )
        self._thread = threading.Thread(target=self._start, name=self.name, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        # A thread's affinity is inherited by what it starts: the server, and the thread that watches over it.
        os.sched_setaffinity(0, self.cores)
        try:
            self._server.start()
        except BaseException as error:
            self.error, self._state = error, "down"

    def wait_ready(self) -> None:
        """Wait until it has answered.

        Raises:
            ServerError, UsageError: the server does not start.
        """
        self._thread.join()
        if self.error is not None:
            raise self.error
        self._state = "ready"

    @property
    def endpoint(self) -> Endpoint:
        """The server's addresses."""
        return self._server.endpoint

    @property
    def replica(self) -> Upstream:
        """Its addresses for the gateway."""
        return Upstream(self.name, self.endpoint.grpc, self.endpoint.http)

    @property
    def lost(self) -> bool:
        """Whether it is not started again any more."""
        return self._state != "stopping" and not self._server.poll()

    def serve_too(self, model: str) -> None:
        """Also load a model that was added meanwhile whenever the server is restarted.

        Raises:
            UsageError: the repository holds no such model.
            ServerStartError: the model's configuration cannot be read, or an ensemble lacks its parts.
        """
        self._server.serve_too(model)

    def part(self) -> StackPart:
        """The replica's current state."""
        try:
            endpoint = self.endpoint
        except UsageError:  # it was not ready yet, and perhaps never will be
            return StackPart(self.name, self._state, cores=self.cores, said=self._said)
        state: State = "down" if self.lost else self._state
        return StackPart(self.name, state, endpoint.grpc, endpoint.pid, self.cores, self._said)

    @property
    def ready(self) -> bool:
        """Whether it runs and has answered since it was started the last time."""
        return self._state == "ready" and not self.lost

    def stop(self) -> None:
        """Answer what is in flight, then end."""
        self._state = "stopping"
        self._thread.join()
        with contextlib.suppress(TritonkitError):
            self._server.stop()

    def kill(self) -> None:
        """End it now, also while it starts."""
        self._server.kill()

    def _hear(self, event: ServeEvent) -> None:
        self._said = f"{event.model}: {event.message}" if event.model else event.message
        if event.kind in ("server_died", "server_lost"):
            self._state = "down"
        elif event.kind == "server_back":
            self._state = "ready"
        self._settings.emit(self.name, f"{event.kind.replace('_', ' ')}: {self._said}")


def start_replicas(settings: StackSettings, repository: Path) -> list[RunningReplica]:
    """Start all replicas of this repository concurrently; if one fails, none is left running.

    Raises:
        ServerError, UsageError: a replica does not start.
    """
    allowed = sorted(os.sched_getaffinity(0))
    replicas = [
        RunningReplica(settings, f"replica-{number}", cores, repository=repository)
        for number, cores in enumerate(divided(allowed, settings.replicas))
    ]
    try:
        for replica in replicas:
            replica.wait_ready()
    except BaseException:
        stop_replicas(replicas)
        raise
    return replicas


def stop_replicas(replicas: Sequence[RunningReplica]) -> None:
    """Stop all replicas concurrently."""
    threads = [threading.Thread(target=replica.stop) for replica in replicas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def divided(allowed: Sequence[int], parts: int) -> list[list[int]]:
    """Cores divided into parts of neighbors; more parts than cores share them in turn."""
    if parts > len(allowed):
        return [[allowed[number % len(allowed)]] for number in range(parts)]
    bounds = [number * len(allowed) // parts for number in range(parts + 1)]
    return [list(allowed[start:end]) for start, end in pairwise(bounds)]
