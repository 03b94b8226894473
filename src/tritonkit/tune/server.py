"""A server whose one model is served in another way from one measurement to the next."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tritonkit.client import Client
from tritonkit.client.reload import reload_models
from tritonkit.errors import ClientError, ServerError
from tritonkit.export import Artifact
from tritonkit.machine import cores
from tritonkit.measure.closed_loop import closed_loop
from tritonkit.pipeline import render_models
from tritonkit.publish.publish import publish
from tritonkit.serve import Server
from tritonkit.spec import Spec
from tritonkit.tune.simulation import Costs, fit
from tritonkit.tune.space import Point, tuned

__all__ = ["Embedded", "Served"]

_CALLERS = (1, 4, 16)
"""For each instance: all are busy, with batches of one to many."""
_BURST_S = 0.6
_LEANER = 2.0
"""How much more than these callers, who take a part of the cores, a lean client may get."""
_ROUNDS = 3
_LOAD_S = 120.0


class Served(Protocol):
    """What the search needs of a server."""

    @property
    def address(self) -> str:
        """Its gRPC address."""

    def serve(self, point: Point) -> None:
        """From now on the model is served in this way, warm.

        Raises:
            ServerError, ClientError: it cannot be.
        """

    def costs(self, items: Sequence[Mapping[str, Any]]) -> Costs:
        """What runs cost in the way that is served now."""


class Embedded:
    """An embedded server with a repository of its own, as a context manager.

    Args:
        root: the project.
        spec: the model's.
        artifacts: of each variant that may be served.
        first: how it is served at first.
    """

    def __init__(
        self, root: Path, spec: Spec, artifacts: Mapping[str, Artifact], first: Point
    ) -> None:
        self._root, self._spec, self._artifacts = root, spec, artifacts
        self._point = first
        self._server: Server | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """Its gRPC address; the same after a restart."""
        assert self._server is not None  # noqa: S101
        return self._server.endpoint.grpc

    @property
    def pid(self) -> int:
        """The process's now; another after a restart."""
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
    ) -> None:  # fmt: skip
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
            self._restart()  # a load that failed half way

    def costs(self, items: Sequence[Mapping[str, Any]]) -> Costs:
        """By callers who keep all instances busy: what a run of each size must have taken for their rate."""
        network = self._spec.network_name
        sizes, seconds = [], []
        most_per_s = 0.0
        with Client(self.address, retry=None, breaker=None) as client:
            alone = closed_loop(client, self._spec.name, items, 1, _BURST_S)
            for times in _CALLERS:
                before = _counts(client, network)
                callers = times * self._point.group.instances
                taken = closed_loop(client, self._spec.name, items, callers, _BURST_S)
                ran, runs = _counts(client, network)
                if runs == before[1]:
                    raise ClientError(
                        f"model {network} at {self.address}", found="it ran for no request",
                        wanted="runs to measure",
                    )  # fmt: skip
                sizes.append((ran - before[0]) / (runs - before[1]))
                # Of all that the cores do, the steps around the network and the callers included: what a
                # run costs here, not what it would cost alone.
                per_s = callers / float(taken.mean())
                most_per_s = max(most_per_s, per_s)
                seconds.append(self._point.group.instances * sizes[-1] / per_s)
        fixed_s, item_s = fit(sizes, seconds)
        around_s = max(0.0, float(alone.mean()) - fixed_s - item_s)
        weights, spread = _weights(alone, len(items))
        return Costs(fixed_s, item_s, around_s, spread, weights, _LEANER * most_per_s)

    # -- the server

    def _publish(self, point: Point) -> None:
        spec = tuned(self._spec, point)
        artifact = self._artifacts[point.group.variant]
        publish(self._repository, render_models(spec, artifact, self._root, "cpu", cores()))

    def _start(self) -> None:
        server = Server(
            self._repository, models=(self._spec.name,), root=self._root, grpc_port=self._port,
            metrics_port=0,
        )  # fmt: skip
        # The same port after a restart, for those who know the address.
        self._port = int(server.start().grpc.rpartition(":")[2])
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


def _weights(seconds: NDArray[np.float64], items: int) -> tuple[tuple[float, ...], float]:
    """What each item takes beside their mean, and how much the same item varies; for one caller, who goes round
    the items. Without two rounds of them: no weights."""
    rounds = len(seconds) // items
    if rounds < _ROUNDS:
        spread = float(seconds.std() / max(seconds.mean(), 1e-9))
        return (), float(np.clip(spread, 0.05, 1.0))
    table = seconds[: rounds * items].reshape(rounds, items)
    medians = np.median(table, axis=0)
    weights = medians / medians.mean()
    spread = float(np.median(table.std(axis=0) / table.mean(axis=0)))
    return tuple(float(w) for w in weights), float(np.clip(spread, 0.05, 0.5))


def _counts(client: Client, model: str) -> tuple[int, int]:
    """Items and runs so far."""
    found = client.statistics(model)
    return sum(s.inference_count for s in found), sum(s.execution_count for s in found)
