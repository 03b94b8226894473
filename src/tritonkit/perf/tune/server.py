"""A server whose one model is served in a different way from one measurement to the next."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from tritonkit.client import Client
from tritonkit.client.reload import reload_models
from tritonkit.errors import ClientError, ServerError
from tritonkit.machine import cores, tree_processor_s
from tritonkit.perf.load.openloop import Generator
from tritonkit.perf.simulation import Costs
from tritonkit.perf.tune.costs import costs_of
from tritonkit.perf.tune.space import Point, tuned
from tritonkit.repository.export import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.base import Target
from tritonkit.repository.pipeline import render_models
from tritonkit.repository.publish.publish import publish
from tritonkit.serve import Server

__all__ = ["Embedded", "Gone", "Served"]

_LOAD_S = 120.0


class Gone(Exception):
    """The server is gone and the search is over; its text says why."""


class Served(Protocol):
    """The server as the search uses it."""

    @property
    def address(self) -> str:
        """Its gRPC address."""

    def serve(self, point: Point) -> None:
        """Serve the model in this way from now on, warm.

        Raises:
            ServerError, ClientError: it cannot be served.
            Gone: nothing can be served any more.
        """

    def costs(self, generator: Generator, shapes: Sequence[int]) -> Costs:
        """The costs of runs in the way that is served now."""

    def used_s(self) -> float | None:
        """Processor seconds that the server has used so far; None if they cannot be seen."""


class Embedded:
    """An embedded server with a repository of its own, as a context manager.

    Args:
        root: the project.
        spec: the model's.
        artifacts: the artifact of each variant that may be served.
        first: the way of serving at the start.
        target: the target of a build that the machine is.
    """

    def __init__(
        self, root: Path, spec: Spec, artifacts: Mapping[str, Artifact], first: Point, target: Target = "cpu"
    ) -> None:
        self._root, self._spec, self._artifacts, self._target = root, spec, artifacts, target
        self._point = first
        self._server: Server | None = None
        self._port = 0
        self.start_s = 0.0
        """Seconds from the server's last start until it was ready."""

    @property
    def address(self) -> str:
        """Its gRPC address; the same after a restart."""
        assert self._server is not None  # noqa: S101
        return self._server.endpoint.grpc

    @property
    def pid(self) -> int:
        """The server's process ID; another one after a restart."""
        assert self._server is not None  # noqa: S101
        return self._server.endpoint.pid

    def __enter__(self) -> Embedded:
        self._folder = tempfile.TemporaryDirectory(prefix="tritonkit-tune-")
        self._repository = Path(self._folder.name) / "model_repository"
        try:
            self._publish(self._point)
            self._start()
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            with contextlib.suppress(ServerError):
                self._server.stop()
        self._folder.cleanup()

    def serve(self, point: Point) -> None:
        """See `Served`; a server that was lost is started again."""
        alive = self._server is not None and self._server.poll() and self._answers()
        if point == self._point and alive:
            return
        self._publish(point)
        self._point = point
        if not alive:
            self._restart()
            return
        assert self._server is not None  # noqa: S101
        endpoint = self._server.endpoint
        try:
            with Client(endpoint.grpc, admin_key=endpoint.admin_key, timeout_s=_LOAD_S) as client:
                reload_models(client, (self._spec.name,), timeout_s=_LOAD_S)
        except ClientError:
            self._restart()  # a load that failed halfway

    def costs(self, generator: Generator, shapes: Sequence[int]) -> Costs:
        """See `costs_of`."""
        return costs_of(self._point, generator, self._spec.network_name, shapes)

    def used_s(self) -> float:
        """See `Served`; includes the processes of its Python models."""
        return tree_processor_s(self.pid)

    # -- the server

    def _publish(self, point: Point) -> None:
        spec = tuned(self._spec, point, self._root, self._target)
        artifact = self._artifacts[point.group.variant]
        publish(self._repository, render_models(spec, artifact, self._root, self._target, cores()))

    def _start(self) -> None:
        server = Server(
            self._repository, models=(self._spec.name,), root=self._root, grpc_port=self._port, metrics_port=0
        )
        # The same port after a restart, because callers know the address.
        began = time.monotonic()
        self._port = int(server.start().grpc.rpartition(":")[2])
        self.start_s = time.monotonic() - began
        self._server = server

    def _restart(self) -> None:
        if self._server is not None:
            with contextlib.suppress(ServerError):
                self._server.stop()
            self._server = None
        self._start()

    def _answers(self) -> bool:
        try:
            with Client(self.address, timeout_s=5.0, retry=None) as client:
                return client.is_ready(self._spec.name)
        except ClientError:
            return False
