"""Measurements of a language model, as Triton's custom metrics with the labels `model` and `version`.

A change of a metric is a message to Triton, so changes are collected and written together. Triton's own histograms take
one message for each value, which is too much for every token. Here a histogram consists of its buckets, sum and count
as counters of the usual names, which Prometheus reads as any histogram.

OpenVINO GenAI does not report how many tokens of a prompt were found in the prefix cache, so there is no metric for it.
It does not report preemptions either, but those of sequences that had begun to answer are visible: its scheduler serves
them before prompts and gives each a token in every step, unless the cache has no block for it or others took its blocks
(`llm_engine`).
"""

from __future__ import annotations

from bisect import bisect_left
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_BETWEEN_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
_FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

OUTCOMES = ("stop", "length", "cancelled", "deadline", "refused", "invalid", "failed")
"""Outcomes of a request: `refused` for lack of room, `invalid` by its caller's mistake, `failed` by any other error."""
PREFILL, DECODE = "prefill", "decode"
"""Phases of a step: whether it also computed tokens of prompts, or only one token for each sequence."""


class Histogram:
    """Counts of seconds, by upper bounds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def totals(self) -> list[int]:
        """Number of values within each bound; the last is the number of all values."""
        total = 0
        return [total := total + count for count in self.counts]


class Counts:
    """Counters that the engine's thread changes, and ends of requests, which several threads change; others only
    read."""

    def __init__(self) -> None:
        self.tokens = 0
        self.prompt_tokens = 0
        self.preemptions = 0
        self.first = Histogram(_FIRST_S)
        self.between = Histogram(_BETWEEN_S)
        self.steps = dict.fromkeys((PREFILL, DECODE), 0)
        self.step_seconds = dict.fromkeys((PREFILL, DECODE), 0.0)
        self.running = 0
        self.waiting = 0
        self.stalled = 0
        self.cache = 0.0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self._ending = Lock()

    def now(self, running: int, waiting: int, stalled: int, cache: float) -> None:
        """Number of sequences, of those without a part in the last step, and the part of the cache they hold, 0 to
        1."""
        self.running, self.waiting, self.stalled, self.cache = running, waiting, stalled, cache

    def step(self, phase: str, seconds: float) -> None:
        """Count a step."""
        self.steps[phase] += 1
        self.step_seconds[phase] += seconds

    def end(self, outcome: str) -> None:
        """Count a request's end."""
        with self._ending:
            self.outcomes[outcome] += 1


_COUNTERS = {
    "tokens_total": "Tokens generated",
    "prompt_tokens_total": "Tokens of prompts whose answer has begun",
    "preemptions_total": "Times that a sequence which had begun to answer had to pause for want of cache",
}
_LABELLED = {
    "requests_total": ("Requests that have ended", "outcome", OUTCOMES),
    "steps_total": ("Steps of the engine", "phase", (PREFILL, DECODE)),
    "step_seconds_total": ("Seconds that the engine's steps took", "phase", (PREFILL, DECODE)),
}
"""Counters with a label of their own, and the label's values."""
_GAUGES = {
    "running": "Sequences that run",
    "waiting": "Requests that wait for a place",
    "stalled": "Running sequences that had no part in the last step",
    "cache_usage": "Part of the cache that running sequences hold, 0 to 1",
}
_HISTOGRAMS = {
    "first_token_seconds": "Time from a request to its first token",
    "between_tokens_seconds": "Time between two tokens of a sequence",
}


class Metrics:
    """Counts as Triton's metrics.

    Args:
        utils: Triton's module for Python models.
        model: the model's name.
        version: the model's version.
    """

    def __init__(self, utils: Any, model: str, version: str) -> None:
        self._utils = utils
        self._labels = {"model": model, "version": version}
        self._families: list[Any] = []
        self._written: dict[Any, float] = {}
        self._gauges = {key: self._one(key, text, gauge=True) for key, text in _GAUGES.items()}
        self._counters = {key: self._one(key, text) for key, text in _COUNTERS.items()}
        self._labelled = {key: self._by_label(key, *described) for key, described in _LABELLED.items()}
        bounds = {"first_token_seconds": _FIRST_S, "between_tokens_seconds": _BETWEEN_S}
        self._histograms = {key: self._histogram(key, text, bounds[key]) for key, text in _HISTOGRAMS.items()}

    def write(self, counts: Counts) -> None:
        """Bring Triton's values up to these; one message for each that has changed."""
        gauges = {
            "running": counts.running,
            "waiting": counts.waiting,
            "stalled": counts.stalled,
            "cache_usage": counts.cache,
        }
        for key, value in gauges.items():
            self._set(self._gauges[key], value)
        self._raise(self._counters["tokens_total"], counts.tokens)
        self._raise(self._counters["prompt_tokens_total"], counts.prompt_tokens)
        self._raise(self._counters["preemptions_total"], counts.preemptions)
        for key, values in (
            ("requests_total", counts.outcomes),
            ("steps_total", counts.steps),
            ("step_seconds_total", counts.step_seconds),
        ):
            for label, value in values.items():
                self._raise(self._labelled[key][label], value)
        for key, histogram in (("first_token_seconds", counts.first), ("between_tokens_seconds", counts.between)):
            totals = histogram.totals()
            for metric, value in zip(self._histograms[key], (*totals, totals[-1], histogram.sum), strict=True):
                self._raise(metric, value)

    def close(self) -> None:
        """Release the metrics, then their families, in the order that Triton demands."""
        self._gauges, self._counters, self._histograms, self._written = {}, {}, {}, {}
        self._labelled = {}
        self._families.clear()

    def _set(self, metric: Any, value: float) -> None:
        if self._written.get(metric) != value:
            metric.set(value)
            self._written[metric] = value

    def _raise(self, metric: Any, value: float) -> None:
        if (more := value - self._written.get(metric, 0)) > 0:
            metric.increment(more)
            self._written[metric] = value

    def _family(self, name: str, text: str, gauge: bool = False) -> Any:
        kind = self._utils.MetricFamily.GAUGE if gauge else self._utils.MetricFamily.COUNTER
        family = self._utils.MetricFamily(name=f"tritonkit_llm_{name}", description=text, kind=kind)
        self._families.append(family)
        return family

    def _one(self, name: str, text: str, gauge: bool = False) -> Any:
        return self._family(name, text, gauge).Metric(labels=self._labels)

    def _by_label(self, name: str, text: str, label: str, values: tuple[str, ...]) -> dict[str, Any]:
        family = self._family(name, text)
        return {value: family.Metric(labels=self._labels | {label: value}) for value in values}

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...]) -> list[Any]:
        """The buckets, the last without a bound, then count and sum."""
        buckets = self._family(f"{name}_bucket", text)
        labels: Iterator[str] = iter([*map(str, bounds), "+Inf"])
        made = [buckets.Metric(labels=self._labels | {"le": bound}) for bound in labels]
        return [*made, self._one(f"{name}_count", text), self._one(f"{name}_sum", text)]
