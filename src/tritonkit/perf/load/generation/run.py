"""Loads of a language model on running servers: inspects the model, sends from a separate process, and judges."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from tritonkit.client import Client
from tritonkit.errors import ClientError, TritonkitError
from tritonkit.perf.load.generation.judge import judge_generation
from tritonkit.perf.load.generation.prompts import Corpus
from tritonkit.perf.load.generation.records import GenerationRecord, load_record
from tritonkit.perf.load.generation.requests import TextTraffic, requests_of
from tritonkit.perf.load.generation.results import GenerationReport, report_of
from tritonkit.perf.load.generation.sending_plan import READY, SendingPlan, save_plan
from tritonkit.perf.load.generation.target import look_at, words_of_tokens
from tritonkit.perf.load.gpu import GpuWatch
from tritonkit.perf.load.openloop.arrivals import Moments
from tritonkit.perf.load.openloop.run import OpenLoad, moments_of, remote_error
from tritonkit.perf.load.openloop.sender import INTERRUPTED
from tritonkit.perf.load.openloop.slo import Slo

__all__ = ["ClosedLoad", "TextGenerator"]

_PREPARED = 50_000
"""Prepared requests of a closed loop, whose number is not known beforehand; after the last comes the first again."""
_END_S = 5.0
_LOOK_S = 60.0
"""Seconds for an answer of one token to a short text, before the run."""


@dataclass(frozen=True)
class ClosedLoad:
    """A closed loop.

    Args:
        users: streams under way at the same time; each is followed by the next when it has ended.
        duration_s: seconds that count. warm_s: seconds of warm-up before them.
        seed: the seed of the lengths and texts.
        slo: the target; None: no target.
    """

    users: int
    duration_s: float
    warm_s: float = 1.0
    seed: int = 0
    slo: Slo | None = None


class TextGenerator:
    """Loads a language model; a context manager. At its start it asks the server for the number of tokens in some
    texts, and for the size of its window.

    Args:
        model: the model's name.
        addresses: gRPC addresses of servers, which get requests in turns.
        traffic: lengths of prompts and answers.
        timeout_s: seconds after which an answer that has not ended has failed.
        min_rate: right answers a second that a load must reach in addition to its target.
        metrics: addresses of the servers' metrics, for the figures of GPUs.

    Raises:
        UsageError: it is not a language model, or the traffic does not fit it.
        ClientError: a server does not answer, or does not serve the model.
    """

    def __init__(
        self,
        model: str,
        addresses: Sequence[str],
        traffic: TextTraffic,
        timeout_s: float = 120.0,
        min_rate: float | None = None,
        metrics: Sequence[str] = (),
    ) -> None:
        self.model, self.addresses = model, tuple(addresses)
        self._traffic, self._timeout_s, self._min_rate = traffic, timeout_s, min_rate
        self._metrics = tuple(metrics)

    def __enter__(self) -> TextGenerator:
        self._corpus = Corpus()
        targets = []
        for address in self.addresses:
            with Client(address, timeout_s=_LOOK_S, retry=None, breaker=None) as client:
                targets.append(look_at(client, self.model))
                if len(targets) == 1:
                    self._worth = words_of_tokens(client, targets[0], self._corpus)
        self._target = replace(
            targets[0],
            window=min(target.window for target in targets),
            repeatable=all(target.repeatable for target in targets),
        )
        # Traffic that does not fit is refused before the first run.
        requests_of(self._traffic, 1, 0, self._corpus, self._worth, self._target.window)
        self._folder = tempfile.TemporaryDirectory(prefix="tritonkit-load-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def run(self, load: OpenLoad) -> GenerationReport:
        """An open loop: requests leave at their moments, independent of the server. `processes`, `in_turn` and
        `give_up` of the load have no meaning here.

        An interrupt (Ctrl-C) ends it early: the report covers the answers that had ended.

        Raises:
            UsageError: there are too many requests for the memory, or none.
            ClientError: a server does not answer.
        """
        moments, warm_s = moments_of(load)
        return self._run(moments, 0, warm_s, load.duration_s, load.arrivals.seed, load.slo or Slo({}))

    def run_closed(self, load: ClosedLoad) -> GenerationReport:
        """Run a closed loop with a number of streams; otherwise as `run`."""
        nothing = np.zeros(0)
        return self._run(nothing, load.users, load.warm_s, load.duration_s, load.seed, load.slo or Slo({}))

    def _run(
        self, moments: Moments, users: int, warm_s: float, duration_s: float, seed: int, slo: Slo
    ) -> GenerationReport:
        target = self._target
        count = _PREPARED if users else len(moments)
        requests = requests_of(self._traffic, count, seed, self._corpus, self._worth, target.window)
        plan = SendingPlan(
            self.addresses,
            self.model,
            target.inputs,
            requests,
            moments,
            users,
            warm_s + duration_s,
            self._timeout_s,
        )
        with GpuWatch(self._metrics) as gpus:
            record = self._send(plan)
        report = report_of(
            self.model,
            record,
            requests,
            users=users,
            warm_s=warm_s,
            duration_s=duration_s,
            window=target.window,
            repeatable=target.repeatable,
            slo=slo,
        )
        if not report.requests:
            if report.ended == INTERRUPTED:
                raise KeyboardInterrupt
            reason = report.ended or "no request was counted"
            raise ClientError("the run", found=reason)
        return replace(
            report,
            missed=judge_generation(report, slo, self._min_rate),
            gpu=gpus.report(record.start + warm_s, report.duration_s, report.right),
        )

    def _send(self, plan: SendingPlan) -> GenerationRecord:
        """Let a separate process send, and read its record."""
        with tempfile.TemporaryDirectory(dir=self._folder.name) as name:
            folder = Path(name)
            save_plan(plan, folder)
            # Threads of BLAS have nothing to do there: the cores are the server's. A session of its own: an interrupt
            # reaches it through this process alone, once it can be taken.
            process = subprocess.Popen(
                [sys.executable, "-m", "tritonkit.perf.load.generation.sender", name],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
            with contextlib.ExitStack() as stack:
                stack.callback(_finish, process)
                code = _waited(process)
            if (folder / "error.json").is_file():
                raise remote_error(json.loads((folder / "error.json").read_text()))
            if code:
                raise TritonkitError("the load generator", found=f"it ended with exit code {code}")
            return load_record(folder / "record.npz")


def _waited(process: subprocess.Popen[str]) -> int:
    """Wait for the exit code; the first interrupt during a run ends the run but still waits for its figures."""
    assert process.stdout is not None  # noqa: S101
    ready = process.stdout.readline().strip() == READY
    try:
        return process.wait()
    except KeyboardInterrupt:
        if not ready:
            raise
    process.send_signal(signal.SIGINT)
    return process.wait()


def _finish(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    if process.stdout is not None:
        process.stdout.close()
