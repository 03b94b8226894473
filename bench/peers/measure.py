"""The figures of one running server: closed loops, an open loop at rising rates, its resources."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers.h2load import closed, opened
from bench.programs import output
from tritonkit.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.peers.contenders import Way
    from bench.peers.h2load import Load
    from bench.peers.server import Running

__all__ = [
    "CALLERS",
    "LIMITS_MS",
    "begin_rates",
    "closed_loops",
    "highest_rates",
    "long_enough",
    "python_loops",
    "sustained",
]

CALLERS = (1, 8, 32, 128)
LIMITS_MS = (10, 50)
"""Limits in milliseconds that p99 has to stay under in the open loop."""
STEP = 1.25
MOST_PROBES = 16
COUNTED_S = 2.0  # an answer may be out before it is counted
ENOUGH, ROOM, LONGEST_S = 3, 1.2, 30.0
"""Answers for each caller that a measurement needs, the safety factor of its duration, and its longest duration."""
SENT = 0.97
"""The share of the offered rate that must be answered: a queue that grows answers less."""


def closed_loops(
    server: Running, way: Way, model: str, seconds: float, cores: Sequence[int], callers: Sequence[int] = CALLERS
) -> dict[str, dict[str, Any]]:
    """Figures of the load generator, and the server's cost of a request, by number of callers.

    If the callers wait so long that few are answered in `seconds`, the measurement is longer.

    Raises:
        ClientError: an answer was a failure, or Triton counted one.
    """
    request = server.request(way, model)
    loads: dict[str, dict[str, Any]] = {}
    per_s = 0.0
    for number in callers:

        def load_for(length: float, number: int = number) -> dict[str, Any]:
            before, counted = server.tree.processor_s(), _counts(server, way, model)
            load = closed(request, number, length, cores)
            used_s = server.tree.processor_s() - before
            _refuse_failures(f"{way.name}, {number} callers", load)
            _refuse_miscount(server, way, model, number, load, counted)
            return asdict(load) | {"server_us": 1e6 * used_s / load.total}

        load = long_enough(load_for, number, seconds, per_s)
        per_s = load["per_s"]
        loads[str(number)] = _rounded(load)
    return loads


def python_loops(
    server: Running, way: Way, model: str, seconds: float, cores: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """The same with threads of a client in Python."""
    loads: dict[str, dict[str, Any]] = {}
    per_s = 0.0
    for number in CALLERS:

        def load_for(length: float, number: int = number) -> dict[str, Any]:
            return output(
                Path(sys.executable),
                "bench.peers.pythons",
                way.name,
                server.addresses[way.port],
                model,
                f"--callers={number}",
                f"--seconds={length}",
                f"--cores={','.join(map(str, cores))}",
            )

        load = long_enough(load_for, number, seconds, per_s)
        per_s = load["per_s"]
        loads[str(number)] = _rounded(load)
    return loads


def long_enough(
    load_for: Callable[[float], dict[str, Any]], callers: int, seconds: float, per_s: float
) -> dict[str, Any]:
    """A load of `seconds`, or longer so that each caller gets three answers, up to half a minute.

    Args:
        load_for: makes a load of a number of seconds; gives its `answers` and `per_s`.
        per_s: answers a second to expect; 0 if that is not known.
    """
    enough = ENOUGH * callers
    length = max(seconds, ROOM * enough / per_s if per_s else 0.0)
    while True:
        length = min(length, LONGEST_S)
        load = load_for(length)
        if load["answers"] >= enough or length >= LONGEST_S:
            return load
        length = max(2 * length, ROOM * enough / load["per_s"] if load["per_s"] else 0.0)


def begin_rates(loops: Mapping[str, Any], former: Mapping[str, Any]) -> dict[int, float]:
    """The rate to begin at for each limit: the result of the search before, else half of the closed loops' highest.

    A limit that the median answer of no closed loop kept is left out: p99 would keep it at no rate.

    Args:
        loops: of `closed_loops`.
        former: of the `highest_rates` before; may be empty.
    """
    half = 0.5 * max(loop["per_s"] for loop in loops.values())
    shortest_ms = min(loop["p50_ms"] or math.inf for loop in loops.values())
    return {limit: former.get(str(limit), half) for limit in LIMITS_MS if shortest_ms < limit}


def highest_rates(
    server: Running, way: Way, model: str, seconds: float, cores: Sequence[int], begin: Mapping[int, float]
) -> dict[str, Any]:
    """For each limit, the highest rate at which p99 stayed under it, and every rate that was tried.

    Rates are powers of 1.25, so that all servers get the same ones.

    Args:
        begin: a rate to begin at for each limit in milliseconds; one that is left out gets 0.
    """
    request = server.request(way, model)
    probes: dict[int, Load] = {}

    def probe(step: int) -> Load:
        if step not in probes:
            probes[step] = opened(request, STEP**step, seconds, cores)
        return probes[step]

    rates: dict[str, Any] = {str(limit): 0.0 for limit in LIMITS_MS}
    for limit, rate in begin.items():
        step = sustained(probe, round(math.log(max(rate, 1.0), STEP)), limit, MOST_PROBES)
        rates[str(limit)] = 0.0 if step is None else round(STEP**step, 1)
    rates["probes"] = [_rounded(asdict(probes[step])) for step in sorted(probes)]
    return rates


def sustained(probe: Callable[[int], Load], begin: int, limit_ms: float, most: int) -> int | None:
    """The highest step from `begin` whose load keeps the limit; downwards if `begin` does not.

    Gives None where none of `most` steps, or no rate down to one a second, keeps it.
    """

    def holds(step: int) -> bool:
        load = probe(step)
        in_time = load.answers > 0 and load.p99_ms < limit_ms and not load.failures
        return in_time and load.per_s >= SENT * load.offered_per_s

    step = begin
    if holds(step):
        while step - begin < most and holds(step + 1):
            step += 1
        return step
    while begin - step < most and step > 0:
        step -= 1
        if holds(step):
            return step
    return None


def _refuse_failures(where: str, load: Load) -> None:
    if load.failures or not load.total:
        raise ClientError(where, found=f"{load.failures} requests failed and {load.total} were answered")


def _refuse_miscount(
    server: Running, way: Way, model: str, callers: int, load: Load, before: tuple[int, int] | None
) -> None:
    """The load generator judges the HTTP status alone; how gRPC's calls ended, Triton counted."""
    if before is None:
        return
    deadline = time.monotonic() + COUNTED_S
    while True:
        after = _counts(server, way, model) or before
        right, wrong = after[0] - before[0], after[1] - before[1]
        if right >= load.total or wrong or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if wrong or right < load.total:
        raise ClientError(
            f"{way.name}, {callers} callers",
            found=f"of {load.total} answers, Triton counted {right} as right, {wrong} as wrong",
        )


def _counts(server: Running, way: Way, model: str) -> tuple[int, int] | None:
    """Requests that Triton answered right and wrong so far; None if no Triton serves."""
    if way.format not in ("v2", "grpc") or not server.triton:
        return None
    import grpc
    from tritonclient.grpc import service_pb2 as messages

    with grpc.insecure_channel(server.addresses["GRPC_PORT"]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelStatistics")
        request = messages.ModelStatisticsRequest(name=model).SerializeToString()
        try:
            answer = messages.ModelStatisticsResponse.FromString(call(request, timeout=30))
        except grpc.RpcError as error:
            raise ClientError(f"statistics of {model}", found=str(error.details())) from None
    counted = [model.inference_stats for model in answer.model_stats]
    return sum(counts.success.count for counts in counted), sum(counts.fail.count for counts in counted)


def _rounded(figures: dict[str, float]) -> dict[str, Any]:
    """JSON has no NaN: None stands for a missing figure."""
    return {n: None if math.isnan(v) else round(v, 3) for n, v in figures.items()}
