"""The costs of requests and runs on a running server, from a few seconds of load that waits for its answers.

Answers and times come from the open-loop generator's own sender, which uses less of the cores than callers in
threads; sizes of batches and times of runs are Triton's counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritonkit.client import Client
from tritonkit.errors import ClientError
from tritonkit.perf.load.openloop import Arrivals, Generator, Record, draw
from tritonkit.perf.simulation import Costs, ObservedRun, fit
from tritonkit.perf.tune.space import Point

__all__ = ["costs_of", "measure_costs", "observe", "saturated_per_s"]

_ALONE_S, _LEVEL_S = 1.0, 0.5
_APART = 4.0
"""Interval between requests sent alone, as a multiple of their mean time. On a machine that rests in between, as under
little load, requests take longer than one right after the other."""
_ROUNDS = (5, 200)
"""The fewest and the most repeats of each request alone."""
_KINDS = 16
"""The most different requests that are measured, spread evenly over all of them."""
_UNDER_WAY = (3, 8, 16)
"""Requests in flight for each instance: all instances are busy, with batches from small to large ..."""
_UNDER_WAY_ON_GPU = (4, 16, 64)
"""... and for each on a GPU, which is at its best with batches of 32 and more."""
_REPEATS, _MOST = 3, 8000
"""Requests of a level: at least and at most this many times the number in flight."""
_MORE = 1.1
"""The highest rate that is expected of a machine, relative to the highest one it reached under load."""
_QUANTILES = 200
_DIFFER = 0.1
"""Coefficient of variation of the requests' times below which they count as equal."""
_LEAST_WEIGHT = 0.02
_TURN_S, _PAUSE_S = 1.5, 0.3
_TURN_REQUESTS = 150
"""A turn is longer than that where fewer requests would come in it."""


@dataclass(frozen=True)
class _Level:
    """Some load: float64 [n] seconds of each request, answers a second, mean batch, seconds of a run."""

    seconds: NDArray[np.float64]
    per_s: float
    batch: float
    run_s: float


def costs_of(point: Point, generator: Generator, network: str, shapes: Sequence[int]) -> Costs:
    """The costs of a model that is served in this way; see `measure_costs`."""
    levels = _UNDER_WAY_ON_GPU if point.group.gpus else _UNDER_WAY
    return measure_costs(generator, network, point.group.all_instances, shapes, levels)


def measure_costs(
    generator: Generator,
    network: str,
    instances: int,
    shapes: Sequence[int] = (),
    under_way: Sequence[int] = _UNDER_WAY,
) -> Costs:
    """Load a model as it is served now.

    Args:
        generator: the load generator for this one model; several servers are measured as one with all their instances.
        network: the Triton model whose batches count.
        instances: instances of that Triton model, on all servers together.
        shapes: a number for the shape of each of the generator's requests; empty if all are the same.
        under_way: requests in flight for each instance, from few to many.

    Raises:
        ClientError: requests fail, or the network runs for none of them.
    """
    kinds = np.unique(np.linspace(0, generator.requests - 1, _KINDS).astype(int))
    servers = len(generator.addresses)
    mean_s = float(_load(generator, network, np.repeat(kinds, 2), 1).seconds.mean())
    rounds = int(np.clip(_ALONE_S / (_APART * mean_s * len(kinds)), *_ROUNDS))
    alone = _load(generator, network, np.tile(kinds, rounds), None, _APART * mean_s)
    times = alone.seconds.reshape(rounds, len(kinds))
    medians = np.median(times, axis=0)
    middle = int(np.argmin(abs(medians - medians.mean())))
    levels = []
    for level in under_way:
        in_flight = max(1, level * instances // servers)
        count = min(max(int(_LEVEL_S * instances / mean_s), _REPEATS * in_flight * servers), _MOST)
        levels.append(_load(generator, network, np.full(count, kinds[middle]), in_flight))
    fixed_s, item_s = fit(
        [level.batch for level in levels], [instances * level.batch / level.per_s for level in levels]
    )
    contention = _contention(fixed_s + item_s, alone.run_s * medians[middle] / medians.mean(), instances)
    fixed_s, item_s = fixed_s / contention, item_s / contention
    around_s = max(0.0, float(medians[middle]) - fixed_s - item_s)
    alike = _alike(times)
    return Costs(
        fixed_s,
        item_s,
        around_s,
        weights=() if alike else _weights(medians, around_s + fixed_s, item_s),
        shapes=tuple(shapes[k] for k in kinds) if shapes and not alike else (),
        factors=_factors(times / medians),
        contention=contention,
        most_per_s=_MORE * max(level.per_s for level in levels),
    )


def _contention(together_s: float, alone_s: float, instances: int) -> float:
    """The factor by which a run takes longer with its neighbors than alone, both by Triton's counters."""
    if instances == 1:
        return 1.0
    return float(np.clip(together_s / max(alone_s, 1e-9), 1.0, 2.0 * instances))


def saturated_per_s(generator: Generator, network: str, instances: int, seconds: float, seed: int = 0) -> float:
    """Answers a second to random requests, with enough of them in flight to keep all instances busy."""
    rng = np.random.default_rng(seed)
    under_way = max(1, _UNDER_WAY[-1] * instances // len(generator.addresses))
    few = _REPEATS * under_way * len(generator.addresses)
    rate = _load(generator, network, rng.integers(generator.requests, size=few), under_way).per_s
    count = max(few, int(seconds * rate))
    return _load(generator, network, rng.integers(generator.requests, size=count), under_way).per_s


def observe(generator: Generator, rates_per_s: Sequence[float], seconds: float, seed: int = 0) -> list[ObservedRun]:
    """An open-loop run of Poisson arrivals at each rate for `seconds`, in alternating turns of a few seconds. So a
    machine that is slow for a while affects all rates.

    Raises:
        ClientError: requests fail.
    """
    rng = np.random.default_rng((seed, 1))
    turn_s = max(_TURN_S, _TURN_REQUESTS / min(rates_per_s))
    turns = max(1, round(seconds / turn_s))
    moments: list[NDArray[np.float64]] = []
    labels: list[NDArray[np.int64]] = []
    start_s = 0.0
    for k in range(turns):
        for number in rng.permutation(len(rates_per_s)).tolist():
            arrivals = Arrivals(seed=1000 * seed + 10 * k + number)
            in_turn = draw(arrivals, rates_per_s[number], seconds / turns)
            moments.append(start_s + in_turn)
            labels.append(np.full(len(in_turn), number + k * len(rates_per_s)))
            start_s += seconds / turns + _PAUSE_S
    due = np.concatenate(moments)
    turn, number_of = np.divmod(np.concatenate(labels), len(rates_per_s))
    choice = rng.integers(generator.requests, size=len(due))
    record = generator.send(due, choice)
    _check(generator, record)
    latency_s = record.answered - due
    is_known = generator.requests <= _KINDS
    return [
        ObservedRun(due[own], latency_s[own], choice[own] if is_known else None, turn[own])
        for own in (number_of == number for number in range(len(rates_per_s)))
    ]


def _check(generator: Generator, record: Record) -> None:
    if (record.outcome != 0).any():
        reason = next(iter(record.failures), record.ended or "it was not sent")
        raise ClientError(f"a request to {generator.models[0]}", found=reason, wanted="an answer")


def _load(
    generator: Generator, network: str, choice: NDArray[np.int64], under_way: int | None, gap_s: float = 0.0
) -> _Level:
    """Send these requests, with a given number in flight at each server, or with a pause after each."""
    before = _counts(generator.addresses, network)
    record = generator.send(gap_s * np.arange(float(len(choice))), choice, under_way)
    items, runs, run_s = _counts(generator.addresses, network) - before
    _check(generator, record)
    if not runs:
        raise ClientError(
            f"model {network} at {generator.addresses[0]}", found="it ran for no request", wanted="runs to measure"
        )
    answered = np.sort(record.answered)
    edge = min((under_way or 0) * len(generator.addresses), len(answered) // 4)
    span_s = float(answered[-1 - edge] - answered[edge])
    per_s = (len(answered) - 2 * edge - 1) / max(span_s, 1e-9)
    return _Level(record.answered - record.sent, per_s, items / runs, run_s / runs)


def _counts(addresses: Sequence[str], model: str) -> NDArray[np.float64]:
    """Items, runs and seconds of runs so far."""
    total = np.zeros(3)
    for address in addresses:
        with Client(address, retry=None, breaker=None) as client:
            for statistics in client.statistics(model):
                run_s = statistics.compute_input_s + statistics.compute_infer_s + statistics.compute_output_s
                total += (statistics.inference_count, statistics.execution_count, run_s)
    return total


def _alike(times: NDArray[np.float64]) -> bool:
    """Whether the requests differ by no more than each one varies between rounds; rows are rounds."""
    medians = np.median(times, axis=0)
    deviation = 1.48 * float(np.median(abs(times - medians)))  # of a normal distribution
    noise_s = 1.25 * deviation / len(times) ** 0.5
    return bool(medians.std() < max(_DIFFER * medians.mean(), 3 * noise_s))


def _weights(medians: NDArray[np.float64], without_s: float, item_s: float) -> tuple[float, ...]:
    """The weight of each request in a run, from its time alone; their mean is 1."""
    weights = np.maximum((medians - without_s) / max(item_s, 1e-9), _LEAST_WEIGHT)
    return tuple((weights / weights.mean()).tolist())


def _factors(ratios: NDArray[np.float64]) -> tuple[float, ...]:
    """The distribution of these as a given number of values, all equally likely; their mean is 1."""
    middles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    values = np.quantile(ratios, middles)
    return tuple((values / values.mean()).tolist())
