"""Whether callers that send several items in one request hold a target at a higher rate of items."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import Generator, Slo
from tritonkit.perf.load.openloop.grouped import GroupedTrial, highest_item_rate

__all__ = ["ClientBatching", "best_client_batching"]

_SIZES = (16, 4)
_DELAYS_S = (0.001, 0.005)
_WAIT = 5
"""A client waits no longer than this share of the target: the rest is the server's."""
_COMPANY = 0.2
"""Items that must be expected within a delay: with fewer, nearly all go alone, and a gain would be chance."""
_TRIAL_S, _LONGEST_S = 4.0, 8.0
_TAIL = 5
"""Items above the target's percentile that a trial should see."""


@dataclass(frozen=True)
class ClientBatching:
    """Settings of batching in clients.

    Args:
        items: the most items of a request.
        delay_s: the longest time that the first item waits for others.
        rate_per_s: the rate of items that holds the target.
        tail_ms: latency at the target's highest percentile, in the worst run at that rate.
    """

    items: int
    delay_s: float
    rate_per_s: float
    tail_ms: float

    def __str__(self) -> str:
        return _named(self.items, self.delay_s)


def best_client_batching(
    generator: Generator, slo: Slo, rate_per_s: float, budget_s: float, say: Callable[[str], None] = lambda _: None
) -> ClientBatching | None:
    """Let items arrive at one client, which sends up to 16 or 4 of them in a request when these are there or the
    first has waited for 1 or 5 ms, and check whether that holds the target at a higher rate than single items do.

    Each way has to hold it at 1.05 times the best rate so far, gives up at the first miss and climbs otherwise; see
    `climb`. Then the generator has requests of single items again, unless there was an error or an interrupt.

    Args:
        generator: the load generator for the one model, on servers that serve it in any way.
        rate_per_s: the highest rate that holds `slo` with single items.
        budget_s: seconds for all trials; no trial begins that would not end within them.
        say: called with a line for each trial, and with the reason if there are none.

    Returns:
        The best way, or None if none holds a higher rate, the model cannot batch, or there is no time.

    Raises:
        ClientError: a server does not answer.
    """
    until = time.monotonic() + budget_s
    ways = _ways(generator.most_items, slo, rate_per_s)
    if not ways:
        say(_why_none(generator.most_items))
        return None
    try:
        generator.prepare(range(1, max(items for items, _ in ways) + 1))
    except UsageError as error:
        say(f"no batching by the client: {error.where}: {error.found}")
        return None
    best: ClientBatching | None = None
    for items, delay_s in ways:
        best_per_s = best.rate_per_s if best else rate_per_s
        best = _tried(generator, slo, best_per_s, (items, delay_s), until, say) or best
    generator.prepare()
    return best


def _ways(most_items: int, slo: Slo, rate_per_s: float) -> list[tuple[int, float]]:
    """Sizes and delays that are worth a trial, those of which most is expected first."""
    most_s = slo.tightest[1] / 1e3 / _WAIT
    delays = sorted({min(delay_s, most_s) for delay_s in _DELAYS_S}, reverse=True)
    sizes = sorted({min(items, most_items) for items in _SIZES if most_items > 1}, reverse=True)
    return [(items, delay_s) for items in sizes for delay_s in delays if rate_per_s * delay_s >= _COMPANY]


def _why_none(most_items: int) -> str:
    if most_items <= 1:
        return "no batching by the client: the model takes single items alone"
    return "no batching by the client: too few items come in its longest wait"


def _tried(
    generator: Generator, slo: Slo, known_per_s: float, way: tuple[int, float], until: float, say: Callable[[str], None]
) -> ClientBatching | None:
    """A way with the rate that it holds; None if it is not above the known one."""
    wanted_s = _TAIL / (1 - slo.tightest[0] / 100) / known_per_s
    rate, trials = highest_item_rate(
        generator,
        slo,
        known_per_s,
        *way,
        seconds=min(max(_TRIAL_S, wanted_s), _LONGEST_S),
        until=until,
        say=lambda trial: say(f"{_named(*way)}: {_words(trial)}"),
    )
    if not rate:
        return None
    tails = [trial.trial.tail_ms or 0.0 for trial in trials if trial.trial.rate_per_s == rate]
    return ClientBatching(*way, rate, max(tails))


def _named(items: int, delay_s: float) -> str:
    return f"up to {items} items, {1e3 * delay_s:g} ms"


def _words(grouped: GroupedTrial) -> str:
    trial = grouped.trial
    tail = "no right answer" if trial.tail_ms is None else f"{trial.tail_ms:.1f} ms"
    late = "" if trial.valid else " (the generator was late)"
    return (
        f"{trial.rate_per_s:.1f} items/s, {grouped.company:.1f} in a request: {tail}:"
        f" {'holds' if trial.holds else 'missed'}{late}"
    )
