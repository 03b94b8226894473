"""Serves the repository at /models: checks it, starts tritonserver, and looks after its Python stubs.

    entry.py [--repository DIR] [--key-file FILE] [--needs FILE] [TRITONSERVER ARGUMENT ...]

Every model there is loaded by name; later versions come by explicit load requests (`tritonkit
reload`), over gRPC with the key as the metadata `triton-grpc-protocol-admin-key`. Triton's HTTP and
metrics are sockets that this user alone reaches; guards listen in their place. SIGTERM answers the
requests in flight and ends. A model whose stub has died is loaded again, and a server that has died is
started again. Standard library only: `core` is a copy of src/tritonkit/serve/core.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from allowed import config_flag, cores_line
from callers import LateLoads, later
from checks import BUILD, MIB, Refused, check_key, check_memory, check_repository, printable, read_needs
from core.backoff import Backoff
from core.drain import finish_ensembles, finish_models, refuse_calls, spare_calls
from core.flags import HTTP_SOCKET, METRICS_SOCKET, server_arguments
from core.gauges import Gauges
from core.launch import Launch, guard_in, has_guard
from core.metrics import MetricsProxy
from core.native_backends import ENGINES, PAD, backend_flags, find_native_backends, why_not
from core.rest import CONTAINER_MIB, RestLimits, envoy_command, envoy_config, envoy_threads, find_envoy
from core.restarting import Restarting
from core.stub_watch import TICK_S, StubWatch
from core.stubs import end_stubs
from core.threads import thread_variables
from core.unix_http import Admin
from health import LOADED, REPLACED, RUN, STOPPING, ready
from integrity import Verifier
from machine import cores
from options import parser
from pinning import Pinning, listed, pinning_of
from start_times import StartTimes

__all__ = ["command", "ensembles", "main", "not_loaded"]

BEGAN = time.monotonic()
HOME = Path("/opt/tritonserver")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory is on Linux)
REGIONS = "tritonkit_"
VENV = Path("/opt/tritonkit/venv")
HOST = "0.0.0.0"  # noqa: S104 (the container's own; compose publishes it on loopback)
HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
_CACHED = re.compile(r"response_cache\s*{\s*enable:\s*true")
_TRACE_URL = re.compile(r"https?://[^\s,]+")
_CALLED = re.compile(r'model_name:\s*"([^"]+)"')

DRAIN_S = 20
"""For the requests in flight at the end, after those of ensembles have had `_ENSEMBLES_S`."""
_LEAVE_S = 15.0
"""At most, for callers to go, where their connections have an age and stop.py has not been there before."""
_LOOK_S = 0.1
_ENSEMBLES_S = 20.0
_FINALIZE_S = 8.0
# 68 s in all with `_DRAIN_DEAD_S`, 53 s after preStop: `stop_grace_period` must be longer.
# Long enough for other models' answers; Triton itself would wait forever for the dead stub's model.
_DRAIN_DEAD_S = 5.0
_RELOAD_S = 300.0
_MOST_DEATHS = 5
_MESSAGE_BYTES = 64 * MIB
"""The largest request where no builder computed one."""


def main() -> int:
    """Serve until told to end: 0; 4 if it cannot."""
    os.umask(0o077)
    options, extra = parser(__doc__).parse_known_args()
    try:
        command(options, extra)  # refused before anything listens
        _say(cores_line(options.repository, extra))
        _make_run_folder()
        gauges = Gauges(RUN, options.repository)
        metrics = MetricsProxy(HOST, METRICS_PORT, RUN, gauges)
        metrics.start()
        rest = None if options.no_http else _rest_proxy(options)
        return _supervise(lambda: command(options, extra), options, rest, gauges)
    except Refused as refusal:
        _say(str(refusal))
        return 4


def _make_run_folder() -> None:
    try:
        RUN.mkdir(mode=0o700, exist_ok=True)
        (RUN / STOPPING).unlink(missing_ok=True)
    except OSError as error:
        raise Refused(RUN, f"it cannot be made: {error}", "docker run --tmpfs /tmp") from None


def _rest_proxy(options: argparse.Namespace) -> Restarting[subprocess.Popen[bytes]]:
    """The Envoy before Triton's HTTP."""
    needs = read_needs(options.needs)
    limits = RestLimits(max_request_bytes=int(needs.get("message_bytes", _MESSAGE_BYTES)), max_memory_mib=CONTAINER_MIB)
    hosts, origins = options.http_hosts.split(), options.http_origins.split()
    envoy = find_envoy(VENV)
    try:
        config = envoy_config(HOST, HTTP_PORT, HTTP_SOCKET, limits, hosts, origins, shared_memory=options.shared_memory)
    except ValueError as error:
        raise Refused(
            Path("TRITON_HTTP_HOSTS, TRITON_HTTP_ORIGINS"),
            str(error),
            "names, and origins such as https://app.example.org, with spaces between",
        ) from None
    if envoy is None:
        raise Refused(VENV, "there is no envoy for HTTP", "build the image again, or --no-http")
    (RUN / "envoy.json").write_text(json.dumps(config))
    words = envoy_command(envoy, "envoy.json", envoy_threads(cores=cores()))
    process = Launch(argv=words, env={}, cwd=str(RUN))

    def died(code: int, again: bool) -> None:
        end = "starting again" if again else "it is not started again"
        _say(f"error: envoy ended with exit code {code}; {end}")

    return Restarting(process.start, died)


def command(options: argparse.Namespace, extra: list[str]) -> Launch:
    """The process to start. Refused if the repository, the key or /dev/shm is not usable."""
    models = check_repository(options.repository)
    key = own_key() if options.own_key and not options.key_file.exists() else check_key(options.key_file)
    needs = read_needs(options.needs)
    check_memory(needs, SHARED_MEMORY)
    guard = guard_in(VENV)
    if guard is None:
        _say("warning: the native guard is missing: requests may have up to 2 GiB")
    return Launch(
        argv=[*_arguments(options, models, needs), *config_flag(options.repository, extra), *extra],
        env=os.environ | thread_variables(cores(), os.environ),
        cwd=str(RUN),
        key=key,
        grpc_port=GRPC_PORT,
        message_bytes=int(needs.get("message_bytes", _MESSAGE_BYTES)),
        file_bytes=int(needs.get("file_bytes", 0)),
        guard=str(guard) if guard else "",
    )


def _arguments(options: argparse.Namespace, models: list[str], needs: dict[str, Any]) -> list[str]:
    configs = "".join((options.repository / name / "config.pbtxt").read_text() for name in models)
    backends, flags = _backends(options.backend)
    if f'"{PAD}"' in configs and not _has_stand_ins():
        raise Refused(
            options.repository,
            "a model's requests of different lengths share its batches, which NVIDIA's backends cannot pad",
            "build it again: tritonkit build --target gpu",
        )
    late = later(options.repository)
    common = server_arguments(
        binary=HOME / "bin" / "tritonserver",
        repository=options.repository,
        backends=backends,
        models=[name for name in models if name not in late],
        caches=HOME / "caches" if _CACHED.search(configs) else None,
        limits_rate="rate_limiter" in configs,
        drain_s=DRAIN_S,
        prefix=REGIONS,
        region_bytes=int(needs.get("region_bytes", MIB)),
        grpc_host=HOST,
        grpc_port=GRPC_PORT,
        shared_memory=options.shared_memory,
    )
    return [*common, *flags, *_age_flags(options), *_trace_flags(options)]


@cache
def own_key() -> str:
    """One that nobody else knows."""
    return secrets.token_urlsafe(32)


def _age_flags(options: argparse.Namespace) -> list[str]:
    """gRPC asks connections of that age to end (GOAWAY): calls on them are answered, later ones go to a new one."""
    age = options.connection_age_s
    if not age:
        return []
    if not age.isdecimal() or not int(age):
        raise Refused(Path("TRITON_CONNECTION_AGE_S"), f"it is {age}", "whole seconds from 1, or leave it out")
    return [f"--grpc-max-connection-age={int(age) * 1000}"]


def _trace_flags(options: argparse.Namespace) -> list[str]:
    """Flags that send spans to a collector: of one request in N, and of requests with a caller's `traceparent`."""
    url, rate = options.trace_url, options.trace_rate
    if not url:
        return []
    if not _TRACE_URL.fullmatch(url) or not (rate.isdecimal() and int(rate)):
        raise Refused(
            Path("TRITON_TRACE_URL, TRITON_TRACE_RATE"),
            f"they are {url} and {rate}",
            "OTLP over HTTP, such as http://collector:4318/v1/traces; one request in how many, 1 or more",
        )
    settings = (
        "mode=opentelemetry",
        f"opentelemetry,url={url}",
        "opentelemetry,resource=service.name=triton",
        f"rate={rate}",
        "level=TIMESTAMPS",
    )
    return [f"--trace-config={setting}" for setting in settings]


@cache
def _backends(wanted: str) -> tuple[Path, tuple[str, ...]]:
    """The folder of backends to serve from, and what tritonserver is told of them.

    The native ones are tried here, because the image may have been built on a machine of another kind.
    Where one of them cannot be used, the stand-ins serve for all.
    """
    usual, native = HOME / "backends", HOME / "native-backends"
    if wanted not in ("auto", "native", "python"):
        raise Refused(Path("TRITON_BACKEND"), f"it is {wanted}", "set it to auto, native or python")
    if wanted == "python" or not _has_stand_ins():
        return usual, ()
    found = find_native_backends(VENV, HOME / "lib")
    wrong = why_not(found)
    if not wrong:
        return native, tuple(backend_flags(found.values()))
    if wanted == "native":
        raise Refused(native, f"they cannot be used: {wrong}", "TRITON_BACKEND=auto or python")
    _say(f"warning: Python stand-ins serve instead of native backends ({wrong}): see docs/docker.md")
    return usual, ()


def _has_stand_ins() -> bool:
    """Whether the backends are tritonkit's: NVIDIA's image has its own."""
    return any((HOME / "backends" / name / "model.py").is_file() for name in ENGINES)


def _supervise(
    launch: Callable[[], Launch], options: argparse.Namespace, rest: Restarting[Any] | None, gauges: Gauges
) -> int:
    repository: Path = options.repository
    asked: list[int] = []
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, _: asked.append(number))
    backoff = Backoff(_MOST_DEATHS)
    times = StartTimes(BEGAN)
    pinning = pinning_of(options.pin, cores())
    if pinning:
        _say(f"pinned to cores {listed(pinning.cores)} of {len(os.sched_getaffinity(0))}")
    while True:
        # Made for each start: models may have been published since the last one.
        process = launch()
        for name in (HTTP_SOCKET, METRICS_SOCKET, REPLACED, LOADED):
            (RUN / name).unlink(missing_ok=True)
        with pinning.inherited() if pinning else contextlib.nullcontext():
            server = process.start()
        times.launched()
        verifier = Verifier(repository, then=lambda _, times=times: times.verified())
        if not options.no_verify:
            verifier.start()
        admin = Admin(RUN, process.key, _RELOAD_S)
        planned = read_needs(options.needs).get("stub_bytes", {})
        reason, was_ready = _watch(server, repository, asked, rest, verifier, admin, planned, gauges, times, pinning)
        verifier.stop()
        if asked:
            if was_ready:
                _leave(server, asked, _leave_s(options))
            # The key of this server: the file may hold another by now.
            return _finish(server, Admin(RUN, process.key), repository)
        if verifier.findings:
            _end(server, _DRAIN_DEAD_S)
            raise Refused(repository, reason, BUILD)
        _say(f"error: {reason}; starting again")
        _end(server, _DRAIN_DEAD_S)
        end_stubs(REGIONS)
        for region in SHARED_MEMORY.glob(f"{REGIONS}*"):
            region.unlink(missing_ok=True)
        delay_s = backoff.after_death(was_ready=was_ready)
        if delay_s is None:
            _say(f"error: {_MOST_DEATHS} starts in a row did not become ready: giving up")
            return 4
        time.sleep(delay_s)
        times = StartTimes(time.monotonic())


def _leave_s(options: argparse.Namespace) -> float:
    """Within which every connection has been asked to end: gRPC varies the age by a tenth. 0 without an age."""
    age = options.connection_age_s
    return min(_LEAVE_S, 1.1 * int(age) + 1) if age else 0.0


def _leave(server: subprocess.Popen[bytes], asked: list[int], within_s: float) -> None:
    """Be not ready, and let callers go: until then calls are answered as ever. A second signal does not wait, and
    after stop.py nobody is left to wait for."""
    if (RUN / STOPPING).exists():
        return
    (RUN / STOPPING).write_text("")
    deadline = time.monotonic() + within_s
    while len(asked) < 2 and server.poll() is None and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _finish(server: subprocess.Popen[bytes], admin: Admin, repository: Path) -> int:
    """Take no new calls, answer those that are in flight, let the models finalize, and end; the exit code."""
    guarded = has_guard(server.pid)
    refuse_calls(server.pid)
    finish_ensembles(admin, ensembles(repository), _ENSEMBLES_S)
    if not guarded:
        return _end(server, DRAIN_S + _FINALIZE_S)
    if finish_models(admin, DRAIN_S + _FINALIZE_S):
        server.kill()
        server.wait()
        return 0
    return _end(server, _DRAIN_DEAD_S)


def ensembles(repository: Path) -> list[str]:
    """The repository's ensembles, each before those it calls."""
    called = {
        file.parent.name: set(_CALLED.findall(text))
        for file in sorted(repository.glob("*/config.pbtxt"))
        if "ensemble_scheduling" in (text := file.read_text())
    }
    ordered: list[str] = []
    while called:
        # Those that no other one calls; ensembles that call each other are Triton's to refuse.
        first = sorted(called.keys() - set().union(*called.values())) or sorted(called)
        ordered += first
        called = {name: parts for name, parts in called.items() if name not in first}
    return ordered


def not_loaded(admin: Admin) -> list[str]:
    """The models without a version that answers, each with Triton's reason."""
    try:
        entries = admin.index()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return [f"Triton does not say which models it has: {error}"]
    there = {entry.get("name") for entry in entries if entry.get("state") == "READY"}
    # One that Triton never tried to load, because it came after the start, has no state.
    tried = [entry for entry in entries if entry.get("state") and entry.get("reason") != "unloaded"]
    return [
        printable(f"model {entry['name']}: {entry.get('reason') or entry['state'].lower()}")
        for entry in tried
        if entry.get("name") not in there
    ]


def _watch(
    server: subprocess.Popen[bytes],
    repository: Path,
    asked: list[int],
    rest: Restarting[Any] | None,
    verifier: Verifier,
    admin: Admin,
    planned: dict[str, int],
    gauges: Gauges,
    times: StartTimes,
    pinning: Pinning | None,
) -> tuple[str, bool]:
    """Wait until it should be ended or has ended; why, and whether it had been ready."""
    stubs: StubWatch | None = None
    late: LateLoads | None = None
    lost: list[str] = []
    missing: list[str] = []

    def tell(kind: str, text: str, model: str) -> None:
        _say(f"{'error' if kind == 'stub_lost' else 'warning'}: model {model}: {text}")
        if kind == "stub_lost":
            lost.append(f"the Python stub of {model} has died: {text}")
        if kind == "streams_lost":
            spare_calls(server.pid)
            server.kill()

    while not asked:
        try:
            code = server.wait(TICK_S if stubs is not None else _LOOK_S)
            return f"tritonserver ended with exit code {code}", stubs is not None
        except subprocess.TimeoutExpired:
            pass
        if rest is not None:
            rest.poll()
        if pinning is not None and pinning.poll(server.pid):
            _say(f"moved to cores {listed(pinning.cores)}: others were busy on those before")
        if verifier.findings:
            return f"not as it was published: {verifier.findings[0]}", stubs is not None
        if lost:
            return lost[0], stubs is not None
        if stubs is not None:
            stubs.scan()
            (RUN / REPLACED).write_text(" ".join(map(str, sorted(stubs.replaced))))
        elif late is None and ready():
            late = LateLoads(admin, repository)
            late.start()
        elif late is not None and not late.is_alive() and ready():
            before, missing = missing, not_loaded(admin)
            if not missing:
                stubs = gauges.stubs = StubWatch(REGIONS, admin, planned, tell, before=gauges.stubs)
                (RUN / LOADED).write_text("")
                _say(times.line())
            elif missing != before:
                _say("error: not ready: " + "; ".join(missing))
    return "", stubs is not None


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


if __name__ == "__main__":
    sys.exit(main())
