"""Open-loop runs against running servers: a generator process, the servers' counters, a report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonkit import errors
from tritonkit.client import Client
from tritonkit.errors import ClientError, TritonkitError, UsageError
from tritonkit.machine import cores
from tritonkit.perf.load.gpu import GpuWatch
from tritonkit.perf.load.kinds import SEQUENCE, SEQUENCE_CALLS, Kind
from tritonkit.perf.load.openloop.arrivals import Arrivals, Moments, draw
from tritonkit.perf.load.openloop.counters import Counters, involved
from tritonkit.perf.load.openloop.record import INTERRUPTED, Record, Stop, joined_records, load_record
from tritonkit.perf.load.openloop.results import OpenReport, judge_slo, times_of, why_invalid
from tritonkit.perf.load.openloop.slo import Slo
from tritonkit.perf.load.openloop.units import UNITS, unit_series

__all__ = ["Generator", "OpenLoad", "moments_of", "remote_error"]

PER_PROCESS = 4000
"""Requests a second for one process of the generator: about half of its highest rate."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MARGIN_S = 120.0


@dataclass(frozen=True)
class OpenLoad:
    """One run.

    Args:
        rate_per_s: requests a second, or their highest rate if `arrivals.shape` changes it; not used with `trace`.
        duration_s: the counted part.
        warm_s: the uncounted part before, at the first rate of the run; with `trace`, its beginning.
        arrivals: the arrival process.
        trace: moments of sending, instead of drawn arrivals.
        processes: the number of the generator's processes; None: as many as the rate requires.
        in_turn: whether requests are sent in their order instead of being drawn.
        slo: the target of each model.
        give_up: whether the run ends as soon as it is certain that `slo` is missed.
    """

    rate_per_s: float
    duration_s: float
    warm_s: float = 1.0
    arrivals: Arrivals = field(default_factory=Arrivals)
    trace: Moments | None = None
    processes: int | None = None
    in_turn: bool = False
    slo: Slo | None = None
    give_up: bool = False


class Generator:
    """The load generator's process, with its requests made; a context manager.

    Args:
        root: the project.
        models: names of models of it that the servers serve; requests are drawn evenly among them.
        addresses: gRPC addresses of servers, which get requests in turns.
        timeout_s: seconds after which a request has failed.
        inputs: inputs of the only model as on the command line, NAME=VALUE; otherwise those of its workload.
        calls: the number of calls in a sequence, for models that keep state; their requests arrive in whole sequences.
        metrics: addresses of the servers' metrics, for the figures of GPUs.

    Raises:
        UsageError: a model without requests to send.
        ClientError: a server does not answer, or does not serve a model.
    """

    def __init__(
        self,
        root: Path,
        models: Sequence[str],
        addresses: Sequence[str],
        timeout_s: float = 10.0,
        inputs: Sequence[str] = (),
        calls: int = SEQUENCE_CALLS,
        metrics: Sequence[str] = (),
    ) -> None:
        self.models, self.addresses = tuple(models), tuple(addresses)
        self._root, self._timeout_s, self._inputs = root, timeout_s, tuple(inputs)
        self._calls, self.metrics = calls, tuple(metrics)
        self._interrupted = False

    def __enter__(self) -> Generator:
        self._looked_at = self._look()
        self._folder = tempfile.TemporaryDirectory(prefix="tritonkit-load-")
        # One thread for numpy: the cores are the server's.
        env = os.environ | dict.fromkeys(_THREADS, "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tritonkit.perf.load.openloop.generator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=self._root,
        )
        try:
            self.prepare()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def prepare(self, batch: int | Sequence[int] = 1) -> None:
        """Make the requests, with the answers that the server gives now: again, if another variant of a model answers
        differently, or requests are to have several items. If it fails, the old ones stay.

        Args:
            batch: items of a request, each made from one of the workload's requests; or several sizes, made in turn.

        Raises:
            UsageError: a model does not take this number of items, or its requests cannot be joined.
            ClientError: a server does not answer, or answers wrong.
        """
        sizes = [batch] if isinstance(batch, int) else list(batch)
        if not sizes or min(sizes) < 1:
            raise UsageError("the requests", found=f"{batch} items of each", wanted="1 or more")
        answer = self._ask(
            do="prepare",
            root=str(self._root),
            models=self.models,
            addresses=self.addresses,
            timeout_s=self._timeout_s,
            sizes=sizes,
            inputs=self._inputs,
            calls=self._calls,
        )
        self._model_of = np.array([self.models.index(name) for name in answer["models"]])
        self._items, self._layouts = np.array(answer["items"]), np.array(answer["layouts"])
        self._most_items: int = min(answer["most_items"])
        self._kinds: list[Kind] = answer["kinds"]
        own = [self._calls if kind == SEQUENCE else 1 for kind in self._kinds]
        self._calls_of = np.array(own)[self._model_of]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(2.0 if error is None else 0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None  # noqa: S101
        process.stdout.close()
        self._folder.cleanup()

    def run(self, load: OpenLoad) -> OpenReport:
        """Send for the run's time, and wait for the answers.

        An interrupt (Ctrl-C) ends it early: the report covers the requests that were sent. Before any of them counts,
        the interrupt is raised.

        Raises:
            UsageError: too many requests for the memory.
            ClientError: a server does not answer.
        """
        moments, warm = moments_of(load)
        choice = self._choices(len(moments), load)
        processes = load.processes or _processes(moments, int(self._calls_of[choice].sum()))
        stop = _stop(load, warm, int((moments >= warm).sum()))
        with Counters(self.addresses, self._looked_at) as counters, GpuWatch(self.metrics) as gpus:
            start, records = self._send(moments, choice, processes, stop)
        chosen = [choice[k::processes] for k in range(processes)]
        report = self._report(load, warm, records, chosen, counters.seconds(start + warm))
        right = sum(series.right for series in report.series)
        return replace(report, gpu=gpus.report(start + warm, report.duration_s, right))

    def send(self, moments: Moments, choice: NDArray[np.int64], most: int | None = None) -> Record:
        """Send these requests from one process, and return the record without a judgment.

        Args:
            moments: the moment when each is due. choice: int64 [n], each one's number, as `requests` counts them.
            most: the most requests in flight at each server, see `Sender`; with all moments 0, a closed loop.

        Raises:
            ClientError: a server does not answer.
        """
        _, (record,) = self._send(moments, choice, 1, Stop(), most)
        if record.ended == INTERRUPTED:
            raise KeyboardInterrupt
        return record

    @property
    def unit(self) -> str:
        """The unit of the rate: requests, sequences, or both."""
        return " and ".join(dict.fromkeys(UNITS[kind] for kind in self._kinds))

    @property
    def requests(self) -> int:
        """The number of different requests, of all models."""
        return len(self._model_of)

    @property
    def items(self) -> NDArray[np.int64]:
        """int64 [requests]: the number of items of each request."""
        return self._items

    @property
    def layouts(self) -> NDArray[np.int64]:
        """int64 [requests]: a number for model and shapes of each request: equal where items could be joined."""
        return self._layouts

    @property
    def most_items(self) -> int:
        """The most items that a request to any of the models may have; 0 if one does not batch."""
        return self._most_items

    def _send(
        self, moments: Moments, choice: NDArray[np.int64], processes: int, stop: Stop, most: int | None = None
    ) -> tuple[float, list[Record]]:
        """The start of a run on the monotonic clock, and the record of each process."""
        with tempfile.TemporaryDirectory(dir=self._folder.name) as name:
            folder = Path(name)
            np.savez(folder / "plan.npz", moments=moments, choice=choice)
            answer = self._ask(
                do="run",
                folder=name,
                processes=processes,
                addresses=self.addresses,
                timeout_s=self._timeout_s,
                stop=asdict(stop),
                most=most,
            )
            return answer["start"], [load_record(folder / f"{k}.npz") for k in range(processes)]

    def _report(
        self,
        load: OpenLoad,
        warm: float,
        records: Sequence[Record],
        chosen: Sequence[NDArray[np.int64]],
        counters: tuple[dict[str, Any], ...],
    ) -> OpenReport:
        record = joined_records(records)
        if self._interrupted:  # perhaps as the last answer came
            self._interrupted, record = False, replace(record, ended=INTERRUPTED)
        choice = np.concatenate([own[part.of] for own, part in zip(chosen, records, strict=True)])
        span_s = max(float(np.nanmax(record.sent, initial=0.0)), 1e-3)
        due = record.intended[record.of]
        counted = (due >= warm) & ((record.outcome >= 0) | (not record.ended))
        record = _since(record, warm)
        duration_s = max(span_s - warm, 1e-3) if record.ended else load.duration_s
        model_of = self._model_of[choice]
        series = tuple(
            unit_series(name, kind, self._calls, record, counted & (model_of == k), duration_s, load.slo)
            for k, (name, kind) in enumerate(zip(self.models, self._kinds, strict=True))
        )
        arrived = counted & ~np.isnan(record.sent) & (record.of == np.arange(len(record.of)))
        lag = times_of(1e3 * (record.sent - record.intended)[arrived])
        if lag is None and record.ended == INTERRUPTED:
            raise KeyboardInterrupt
        if lag is None:
            reason = record.ended or "no request was counted"
            raise ClientError("the run", found=reason)
        shares = tuple(part.cpu_s / span_s for part in records)
        judged = [times for one in series for _, times in one.judged if times]
        worst = max((times.at(99.0) for times in judged), default=None)
        missed = [line for one in series if load.slo for line in judge_slo(one, load.slo)]
        return OpenReport(
            duration_s, series, lag, shares, why_invalid(lag, worst, shares), tuple(missed), record.ended, counters
        )

    def _choices(self, count: int, load: OpenLoad) -> NDArray[np.int64]:
        """The request of each arrival, drawn evenly among models and evenly among each model's requests."""
        if load.in_turn:
            return np.arange(count) % len(self._model_of)
        rng = np.random.default_rng((load.arrivals.seed, 1))
        chosen = np.empty(count, np.int64)
        model = rng.integers(len(self.models), size=count)
        for k in range(len(self.models)):
            own = np.flatnonzero(self._model_of == k)
            here = model == k
            chosen[here] = own[rng.integers(len(own), size=int(here.sum()))]
        return chosen

    def _look(self) -> list[str]:
        """Check that all servers serve the models; the names of all Triton models that have a part in them."""
        names: list[str] = []
        for address in self.addresses:
            with Client(address, timeout_s=self._timeout_s, retry=None, breaker=None) as client:
                names += [name for model in self.models for name in involved(client, model)]
        return list(dict.fromkeys(names))

    def _answer(self, process: subprocess.Popen[str], running: bool) -> str:
        """Read a line; the first interrupt during a run ends the run but still waits for its figures."""
        assert process.stdout is not None  # noqa: S101
        try:
            return process.stdout.readline()
        except KeyboardInterrupt:
            if not running:
                raise
        self._interrupted = True
        process.send_signal(signal.SIGINT)
        return process.stdout.readline()

    def _ask(self, **command: Any) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None  # noqa: S101
        try:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            line = self._answer(process, command["do"] == "run")
        except BrokenPipeError:
            line = ""
        if not line:
            raise TritonkitError("the load generator", found=f"it ended with exit code {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise remote_error(answer["error"])
        return answer


def moments_of(load: OpenLoad) -> tuple[Moments, float]:
    """All moments of a run, and the place of the first that counts.

    Raises:
        UsageError: too many requests for the memory, or none.
    """
    if load.trace is not None:
        moments = load.trace[load.trace < load.warm_s + load.duration_s]
        if not (moments >= load.warm_s).any():
            raise UsageError(
                "the trace",
                found=f"no request in its first {load.warm_s + load.duration_s:g} s",
                todo="a longer --duration",
            )
        return moments, load.warm_s
    counted = draw(load.arrivals, load.rate_per_s, load.duration_s)
    if not len(counted):
        raise UsageError(
            f"a rate of {load.rate_per_s:g}/s for {load.duration_s:g} s",
            found="no request falls into it",
            todo="a longer --duration",
        )
    head = counted[counted < max(load.duration_s / 10, counted[0] + 1e-9)]
    first_per_s = len(head) / max(load.duration_s / 10, float(counted[0]) + 1e-9)
    steady = replace(load.arrivals, shape="steady", seed=load.arrivals.seed + 1)
    before = draw(steady, min(first_per_s, load.rate_per_s), load.warm_s)
    return np.concatenate([before, counted + load.warm_s]), load.warm_s


def _processes(moments: Moments, calls: int) -> int:
    span = max(float(moments[-1] - moments[0]), 1.0)
    count = -(-calls // int(PER_PROCESS * span))
    return max(1, min(count, cores()))


def _stop(load: OpenLoad, warm: float, count: int) -> Stop:
    """The condition that ends a run: the number of late answers from which on the target is certainly missed."""
    if load.slo is None or not load.give_up:
        return Stop()
    percent, ms = load.slo.tightest
    return Stop(ms, int(count * (1 - percent / 100 + load.slo.error_rate)) + 1, warm)


def _since(record: Record, warm: float) -> Record:
    """The record's times from the end of the warm-up on."""
    pieces = record.pieces
    return replace(
        record,
        intended=record.intended - warm,
        sent=record.sent - warm,
        answered=record.answered - warm,
        pieces=None if pieces is None else replace(pieces, first=pieces.first - warm),
    )


def remote_error(facts: dict[str, str]) -> TritonkitError:
    """An error of the generator's process, to be raised in this one."""
    kind = getattr(errors, facts["error"], TritonkitError)
    made: TritonkitError = kind(
        facts.get("where", ""),
        found=facts.get("found", ""),
        wanted=facts.get("wanted", ""),
        todo=facts.get("do", ""),
        details=facts.get("details", ""),
    )
    return made
