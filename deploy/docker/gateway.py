"""Runs the gateway's Envoy on the files that the service `gateway-config` writes.

    gateway.py           until SIGTERM: no new connections, requests under way are answered, then it ends
    gateway.py health    exit code 0 where it serves and has found a healthy replica since it began, else 1
    gateway.py leave N   not ready any more, and N seconds of answering on: for Kubernetes' preStop

GATEWAY_THREADS are those that carry requests, where there are fewer cores than are seen.
Standard library only: `core` and `tritonkit` hold copies of modules of src/tritonkit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from checks import Refused
from core.rest import envoy_command, find_envoy

from tritonkit.operate.gateway.admin import GatewayAdmin

__all__ = ["main"]

CONFIG = Path("/gateway/envoy.json")
RUN = Path("/tmp/tritonkit")  # noqa: S108 (a tmpfs)
"""Envoy's working directory, where it makes the socket of its own interface."""
VENV = Path("/opt/tritonkit/venv")

DRAIN_S = 30.0
"""Seconds for requests in flight at the end; `stop_grace_period` must be longer."""
_TICK_S = 0.25


def main() -> int:
    """0 after SIGTERM, 4 where it cannot start; else Envoy's, which is never 0."""
    os.umask(0o077)
    if sys.argv[1:] == ["health"]:
        return _health()
    if sys.argv[1:2] == ["leave"]:
        return _leave(sys.argv[2:])
    try:
        envoy = _start()
    except Refused as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 4
    ending = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: ending.set())
    while (code := envoy.poll()) is None:
        if ending.wait(_TICK_S):
            GatewayAdmin(RUN).drain(DRAIN_S)
            envoy.terminate()
            envoy.wait()
            return 0
    return code or 1


def _start() -> subprocess.Popen[bytes]:
    envoy = find_envoy(VENV)
    if envoy is None:
        raise Refused(VENV, "there is no envoy", "build the image again")
    if not CONFIG.is_file():
        raise Refused(CONFIG, "there is no configuration", "docker compose up gateway-config says why")
    RUN.mkdir(mode=0o700, exist_ok=True)
    (RUN / "began").unlink(missing_ok=True)
    # As `tritonkit.operate.gateway.gateway_command` has it.
    threads = int(os.environ.get("GATEWAY_THREADS") or 0)
    command = [*envoy_command(envoy, CONFIG, threads or None), "--file-flush-interval-msec", "500"]
    return subprocess.Popen(command, cwd=RUN)


def _health() -> int:
    admin = GatewayAdmin(RUN)
    if not admin.ready():
        sys.stdout.write("Envoy does not serve\n")
        return 1
    # Later on it is the replicas that are unhealthy, and not the gateway.
    began = RUN / "began"
    if not began.exists():
        if not admin.healthy("grpc"):
            sys.stdout.write("no replica is healthy yet\n")
            return 1
        began.touch()
    return 0


def _leave(seconds: list[str]) -> int:
    """Callers' connections are told to go while the cluster takes the address from its lists."""
    if len(seconds) != 1 or not seconds[0].isdecimal():
        sys.stderr.write(f"error: {seconds}\n  do: gateway.py leave SECONDS\n")
        return 2
    GatewayAdmin(RUN).leave()
    time.sleep(int(seconds[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
