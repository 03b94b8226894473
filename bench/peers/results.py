"""Results: cells by arrangement, model, contender and way; ratios over peers; the JSON that is kept."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.peers.contenders import CONTENDERS, MODELS, OURS
from bench.peers.measure import CALLERS, LIMITS_MS
from bench.report import Ratio

__all__ = ["SHARED", "Cells", "Key", "ratios", "summary"]

COMPARED = (1, 32, 128)
"""Callers whose ratios are reported; the cells have all."""
BEST_TWICE, TINY_FASTAPI, TINY_BEST, NEAR_CEILING = 2.0, 3.0, 1.5, 0.9
SHARED = "server and load on the same cores"
Key = tuple[str, str, str]


@dataclass
class Cells:
    """Figures as they come in; by (arrangement, model, contender)."""

    chosen: dict[Key, dict[str, Any]] = field(default_factory=dict)
    loops: dict[Key, dict[str, dict[int, Any]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))
    rates: dict[Key, dict[str, dict[int, Any]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))
    starts: dict[Key, dict[int, tuple[float, int]]] = field(default_factory=lambda: defaultdict(dict))
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def settle(
        self, key: Key, settings: Mapping[str, str], lines: int, tried: Sequence[tuple[float, Mapping[str, str]]]
    ) -> None:
        """Keep the settings of a contender, a user's files for it, and the other settings that were tried."""
        rates = [{"per_s": rate, **one} for rate, one in tried]
        self.chosen[key] = {"settings": dict(settings), "lines": lines, "tried": rates}

    def settled(self, key: Key) -> bool:
        """Whether it can be measured."""
        return key in self.chosen

    def settings(self, key: Key) -> dict[str, str]:
        """The releases that were measured."""
        settings: dict[str, str] = self.chosen[key]["settings"]
        return settings

    def add(
        self, number: int, key: Key, way: str, loops: Mapping[str, Any], rates: Mapping[str, Any] | None = None
    ) -> None:
        """One way in one round."""
        self.loops[key][way][number] = loops
        if rates:
            self.rates[key][way][number] = rates

    def took(self, number: int, key: Key, ready_s: float, memory: int) -> None:
        """The needs of a server in one round: seconds until it was ready, bytes."""
        self.starts[key][number] = ready_s, memory

    def cut(self, rounds: int) -> None:
        """Drop figures that belong to no whole round."""
        for ways in (*self.loops.values(), *self.rates.values()):
            for loads_of in ways.values():
                _forget(loads_of, rounds)
        for starts in self.starts.values():
            _forget(starts, rounds)

    def per_s(self, key: Key, way: str, callers: int) -> dict[int, float]:
        """Answers per second by round."""
        rounds = self.loops.get(key, {}).get(way, {})
        return {number: loops[str(callers)]["per_s"] for number, loops in rounds.items()}

    def best_way(self, key: Key) -> str | None:
        """The protocol with the most answers per second for 32 callers; no JSON, no client in Python."""
        contender = CONTENDERS[key[2]]
        ways = [way.name for way in contender.ways if way.format and way.compared]
        rates = {way: self.per_s(key, way, 32) for way in ways}
        medians = {way: statistics.median(per_round.values()) for way, per_round in rates.items() if per_round}
        return max(medians, key=medians.__getitem__, default=None)


def ratios(cells: Cells) -> list[Ratio]:
    """Ratios of tritonkit to each peer, to the best of them and to Triton's ceiling, on the same cores."""
    rows: list[Ratio] = []
    for model in MODELS:
        for ours in OURS:
            rows += _over_peers(cells, model, ours)
    return rows


def _over_peers(cells: Cells, model: str, ours: str) -> Iterator[Ratio]:
    key = SHARED, model, ours
    way = cells.best_way(key)
    if way is None:
        return
    others = {
        name: best
        for name in CONTENDERS
        if name not in OURS and (best := cells.best_way((SHARED, model, name))) is not None
    }
    peers = {name: best for name, best in others.items() if name != "ceiling"}
    for callers in COMPARED:
        mine = cells.per_s(key, way, callers)
        theirs = {name: cells.per_s((SHARED, model, name), best, callers) for name, best in others.items()}
        for name, rates in theirs.items():
            least = NEAR_CEILING if name == "ceiling" else _least(model, ours, name, callers)
            yield from _ratio(
                f"{model}, {callers} callers: {ours} ({way}) / {name} ({others[name]})", mine, rates, least
            )
        fastest = _best_of([theirs[name] for name in peers])
        least = _least(model, ours, "", callers)
        yield from _ratio(f"{model}, {callers} callers: {ours} ({way}) / the best peer", mine, fastest, least)


def _ratio(name: str, mine: Mapping[int, float], theirs: Mapping[int, float], least: float | None) -> Iterator[Ratio]:
    rounds = [mine[number] / theirs[number] for number in sorted(mine) if theirs.get(number)]
    if rounds:
        yield Ratio(name, rounds, at_least=least)


def _least(model: str, ours: str, peer: str, callers: int) -> float | None:
    """A goal; an empty peer is the best of them."""
    if CONTENDERS[ours].variant == "auto":
        return BEST_TWICE if callers == 32 and not peer else None
    if model == "digits_network" and callers == 32:
        return {"": TINY_BEST, "fastapi": TINY_FASTAPI}.get(peer)
    return 1.0 if not peer and (callers == 32 or model == "digits_network") else None


def _best_of(all_rates: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """In each round the most that any of them reached."""
    numbers = {number for rates in all_rates for number in rates}
    return {n: max(rates[n] for rates in all_rates if n in rates) for n in numbers}


def summary(cells: Cells, seconds: float) -> dict[str, Any]:
    """The input of the tables: medians over the rounds, with the spread of the rates."""
    rows = [_row(cells, key) for key in cells.chosen if cells.loops.get(key)]
    measured = max((row["rounds"] for row in rows), default=0)  # fewer than requested after an interrupt
    return {"rounds": measured, "seconds": seconds, "absent": cells.absent, "failed": cells.failed, "rows": rows}


def _row(cells: Cells, key: Key) -> dict[str, Any]:
    arrangement, model, name = key
    starts = list(cells.starts[key].values())
    return {
        "cores": arrangement,
        "model": model,
        "server": name,
        "rounds": len(starts),
        "settings": cells.chosen[key]["settings"],
        "tried": cells.chosen[key]["tried"],
        "lines": cells.chosen[key]["lines"],
        "ready_s": _median([ready for ready, _ in starts]),
        "memory_mib": _median([memory / 2**20 for _, memory in starts]),
        "ways": {
            way: _way(list(rounds.values()), list(cells.rates[key][way].values()))
            for way, rounds in cells.loops[key].items()
        },
    }


def _way(loops: Sequence[Mapping[str, Any]], rates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    closed = {str(callers): _spread([loop[str(callers)] for loop in loops]) for callers in CALLERS}
    limits = {str(limit): _median([rate[str(limit)] for rate in rates]) for limit in LIMITS_MS if rates}
    return {"closed": closed, **({"open": limits} if limits else {})}


def _spread(figures: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    kept = ("p50_ms", "p95_ms", "p99_ms", "server_us", "generator_cores")
    rates = [figure["per_s"] for figure in figures]
    return {"per_s": [_median(rates), min(rates), max(rates)]} | {
        name: _median([figure[name] for figure in figures]) for name in kept if name in figures[0]
    }


def _median(values: Sequence[float]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(statistics.median(numbers), 3) if numbers else None


def _forget(by_round: dict[int, Any], rounds: int) -> None:
    for number in [number for number in by_round if number >= rounds]:
        del by_round[number]
