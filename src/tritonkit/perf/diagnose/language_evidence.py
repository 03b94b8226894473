"""Changes of a language model between looks at its metrics. Pure: no clock, no I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tritonkit.perf.diagnose.snapshot import LanguageLook

__all__ = ["LanguageEvidence", "language_evidence"]

Counters = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class LanguageEvidence:
    """A language model on one server, over the window.

    Args:
        running, waiting, stalled: sequences in the running batch, requests that wait for a place in it, and running
            sequences that the last step left out. cache: the used share of the cache, 0 to 1. All four
            are means of all looks.
        tokens_per_s, prompt_tokens_per_s: generated tokens, and prompt tokens of answers that began.
        paused: the number of times a sequence that had begun to answer got no token because the cache was full.
        ended, refused: requests that ended, and those of them for which there was no room to wait.
        busy: the share of the time in which the engine made steps.
        decode_ms, prefill_ms: mean duration of steps with one token for each sequence, and of steps that also computed
            prompts; None if there was none. prefill_share: the share of the engine's time in the second kind.
        prompt_tokens_per_step: prompt tokens in such a step; those found in the prefix cache count too.
        first_ms: mean time from a request to its first token.
        between_ms, between_p95_ms: time between two tokens of a sequence, median and 95th percentile, interpolated
            within a bucket.
    """

    running: float
    waiting: float
    stalled: float
    cache: float
    tokens_per_s: float = 0.0
    prompt_tokens_per_s: float = 0.0
    paused: int = 0
    ended: int = 0
    refused: int = 0
    busy: float = 0.0
    decode_ms: float | None = None
    prefill_ms: float | None = None
    prefill_share: float = 0.0
    prompt_tokens_per_step: float | None = None
    first_ms: float | None = None
    between_ms: float | None = None
    between_p95_ms: float | None = None


def language_evidence(looks: Sequence[tuple[float, LanguageLook]]) -> LanguageEvidence | None:
    """Evaluate looks, each with its moment in seconds; None for fewer than two."""
    if len(looks) < 2 or looks[-1][0] <= looks[0][0]:
        return None
    seconds = looks[-1][0] - looks[0][0]
    counters = [look.counters for _, look in looks]
    rise = _rise(counters[0], counters[-1])
    prefill, decode = rise("steps_total", "prefill"), rise("steps_total", "decode")
    prefill_s = rise("step_seconds_total", "prefill")
    decode_s = rise("step_seconds_total", "decode")
    prompt_tokens, begun = rise("prompt_tokens_total"), rise("first_token_seconds_count")
    between = _buckets("between_tokens_seconds_bucket", rise, counters[-1])
    outcomes = [own for name, own in counters[-1] if name == "requests_total"]

    def mean(name: str) -> float:
        return statistics.fmean(look.gauges.get(name, 0.0) for _, look in looks)

    return LanguageEvidence(
        mean("running"),
        mean("waiting"),
        mean("stalled"),
        mean("cache_usage"),
        tokens_per_s=rise("tokens_total") / seconds,
        prompt_tokens_per_s=prompt_tokens / seconds,
        paused=int(rise("preemptions_total")),
        ended=int(sum(rise("requests_total", own) for own in outcomes)),
        refused=int(rise("requests_total", "refused")),
        # A step is counted when it ends, so one may belong to the time before.
        busy=min(1.0, (prefill_s + decode_s) / seconds),
        decode_ms=1e3 * decode_s / decode if decode else None,
        prefill_ms=1e3 * prefill_s / prefill if prefill else None,
        prefill_share=prefill_s / (prefill_s + decode_s) if prefill_s + decode_s else 0.0,
        prompt_tokens_per_step=prompt_tokens / prefill if prefill else None,
        first_ms=1e3 * rise("first_token_seconds_sum") / begun if begun else None,
        between_ms=_quantile(between, 0.5),
        between_p95_ms=_quantile(between, 0.95),
    )


Rise = Callable[..., float]


def _rise(first: Counters, last: Counters) -> Rise:
    """Increases of counters; if the number of tokens fell, all were reset."""
    fresh = last.get(("tokens_total", ""), 0.0) < first.get(("tokens_total", ""), 0.0)

    def rise(name: str, own: str = "") -> float:
        before = 0.0 if fresh else first.get((name, own), 0.0)
        return max(0.0, last.get((name, own), 0.0) - before)

    return rise


def _buckets(name: str, rise: Rise, counters: Counters) -> list[tuple[float, float]]:
    """Upper bounds in ms, and the number of values within each."""
    bounds = [own for metric, own in counters if metric == name]
    return sorted((1e3 * float(own), rise(name, own)) for own in bounds)


def _quantile(buckets: Sequence[tuple[float, float]], q: float) -> float | None:
    """A quantile, interpolated within a bucket as in Prometheus; beyond the last bound it is that bound."""
    if not buckets or not buckets[-1][1]:
        return None
    rank = q * buckets[-1][1]
    below, count_below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if math.isinf(bound) or count <= count_below:
                return below
            return below + (bound - below) * (rank - count_below) / (count - count_below)
        below, count_below = bound, count
    return below
