"""A whole pipeline, image in and label out: all of it native over all of it in Python, side by side."""

from __future__ import annotations

import statistics
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.h2load import Body, Load, grpc_body, h2load
from bench.processor import cpu_s
from bench.programs import ROOT
from bench.report import Ratio, Report
from bench.requests import answer_of
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.setting import Setting

__all__ = ["run"]

PIPELINE = "digits"
CALLERS = (8, 32)
NATIVE, PYTHON = "native", "python"
TIMES_FASTER = 3.0
# The goals for a pipeline.
PER_S, P50_MS, P95_MS = 1000.0, 10.0, 50.0


@dataclass(frozen=True)
class _Server:
    """One kind of server with the pipeline."""

    address: str
    pid: int
    channel: Any
    parts: Sequence[str]


@dataclass(frozen=True)
class _Measured:
    """One load, the server's own processor time for a request, and the milliseconds of a request that no part accounts
    for."""

    load: Load
    cpu_us: float
    ensemble_ms: float


def run(setting: Setting) -> Report:
    """Rates and latencies of the digits pipeline with native steps and network over those in Python."""
    setting.refuse_address()
    body = _request(setting.repository)
    ratios: list[Ratio] = []
    with ExitStack() as stack:
        servers = {kind: stack.enter_context(_served(setting.repository, kind)) for kind in (NATIVE, PYTHON)}
        for callers in CALLERS:
            rounds = [_round(setting, servers, body, callers, n) for n in range(setting.rounds)]
            ratios += _ratios(callers, rounds)
    return Report(
        "pipeline",
        f"{PIPELINE}, an image in and its label out, from a compiled load generator on the same cores",
        ratios,
    )


def _request(repository: Path) -> Body:
    """The image that the pipeline's first step is warmed up with."""
    from tritonclient.grpc import service_pb2 as messages

    file = repository / f"{PIPELINE}_decode_image" / "warmup" / "image"
    if not file.is_file():
        raise UsageError(str(file), found="no such file", todo="build the models first: python tools/build_repo.py")
    request = messages.ModelInferRequest(model_name=PIPELINE)
    request.inputs.add(name="image", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(file.read_bytes())
    return grpc_body(request.SerializeToString())


@contextmanager
def _served(repository: Path, kind: str) -> Iterator[_Server]:
    import grpc

    from tritonkit.serve import serve

    with (
        serve(
            repository,
            models=[PIPELINE],
            grpc_port=0,
            metrics_port=0,
            root=ROOT,
            backend="native" if kind == NATIVE else "python",
        ) as endpoint,
        grpc.insecure_channel(endpoint.grpc) as channel,
    ):
        config = answer_of(channel, "Config", PIPELINE).config
        parts = [step.model_name for step in config.ensemble_scheduling.step]
        yield _Server(endpoint.grpc, endpoint.pid, channel, parts)


def _round(setting: Setting, servers: dict[str, _Server], body: Body, callers: int, turn: int) -> dict[str, _Measured]:
    """Measure each server once, in an order that rotates from round to round."""
    order = sorted(servers, reverse=turn % 2 == 1)
    return {kind: _measured(setting, servers[kind], body, callers) for kind in order}


def _measured(setting: Setting, server: _Server, body: Body, callers: int) -> _Measured:
    """Over one connection for eight callers, as a client's pool has."""
    before, used = _spent(server), cpu_s(server.pid)
    load = h2load(server.address, body, callers=callers, connections=max(1, callers // 8), seconds=setting.seconds)
    used = cpu_s(server.pid) - used
    after = _spent(server)
    count = after[PIPELINE][0] - before[PIPELINE][0]
    per = {name: (after[name][1] - before[name][1]) / count / 1e6 for name in after}
    own = per[PIPELINE] - sum(per[name] for name in server.parts)
    return _Measured(load, used / load.sent * 1e6, own)


def _spent(server: _Server) -> dict[str, tuple[int, int]]:
    """Successful requests by model, and their nanoseconds: of the pipeline from arrival to answer, of its parts queued
    and computing."""
    spent_of = {}
    for name in (PIPELINE, *server.parts):
        statistics = answer_of(server.channel, "Statistics", name).model_stats[0].inference_stats
        inside = (statistics.queue, statistics.compute_input, statistics.compute_infer, statistics.compute_output)
        spent = statistics.success.ns if name == PIPELINE else sum(part.ns for part in inside)
        spent_of[name] = (statistics.success.count, spent)
    return spent_of


def _ratios(callers: int, rounds: Sequence[dict[str, _Measured]]) -> list[Ratio]:
    native, python = ([round_of[kind] for round_of in rounds] for kind in (NATIVE, PYTHON))
    name = f"{PIPELINE}, {callers} callers"
    facts = {
        f"{kind}: {what}": _median([read(one) for one in all_])
        for kind, all_ in ((NATIVE, native), (PYTHON, python))
        for what, read in _FIGURES.items()
    }
    return [
        Ratio(
            f"{name}: requests/s, native over python",
            [n.load.per_s / p.load.per_s for n, p in zip(native, python, strict=True)],
            at_least=TIMES_FASTER,
            facts=facts,
        ),
        Ratio(f"{name}: requests/s over {PER_S:.0f}", [n.load.per_s / PER_S for n in native], at_least=1),
        Ratio(f"{name}: p50 over {P50_MS:.0f} ms", [n.load.p50_ms / P50_MS for n in native], at_most=1),
        Ratio(f"{name}: p95 over {P95_MS:.0f} ms", [n.load.p95_ms / P95_MS for n in native], at_most=1),
    ]


_FIGURES = {
    "requests/s": lambda one: one.load.per_s,
    "p50, ms": lambda one: one.load.p50_ms,
    "p95, ms": lambda one: one.load.p95_ms,
    "p99, ms": lambda one: one.load.p99_ms,
    "server's processor time of a request, us": lambda one: one.cpu_us,
    "in none of the steps, ms": lambda one: one.ensemble_ms,
    "load generator's share of a core": lambda one: one.load.cpu_share,
}


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)
