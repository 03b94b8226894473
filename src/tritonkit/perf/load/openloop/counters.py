"""The server's counters during a run: queue and batch sizes second by second, of every model involved."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any

from tritonkit.client import Client, ModelStatistics
from tritonkit.errors import ClientError
from tritonkit.perf.load.profile import steps_of

__all__ = ["Counters", "ServerSecond", "involved"]

_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class ServerSecond:
    """One Triton model over about a second, all servers together.

    Args:
        at_s, until_s: its begin and end, in seconds since the run began.
        requests: requests that succeeded. A request's batch may hold several items.
        items, runs: executed items, and runs of the model.
        batch: mean items of a run; None where nothing ran.
        queue_ms, compute_ms: mean times of a request in the queue and in the run; None where none succeeded.
        failures: failures that Triton counted.
    """

    model: str
    at_s: float
    until_s: float
    requests: int
    items: int
    runs: int
    failures: int
    batch: float | None
    queue_ms: float | None
    compute_ms: float | None


def involved(client: Client, model: str) -> list[str]:
    """The models that run for a request: the steps of an ensemble, because the ensemble itself never runs."""
    return list(dict.fromkeys(step.model for step in steps_of(client, model))) or [model]


class Counters:
    """Asks the servers for their statistics every second, as a context manager around a run.

    Args:
        addresses: the servers' addresses.
        models: Triton models to look at.
    """

    def __init__(self, addresses: Sequence[str], models: Sequence[str], every_s: float = 1.0) -> None:
        self._models, self._every_s = models, every_s
        self._client = Client(addresses, timeout_s=_TIMEOUT_S, retry=None, breaker=None)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tritonkit-counters", daemon=True)
        self._seen: list[tuple[float, dict[str, Sequence[ModelStatistics]]]] = []

    def __enter__(self) -> Counters:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self._look()
        self._client.close()

    def seconds(self, start: float) -> tuple[dict[str, Any], ...]:
        """The counts since the run's start, a moment of the monotonic clock."""
        rows = []
        for (before_at, before), (after_at, after) in pairwise(self._seen):
            if after_at <= start or after_at - before_at < self._every_s / 4:
                continue
            for model in self._models:
                second = _difference(model, before_at - start, after_at - start, before[model], after[model])
                rows.append(asdict(second))
        return tuple(rows)

    def _watch(self) -> None:
        next_at = time.monotonic()
        while not self._end.wait(max(next_at - time.monotonic(), 0.0)):
            next_at += self._every_s
            self._look()

    def _look(self) -> None:
        at = time.monotonic()
        # All versions of a model on all servers; a look that lacks a part would show its counters falling.
        with contextlib.suppress(ClientError):
            self._seen.append((at, {m: self._client.statistics(m) for m in self._models}))


def _difference(
    model: str, at_s: float, until_s: float, before: Sequence[ModelStatistics], after: Sequence[ModelStatistics]
) -> ServerSecond:
    def more(name: str) -> Any:
        sums = (sum(getattr(statistics, name) for statistics in stats) for stats in (after, before))
        return max(0, next(sums) - next(sums))

    requests, items, runs = (more(f"{name}_count") for name in ("success", "inference", "execution"))
    compute_s = sum(more(f"compute_{part}_s") for part in ("input", "infer", "output"))
    return ServerSecond(
        model,
        round(at_s, 3),
        round(until_s, 3),
        requests,
        items,
        runs,
        more("failure_count"),
        items / runs if runs else None,
        1e3 * more("queue_s") / requests if requests else None,
        1e3 * compute_s / requests if requests else None,
    )
