"""Serves the repository at /models: checks it, starts tritonserver, and looks after its Python stubs.

    entry.py [--repository DIR] [--key-file FILE] [--needs FILE] [TRITONSERVER ARGUMENT ...]

Every model there is loaded by name; later versions come by explicit load requests (`tritonkit
reload`). What can change the server needs the key: as the gRPC metadata `triton-grpc-protocol-admin-key`
or the HTTP header `admin-key`. SIGTERM answers the requests in flight and ends. After the death of a
stub, or of the server, it is started anew. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from checks import Refused, check_key, check_memory, check_repository, read_needs
from health import dead_stubs

__all__ = ["arguments", "drain", "main"]

HOME = Path("/opt/tritonserver")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory is on Linux)
REGIONS = "tritonkit_"
RESTRICTED = "model-repository,shared-memory,logging,trace"
CACHE_BYTES = 64 << 20

DRAIN_S = 20
"""For the requests in flight at the end, after those of ensembles have had `_ENSEMBLES_S`."""
_ENSEMBLES_S = 20.0
_FINALIZE_S = 8.0
# 48 s in all: `stop_grace_period` must be longer.
# Long enough for other models' answers; Triton itself would wait forever for the dead stub's model.
_DRAIN_DEAD_S = 5.0
_TICK_S = 0.5
_MOST_DEATHS, _PERIOD_S = 5, 60.0


def main() -> int:
    """Serve until told to end: 0; 4 if it cannot."""
    options, extra = _parser().parse_known_args()

    def command() -> list[str]:
        return [*arguments(options.repository, options.key_file, options.needs), *extra]

    try:
        return _supervise(command, partial(drain, options.repository))
    except Refused as refusal:
        _say(str(refusal))
        return 4


def arguments(repository: Path, key_file: Path, needs_file: Path) -> list[str]:
    """The command line. Refused where the repository, the key or /dev/shm will not do."""
    models = check_repository(repository)
    key = check_key(key_file)
    needs = read_needs(needs_file)
    check_memory(needs, SHARED_MEMORY)
    configs = "".join((repository / name / "config.pbtxt").read_text() for name in models)
    flags: dict[str, Any] = {
        "model-repository": repository,
        "backend-directory": HOME / "backends",
        "model-control-mode": "explicit",
        # With one bad model the others still come up; the container is not healthy then.
        "exit-on-error": "false",
        "exit-timeout-secs": DRAIN_S,
        "grpc-restricted-protocol": f"{RESTRICTED}:admin-key={key}",
        "http-restricted-api": f"{RESTRICTED}:admin-key={key}",
    }
    if not Path("/dev/nvidiactl").exists():
        flags |= {"allow-gpu-metrics": "false", "pinned-memory-pool-byte-size": 0}
    if re.search(r"response_cache\s*{\s*enable:\s*true", configs):
        flags |= {
            "cache-directory": HOME / "caches",
            "cache-config": f"local,size={CACHE_BYTES}",
        }
    if "rate_limiter" in configs:
        flags["rate-limit"] = "execution_count"
    region = int(needs.get("region_bytes", 1 << 20))
    return [
        str(HOME / "bin" / "tritonserver"),
        "--disable-auto-complete-config",
        *(f"--{name}={value}" for name, value in flags.items()),
        *(f"--load-model={name}" for name in models),
        f"--backend-config=python,shm-region-prefix-name={REGIONS}",
        f"--backend-config=python,shm-default-byte-size={region}",
    ]


def _supervise(command: Callable[[], list[str]], before_end: Callable[[str], None]) -> int:
    asked: list[int] = []
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, _: asked.append(number))
    deaths: deque[float] = deque(maxlen=_MOST_DEATHS)
    while True:
        # Made anew each time: models may have been published since the last start.
        words = command()
        server = subprocess.Popen(words)
        reason = _watch(server, asked)
        if asked:
            # The key of this server: the file may hold another by now.
            before_end(next(w.rpartition("=")[2] for w in words if "admin-key=" in w))
            return _end(server, DRAIN_S + _FINALIZE_S)
        _say(f"error: {reason}; starting anew")
        _end(server, _DRAIN_DEAD_S)
        for region in SHARED_MEMORY.glob(f"{REGIONS}*"):
            region.unlink(missing_ok=True)
        deaths.append(time.monotonic())
        if len(deaths) == _MOST_DEATHS and deaths[-1] - deaths[0] < _PERIOD_S:
            _say(f"error: {_MOST_DEATHS} times within {_PERIOD_S:.0f} s: giving up")
            return 4


def drain(repository: Path, key: str, within_s: float = _ENSEMBLES_S) -> None:
    """Let the requests of ensembles finish, and take no new ones.

    A server that was told to end refuses also the requests that an ensemble sends to its next step;
    an ensemble that is unloaded answers what it has begun, while its steps are still there.
    """
    ensembles = {
        file.parent.name
        for file in repository.glob("*/config.pbtxt")
        if "ensemble_scheduling" in file.read_text()
    }
    deadline = time.monotonic() + within_s
    # The server may have ended already, or answer nothing of use: it is ended all the same.
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        for name in sorted(ensembles):
            _ask(f"models/{name}/unload", key)
        while time.monotonic() < deadline:
            index = json.loads(_ask("index", key))
            busy = {entry["name"] for entry in index if entry.get("reason") != "unloaded"}
            if not busy & ensembles:
                return
            time.sleep(_TICK_S / 5)


def _ask(path: str, key: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=5)
    try:
        connection.request("POST", f"/v2/repository/{path}", headers={"admin-key": key})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise http.client.HTTPException(f"{path}: status {answer.status}")
        return answer.read()
    finally:
        connection.close()


def _watch(server: subprocess.Popen[bytes], asked: list[int]) -> str:
    """Wait until it should be ended or has ended; why."""
    before: set[int] = set()
    while not asked:
        try:
            return f"tritonserver ended with exit code {server.wait(_TICK_S)}"
        except subprocess.TimeoutExpired:
            pass
        dead = dead_stubs()
        # Seen twice: a stub that Triton ended itself is a zombie for a moment only.
        if dead & before:
            return f"the Python stub {min(dead & before)} has died"
        before = dead
    return ""


def _end(server: subprocess.Popen[bytes], within_s: float) -> int:
    """Let it answer what is in flight, then end it; its exit code."""
    server.terminate()
    try:
        return server.wait(within_s)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="entry.py", description=__doc__)
    parser.add_argument("--repository", type=Path, default=Path("/models"))
    parser.add_argument("--key-file", type=Path, default=Path("/handover/admin-key"))
    parser.add_argument("--needs", type=Path, default=Path("/handover/needs.json"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
