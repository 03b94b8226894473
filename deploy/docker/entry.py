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
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from allowed import cores_line
from callers import LateLoads
from checks import BUILD, Refused, printable, read_needs
from core.backoff import Backoff
from core.drain import finish_ensembles, finish_models, refuse_calls, spare_calls
from core.flags import HTTP_SOCKET, METRICS_SOCKET
from core.gauges import Gauges
from core.launch import Launch, has_guard
from core.metrics import MetricsProxy
from core.restarting import Restarting
from core.stub_watch import TICK_S, StubWatch
from core.stubs import end_stubs
from core.unix_http import Admin
from fitting import refusals
from health import LOADED, REPLACED, RUN, STOPPING, ready
from integrity import Verifier
from launching import HOST, REGIONS, SHARED_MEMORY, command, rest_proxy, say
from machine import cores
from options import parser
from pinning import Pinning, listed, pinning_of
from start_times import StartTimes

__all__ = ["ensembles", "main", "not_loaded"]

BEGAN = time.monotonic()
METRICS_PORT = 8002
_CALLED = re.compile(r'model_name:\s*"([^"]+)"')

DRAIN_S = 20
"""Seconds for the requests in flight at the end, after those of ensembles have had `_ENSEMBLES_S`."""
_LEAVE_S = 15.0
"""Longest wait for callers to leave, if their connections have an age and stop.py has not waited before."""
_LOOK_S = 0.1
_ENSEMBLES_S = 20.0
_FINALIZE_S = 8.0
# 68 s in all with `_DRAIN_DEAD_S`, 53 s after preStop: `stop_grace_period` must be longer.
# Long enough for other models' answers; Triton itself would wait forever for the dead stub's model.
_DRAIN_DEAD_S = 5.0
_RELOAD_S = 300.0
_MOST_DEATHS = 5


def main() -> int:
    """Serve until told to end: 0; 4 if it cannot."""
    os.umask(0o077)
    options, extra = parser(__doc__).parse_known_args()
    try:
        command(options, extra, DRAIN_S)  # refused before anything listens
        say(cores_line(options.repository, extra))
        _make_run_folder()
        gauges = Gauges(RUN, options.repository)
        metrics = MetricsProxy(HOST, METRICS_PORT, RUN, gauges)
        metrics.start()
        rest = None if options.no_http else rest_proxy(options)
        return _supervise(lambda: _launch(options, extra), options, rest, gauges)
    except Refused as refusal:
        say(str(refusal))
        return 4


def _launch(options: argparse.Namespace, extra: list[str]) -> tuple[Launch, Collection[str]]:
    """The process to start, and the names of the models that it does without, each of which is reported."""
    process, without = command(options, extra, DRAIN_S)
    for line in refusals(without):
        say(f"error: {line}")
    return process, without


def _make_run_folder() -> None:
    try:
        RUN.mkdir(mode=0o700, exist_ok=True)
        (RUN / STOPPING).unlink(missing_ok=True)
    except OSError as error:
        raise Refused(RUN, f"it cannot be made: {error}", "docker run --tmpfs /tmp") from None


def _supervise(
    launch: Callable[[], tuple[Launch, Collection[str]]],
    options: argparse.Namespace,
    rest: Restarting[Any] | None,
    gauges: Gauges,
) -> int:
    repository: Path = options.repository
    signals: list[int] = []
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, _: signals.append(number))
    backoff = Backoff(_MOST_DEATHS)
    times = StartTimes(BEGAN)
    pinning = pinning_of(options.pin, cores())
    if pinning:
        say(f"pinned to cores {listed(pinning.cores)} of {len(os.sched_getaffinity(0))}")
    while True:
        # Made for each start: models may have been published since the last one.
        process, without = launch()
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
        watch = _Watch(server, repository, signals, rest, verifier, admin, planned, gauges, times, pinning, without)
        reason = watch.until_the_end()
        verifier.stop()
        if signals:
            if watch.was_ready:
                _leave(server, signals, _leave_s(options))
            # The key of this server: the file may hold another by now.
            return _finish(server, Admin(RUN, process.key), repository)
        if verifier.findings:
            _end(server, _DRAIN_DEAD_S)
            raise Refused(repository, reason, BUILD)
        say(f"error: {reason}; starting again")
        _end(server, _DRAIN_DEAD_S)
        end_stubs(REGIONS)
        for region in SHARED_MEMORY.glob(f"{REGIONS}*"):
            region.unlink(missing_ok=True)
        delay_s = backoff.after_death(was_ready=watch.was_ready)
        if delay_s is None:
            say(f"error: {_MOST_DEATHS} starts in a row did not become ready: giving up")
            return 4
        time.sleep(delay_s)
        times = StartTimes(time.monotonic())


def _leave_s(options: argparse.Namespace) -> float:
    """Seconds within which every connection is asked to end: gRPC varies the age by a tenth. 0 without an age."""
    age = options.connection_age_s
    return min(_LEAVE_S, 1.1 * int(age) + 1) if age else 0.0


def _leave(server: subprocess.Popen[bytes], signals: list[int], within_s: float) -> None:
    """Be not ready, and let callers go: until then calls are answered as ever. A second signal does not wait, and
    after stop.py nobody is left to wait for."""
    if (RUN / STOPPING).exists():
        return
    (RUN / STOPPING).write_text("")
    deadline = time.monotonic() + within_s
    while len(signals) < 2 and server.poll() is None and time.monotonic() < deadline:
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


class _Watch:
    """Watches one process of the server: its stubs, its proxy, its cores and its files.

    Args:
        signals: those that asked the container to end, as they come.
        planned: model -> bytes of a stub's region.
        without: the models that are not loaded.
    """

    def __init__(
        self,
        server: subprocess.Popen[bytes],
        repository: Path,
        signals: list[int],
        rest: Restarting[Any] | None,
        verifier: Verifier,
        admin: Admin,
        planned: dict[str, int],
        gauges: Gauges,
        times: StartTimes,
        pinning: Pinning | None,
        without: Collection[str],
    ) -> None:
        self._server, self._repository, self._asked, self._rest = server, repository, signals, rest
        self._verifier, self._admin, self._planned, self._gauges = verifier, admin, planned, gauges
        self._times, self._pinning, self._without = times, pinning, without
        self._stubs: StubWatch | None = None
        self._late: LateLoads | None = None
        self._lost: list[str] = []
        self._missing: list[str] = []

    @property
    def was_ready(self) -> bool:
        """Whether every model has answered."""
        return self._stubs is not None

    def until_the_end(self) -> str:
        """Wait until the server has ended or should be ended; the reason, empty if a signal is."""
        while not self._asked:
            try:
                code = self._server.wait(TICK_S if self.was_ready else _LOOK_S)
                return f"tritonserver ended with exit code {code}"
            except subprocess.TimeoutExpired:
                pass
            if self._rest is not None:
                self._rest.poll()
            if self._pinning is not None and self._pinning.poll(self._server.pid):
                say(f"moved to cores {listed(self._pinning.cores)}: others were busy on those before")
            if self._verifier.findings:
                return f"not as it was published: {self._verifier.findings[0]}"
            if self._lost:
                return self._lost[0]
            self._look()
        return ""

    def _look(self) -> None:
        """Scan the stubs of a ready server; bring another one closer to ready."""
        if self._stubs is not None:
            self._stubs.scan()
            (RUN / REPLACED).write_text(" ".join(map(str, sorted(self._stubs.replaced))))
        elif self._late is None and ready():
            self._late = LateLoads(self._admin, self._repository, self._without)
            self._late.start()
        elif self._late is not None and not self._late.is_alive() and ready():
            before, self._missing = self._missing, not_loaded(self._admin)
            if not self._missing:
                self._all_loaded()
            elif self._missing != before:
                say("error: not ready: " + "; ".join(self._missing))

    def _all_loaded(self) -> None:
        gauges = self._gauges
        stubs = StubWatch(REGIONS, self._admin, self._planned, self._tell, before=gauges.stubs)
        self._stubs = gauges.stubs = stubs
        (RUN / LOADED).write_text("")
        say(self._times.line())

    def _tell(self, kind: str, text: str, model: str) -> None:
        say(f"{'error' if kind == 'stub_lost' else 'warning'}: model {model}: {text}")
        if kind == "stub_lost":
            self._lost.append(f"the Python stub of {model} has died: {text}")
        if kind == "streams_lost":
            spare_calls(self._server.pid)
            self._server.kill()


def _end(server: subprocess.Popen[bytes], within_s: float) -> int:
    """Let the server answer the requests in flight, then end it; returns its exit code."""
    server.terminate()
    try:
        return server.wait(within_s)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
