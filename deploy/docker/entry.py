"""Serves the repository at /models: checks it, starts tritonserver, and looks after its Python stubs.

    entry.py [--repository DIR] [--key-file FILE] [--needs FILE] [TRITONSERVER ARGUMENT ...]

Every model there is loaded by name; later versions come by explicit load requests (`tritonkit
reload`), over gRPC with the key as the metadata `triton-grpc-protocol-admin-key`. Triton's HTTP and
metrics are sockets that this user alone reaches; guards listen in their place. SIGTERM answers the
requests in flight and ends. After the death of a stub, or of the server, it is started again. Standard
library only: `core` is a copy of src/tritonkit/serve/core.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checks import MIB, Refused, check_key, check_memory, check_repository, read_needs
from core.backoff import Backoff
from core.flags import HTTP_SOCKET, METRICS_SOCKET, Arguments
from core.launch import Launch, guard_in
from core.metrics import MetricsDoor
from core.rest import CONTAINER_MIB, RestLimits, envoy_command, envoy_config, find_envoy
from core.unix_http import Admin
from health import RUN, dead_stubs, ready
from integrity import Verifier

__all__ = ["command", "drain", "main"]

HOME = Path("/opt/tritonserver")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory is on Linux)
REGIONS = "tritonkit_"
VENV = Path("/opt/tritonkit/venv")
HOST = "0.0.0.0"  # noqa: S104 (the container's own; compose publishes it on loopback)
HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
_CACHED = re.compile(r"response_cache\s*{\s*enable:\s*true")

DRAIN_S = 20
"""For the requests in flight at the end, after those of ensembles have had `_ENSEMBLES_S`."""
_ENSEMBLES_S = 20.0
_FINALIZE_S = 8.0
# 48 s in all: `stop_grace_period` must be longer.
# Long enough for other models' answers; Triton itself would wait forever for the dead stub's model.
_DRAIN_DEAD_S = 5.0
_TICK_S = 0.5
_MOST_DEATHS = 5
_MESSAGE_BYTES = 64 * MIB
"""The largest request where no builder computed one."""


def main() -> int:
    """Serve until told to end: 0; 4 if it cannot."""
    os.umask(0o077)
    options, extra = _parser().parse_known_args()
    try:
        command(options, extra)  # refused before anything listens
        _make_run_folder()
        metrics = MetricsDoor(HOST, METRICS_PORT, RUN)
        metrics.start()
        rest = None if options.no_http else RestDoor(options)
        return _supervise(
            lambda: command(options, extra), options.repository, rest, verify=not options.no_verify
        )
    except Refused as refusal:
        _say(str(refusal))
        return 4


def _make_run_folder() -> None:
    try:
        RUN.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Refused(RUN, f"it cannot be made: {error}", "docker run --tmpfs /tmp") from None


class RestDoor:
    """The Envoy before Triton's HTTP; started again when it dies."""

    def __init__(self, options: argparse.Namespace) -> None:
        needs = read_needs(options.needs)
        limits = RestLimits(
            max_request_bytes=int(needs.get("message_bytes", _MESSAGE_BYTES)),
            max_memory_mib=CONTAINER_MIB,
        )
        hosts, origins = options.http_hosts.split(), options.http_origins.split()
        envoy = find_envoy(VENV)
        try:
            config = envoy_config(
                HOST, HTTP_PORT, HTTP_SOCKET, limits, hosts, origins,
                shared_memory=options.shared_memory,
            )  # fmt: skip
        except ValueError as error:
            raise Refused(
                Path("TRITON_HTTP_HOSTS, TRITON_HTTP_ORIGINS"), str(error),
                "names, and origins such as https://app.example.org, with spaces between",
            ) from None  # fmt: skip
        if envoy is None:
            raise Refused(VENV, "there is no envoy for HTTP", "build the image again, or --no-http")
        (RUN / "envoy.json").write_text(json.dumps(config))
        self._launch = Launch(argv=envoy_command(envoy, "envoy.json"), env={}, cwd=str(RUN))
        self._envoy = self._launch.start()
        self._again_at = 0.0

    def look(self) -> None:
        """Start it again where it has died, at most once a second."""
        code = self._envoy.poll()
        if code is not None and time.monotonic() >= self._again_at:
            _say(f"error: envoy ended with exit code {code}; starting again")
            self._envoy, self._again_at = self._launch.start(), time.monotonic() + 1.0


def command(options: argparse.Namespace, extra: list[str]) -> Launch:
    """What to start. Refused where the repository, the key or /dev/shm will not do."""
    models = check_repository(options.repository)
    key = check_key(options.key_file)
    needs = read_needs(options.needs)
    check_memory(needs, SHARED_MEMORY)
    guard = guard_in(VENV)
    if guard is None:
        _say("warning: the native guard is missing: requests may have up to 2 GiB")
    return Launch(
        argv=[*_arguments(options, models, needs), *extra],
        env=dict(os.environ),
        cwd=str(RUN),
        key=key,
        grpc_port=GRPC_PORT,
        message_bytes=int(needs.get("message_bytes", _MESSAGE_BYTES)),
        file_bytes=int(needs.get("file_bytes", 0)),
        guard=str(guard) if guard else "",
    )


def _arguments(options: argparse.Namespace, models: list[str], needs: dict[str, Any]) -> list[str]:
    configs = "".join((options.repository / name / "config.pbtxt").read_text() for name in models)
    return Arguments(
        binary=HOME / "bin" / "tritonserver",
        repository=options.repository,
        backends=HOME / "backends",
        models=models,
        caches=HOME / "caches" if _CACHED.search(configs) else None,
        limits_rate="rate_limiter" in configs,
        drain_s=DRAIN_S,
        prefix=REGIONS,
        region_bytes=int(needs.get("region_bytes", MIB)),
        grpc_host=HOST,
        grpc_port=GRPC_PORT,
        shared_memory=options.shared_memory,
    ).words()


def _supervise(
    launch: Callable[[], Launch], repository: Path, rest: RestDoor | None, *, verify: bool
) -> int:
    asked: list[int] = []
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, _: asked.append(number))
    backoff = Backoff(_MOST_DEATHS)
    while True:
        # Made anew each time: models may have been published since the last start.
        process = launch()
        for name in (HTTP_SOCKET, METRICS_SOCKET):
            (RUN / name).unlink(missing_ok=True)
        server = process.start()
        verifier = Verifier(repository)
        if verify:
            verifier.start()
        reason, was_ready = _watch(server, asked, rest, verifier)
        verifier.stop()
        if asked:
            # The key of this server: the file may hold another by now.
            drain(repository, process.key)
            return _end(server, DRAIN_S + _FINALIZE_S)
        if verifier.findings:
            _end(server, _DRAIN_DEAD_S)
            raise Refused(repository, reason, "docker compose up builder")
        _say(f"error: {reason}; starting again")
        _end(server, _DRAIN_DEAD_S)
        for region in SHARED_MEMORY.glob(f"{REGIONS}*"):
            region.unlink(missing_ok=True)
        delay_s = backoff.after_death(was_ready=was_ready)
        if delay_s is None:
            _say(f"error: {_MOST_DEATHS} starts in a row did not become ready: giving up")
            return 4
        time.sleep(delay_s)


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
    admin = Admin(RUN, key)
    # The server may have ended already, or answer nothing of use: it is ended all the same.
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        for name in sorted(ensembles):
            admin.unload(name)
        while time.monotonic() < deadline:
            busy = {entry["name"] for entry in admin.index() if entry.get("reason") != "unloaded"}
            if not busy & ensembles:
                return
            time.sleep(_TICK_S / 5)


def _watch(
    server: subprocess.Popen[bytes], asked: list[int], rest: RestDoor | None, verifier: Verifier
) -> tuple[str, bool]:
    """Wait until it should be ended or has ended; why, and whether it had been ready."""
    before: set[int] = set()
    was_ready = False
    while not asked:
        try:
            return f"tritonserver ended with exit code {server.wait(_TICK_S)}", was_ready
        except subprocess.TimeoutExpired:
            pass
        if rest is not None:
            rest.look()
        if verifier.findings:
            return f"not as it was published: {verifier.findings[0]}", was_ready
        dead = dead_stubs()
        # Seen twice: a stub that Triton ended itself is a zombie for a moment only.
        if dead & before:
            return f"the Python stub {min(dead & before)} has died", was_ready
        before = dead
        was_ready = was_ready or ready()
    return "", was_ready


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
    parser.add_argument(
        "--shared-memory", action="store_true", help="clients with the key may register theirs"
    )
    parser.add_argument(
        "--no-verify", action="store_true", help="do not hold the files against their manifests"
    )
    parser.add_argument("--no-http", action="store_true", help="gRPC and metrics only")
    parser.add_argument(
        "--http-hosts", default=os.environ.get("TRITON_HTTP_HOSTS", ""),
        help="names under which callers know this server, beside loopback's",
    )  # fmt: skip
    parser.add_argument(
        "--http-origins", default=os.environ.get("TRITON_HTTP_ORIGINS", ""),
        help="of web pages that may call",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
