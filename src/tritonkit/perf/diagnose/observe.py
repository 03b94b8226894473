"""Looks at servers under the traffic that they have: counters, metrics, the machine, and a few requests of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from types import TracebackType
from typing import Any

from tritonkit.client import Client, ModelStatistics
from tritonkit.datatypes import DATATYPES
from tritonkit.errors import ClientError, ModelNotFound, TritonkitError
from tritonkit.machine import cores
from tritonkit.perf.diagnose.bounds import in_flight_note, stall_note
from tritonkit.perf.diagnose.calls import CallLog
from tritonkit.perf.diagnose.clocks import Clocks, has_clocks
from tritonkit.perf.diagnose.configuration import facts_of
from tritonkit.perf.diagnose.machine import RunnableThreads, find_server, look_at_machine, server_processes
from tritonkit.perf.diagnose.metrics import Metrics, read_metrics
from tritonkit.perf.diagnose.snapshot import Look, ModelFacts, Observation, Probe

__all__ = ["Watcher", "plain_inputs"]

_TIMEOUT_S = 2.0
"""Seconds for an answer about a server; one that takes longer does not count."""
_PROBE_TIMEOUT_S = 10.0
_EVERY_S = 0.5
_PAUSE_S = 0.25
"""Seconds between two requests of our own: a few a second disturb nothing, and 5 s of them have a median."""
_STATES_EVERY_S = 0.1
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")


def plain_inputs(client: Client, model: str) -> dict[str, Any] | None:
    """One item of zeros with open axes 1; None where a text or an image would have to be made up."""
    import numpy as np

    inputs = {}
    for name, spec in client.model(model).signature.inputs.items():
        if spec.optional:
            continue
        dtype = DATATYPES[spec.datatype].numpy
        if spec.datatype == "BYTES":
            return None
        shape = tuple(max(1, size) for size in spec.dims)
        # BF16 is an array of float32 to the client.
        inputs[name] = np.zeros((1, *shape) if spec.batched else shape, dtype or "float32")
    return inputs


class Watcher:
    """Looks at servers while it is open; a context manager.

    Args:
        addresses: gRPC addresses of servers that serve the same models.
        model: the model to observe; empty for all that they serve.
        inputs: one item for requests of our own to `model`; without it none are sent.
        metrics: the address of a server's Prometheus metrics, by its gRPC address.
        calls: the log of the calls of a client in this program.
        window_s: the seconds of the past that `observation` covers.
        processes: the server's process ID by gRPC address, where it is known. A process that listens on a port of
            this machine is found without it.

    Raises:
        ServerUnavailable: no server answers.
        ModelNotFound: no server serves the model.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        model: str = "",
        *,
        inputs: Mapping[str, Any] | None = None,
        metrics: Mapping[str, str] | None = None,
        calls: CallLog | None = None,
        window_s: float = 5.0,
        processes: Mapping[str, int] | None = None,
    ) -> None:
        self._addresses, self._model, self._inputs = tuple(addresses), model, inputs
        self._metrics = dict(metrics or {})
        self._calls = calls
        self._window_s = window_s
        kept = int(window_s / _EVERY_S) + 2
        self._looks: dict[str, deque[Look]] = {a: deque(maxlen=kept) for a in self._addresses}
        self._probes: deque[Probe] = deque(maxlen=1000)
        self._trips: dict[str, deque[tuple[float, float]]] = {a: deque(maxlen=200) for a in self._addresses}
        self._runnable = RunnableThreads(int(window_s / _STATES_EVERY_S))
        self._pids = {a: pid for a in addresses if (pid := (processes or {}).get(a) or _local(a))}
        self._clocks = Clocks()
        self._facts: dict[str, ModelFacts] = {}
        self._notes: dict[str, None] = {}
        self._end = threading.Event()

    def __enter__(self) -> Watcher:
        self._clients = {a: _client(a, _TIMEOUT_S) for a in self._addresses}
        try:
            self._learn()
        except BaseException:
            self._close()
            raise
        tasks: list[Callable[[], None]] = [self._count]
        if self._pids and has_clocks():
            tasks.append(partial(self._clocks.watch, self._end))
        for address in self._addresses:
            tasks += [partial(self._watch, address), partial(self._send, address)]
        self._threads = [threading.Thread(target=task, name="tritonkit-diagnose", daemon=True) for task in tasks]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._close()

    def _close(self) -> None:
        for client in self._clients.values():
            client.close()

    def wait(self, seconds: float) -> None:
        """Let the looks go on for `seconds`."""
        self._end.wait(seconds)

    def observation(self) -> Observation:
        """The observation of the last `window_s`."""
        since = time.monotonic() - self._window_s
        means, everywhere = self._runnable.means()
        return Observation(
            entry=self._model,
            facts=dict(self._facts),
            looks={address: tuple(looks) for address, looks in self._looks.items()},
            probes=tuple(probe for probe in tuple(self._probes) if probe.at_s >= since),
            calls=() if self._calls is None else self._calls.since(since, self._model),
            round_trips_ms={
                address: tuple(ms for at, ms in tuple(trips) if at >= since) for address, trips in self._trips.items()
            },
            runnable=means,
            runnable_all=everywhere,
            clocks=self._clocks.since(since),
            notes=tuple(self._notes),
        )

    # -- before the first look

    def _learn(self) -> None:
        """Read the configuration of all observed models from the first server that answers."""
        failed: ClientError | None = None
        for client in self._clients.values():
            try:
                for name in self._names(client):
                    self._learn_model(client, name)
                self._note_bounds()
                return
            except ModelNotFound:
                raise
            except ClientError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _note_bounds(self) -> None:
        """Bounded queues that may stand still and ensembles with a bound, on each server that answers."""
        for address, client in self._clients.items():
            with contextlib.suppress(ClientError):
                version = client.server_metadata().version
                facts, pid = self._facts.values(), self._pids.get(address)
                notes = (stall_note(facts, version, pid), in_flight_note(facts, pid))
                self._notes |= dict.fromkeys(filter(None, notes))

    def _names(self, client: Client) -> list[str]:
        if self._model:
            return [self._model]
        # The repository's index requires an admin key, but every loaded model has statistics.
        return list(_together(client.statistics("")))

    def _learn_model(self, client: Client, name: str) -> None:
        if name in self._facts:
            return
        self._facts[name] = facts = facts_of(client.config(name))
        for step in facts.steps:
            self._learn_model(client, step)
        for called in facts.calls:
            with contextlib.suppress(ModelNotFound):
                self._learn_model(client, called)
        if facts.calls:
            text = f"{name} calls {', '.join(facts.calls)} from its Python: its runs last as long as theirs"
            self._notes[text] = None

    # -- each in its thread

    def _watch(self, address: str) -> None:
        next_at = time.monotonic()
        while True:
            self._looks[address].append(self._look(address))
            next_at = max(next_at + _EVERY_S, time.monotonic())
            if self._end.wait(next_at - time.monotonic()):
                return

    def _look(self, address: str) -> Look:
        pid = self._pids.get(address)
        machine = None if pid is None else look_at_machine(pid, cores())
        read = self._metrics_of(address)
        try:
            counters = _together(self._clients[address].statistics(""))
        except ClientError as error:
            message = f"{type(error).__name__}: {error.found}"
            return Look(address, time.monotonic(), machine=machine, error=message)
        at_s = time.monotonic()
        if read is None:
            return Look(address, at_s, counters, machine=machine)
        return Look(address, at_s, counters, read.pending, read.rejected, read.language, machine, gpus=read.gpus)

    def _metrics_of(self, address: str) -> Metrics | None:
        metrics = self._metrics.get(address)
        if metrics is None:
            return None
        try:
            return read_metrics(metrics)
        except (OSError, ValueError) as error:
            self._notes[f"no metrics from {metrics}: {error}"] = None
            return None

    def _send(self, address: str) -> None:
        """A round trip without a model, and a request for the model, again and again."""
        with _client(address, _PROBE_TIMEOUT_S) as client:
            while not self._end.is_set():
                started = time.monotonic()
                with contextlib.suppress(ClientError):
                    client.server_metadata()
                    ended = time.monotonic()
                    self._trips[address].append((ended, 1e3 * (ended - started)))
                took_s = self._probe(client, address) if self._inputs is not None else 0.0
                # At most a quarter of the time, so that these requests do not add a load of their own.
                self._end.wait(max(_PAUSE_S, 3 * took_s))

    def _probe(self, client: Client, address: str) -> float:
        started = time.monotonic()
        try:
            timing = client.model(self._model).predict(inputs=self._inputs).timing
            probe = Probe(address, time.monotonic(), 1e3 * timing.total_s, 1e3 * timing.wait_s)
        except TritonkitError as error:
            ended = time.monotonic()
            message = f"{type(error).__name__}: {error.found}"
            probe = Probe(address, ended, 1e3 * (ended - started), 0.0, message)
        self._probes.append(probe)
        return time.monotonic() - started

    def _count(self) -> None:
        """States of the servers' threads."""
        pids: tuple[int, ...] = ()
        at = 0.0
        while self._pids and not self._end.wait(_STATES_EVERY_S):
            if time.monotonic() - at > 1:
                at = time.monotonic()
                pids = tuple({p for server in self._pids.values() for p in server_processes(server)})
            self._runnable.look(pids)


def _client(address: str, timeout_s: float) -> Client:
    # Failures are what we look for, so nothing is retried or held back.
    return Client(address, timeout_s=timeout_s, retry=None, breaker=None)


def _local(address: str) -> int | None:
    host, _, port = address.removeprefix("grpc://").rpartition(":")
    return find_server(int(port)) if host in _LOOPBACK and port.isdigit() else None


def _together(versions: Sequence[ModelStatistics]) -> dict[str, ModelStatistics]:
    """Counters by model, its versions added up."""
    counters = [field.name for field in fields(ModelStatistics)][2:]
    by_name: dict[str, ModelStatistics] = {}
    for statistics in versions:
        so_far = by_name.get(statistics.name)
        if so_far is not None:
            added = {name: getattr(so_far, name) + getattr(statistics, name) for name in counters}
            statistics = replace(so_far, **added)
        by_name[statistics.name] = statistics
    return by_name
