"""Triton's own flags and the kernel's scheduling: rates and processor time with each over those of `serve`."""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

from bench.ceiling import ceiling_repository
from bench.h2load import Body, find_h2load, h2load
from bench.processor import cpu_s
from bench.programs import ROOT
from bench.report import Ratio, Report
from bench.requests import grpc_request, http_request, made_up
from tritonkit.machine import cores
from tritonkit.serve.core.flags import HTTP_SOCKET
from tritonkit.serve.core.launch import SCHEDULING_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.setting import Setting

__all__ = ["run"]

CALLERS = (1, 8, 32, 128)
MODEL = "digits_network"
_WARM_S = 0.2
DEFAULT, AGAIN = "defaults", "the defaults again"
INTERRUPTING = "the kernel's default scheduling"


def run(setting: Setting) -> Report:
    """Rates of an empty backend under each of Triton's own flags, over those of `serve`."""
    find_h2load()
    sets: dict[str, Mapping[str, str]] = {
        DEFAULT: {},
        AGAIN: {},
        INTERRUPTING: {},
        **{f"{name}={value}": {name: value} for name, values in _candidates(cores()).items() for value in values},
    }
    ratios: list[Ratio] = []
    with ExitStack() as stack:
        repository, model = stack.enter_context(ceiling_repository(setting.repository, MODEL))
        servers = {
            name: stack.enter_context(_served(repository, model, flags, interrupting=name == INTERRUPTING))
            for name, flags in sets.items()
        }
        for way in ("gRPC", "HTTP"):
            for callers in CALLERS:
                rounds = [_round(setting, servers, way, callers, n) for n in range(setting.rounds)]
                ratios += [_ratio(name, way, callers, rounds) for name in sets if name != DEFAULT]
    about = (
        f"requests per second, and the server's processor time for each, over what serve starts; {AGAIN!r} is the noise"
    )
    return Report("flags", about, ratios)


def _candidates(cores: int) -> dict[str, tuple[str, ...]]:
    """The values to try for each flag on a number of cores."""
    return {
        "http-thread-count": tuple(str(n) for n in sorted({2, cores, 2 * cores}) if n != 8),
        "grpc-infer-allocation-pool-size": ("128",),
        "buffer-manager-thread-count": ("2",),
        "allow-cpu-metrics": ("false",),
        "metrics-interval-ms": ("10000",),
    }


@dataclass(frozen=True)
class _Server:
    """A running server: its process, and by way its address and request."""

    pid: int
    ways: Mapping[str, tuple[str, Body]]


@dataclass(frozen=True)
class _Measured:
    """One server under one load: answers per second, the server's seconds for each, the generator's share."""

    per_s: float
    cpu_s: float
    generator: float


@contextmanager
def _served(repository: Path, model: str, flags: Mapping[str, str], *, interrupting: bool) -> Iterator[_Server]:
    """Yield a server with these flags, with or without the kernel's default scheduling of its threads."""
    import grpc

    from tritonkit.serve import serve

    with (
        mock.patch.dict(os.environ, {SCHEDULING_VARIABLE: "other" if interrupting else ""}),
        serve(
            repository, models=[model], grpc_port=0, metrics_port=0, root=ROOT, backend="auto", triton_flags=flags
        ) as endpoint,
        grpc.insecure_channel(endpoint.grpc) as channel,
    ):
        item = made_up(channel, model)
        # Triton's own HTTP, without the proxy in front of it.
        socket = f"unix:{endpoint.log.parent / HTTP_SOCKET}"
        ways = {
            "gRPC": (endpoint.grpc, grpc_request(channel, model, item)),
            "HTTP": (socket, http_request(model, item)),
        }
        yield _Server(endpoint.pid, ways)


def _round(setting: Setting, servers: Mapping[str, _Server], way: str, callers: int, turn: int) -> dict[str, _Measured]:
    """Measure each server once, in an order that rotates from round to round."""
    order = sorted(servers, reverse=turn % 2 == 1)
    return {name: _measured(setting, servers[name], way, callers) for name in order}


def _measured(setting: Setting, server: _Server, way: str, callers: int) -> _Measured:
    """A connection for each caller, as clients on many machines have."""
    address, body = server.ways[way]
    before = cpu_s(server.pid)
    load = h2load(address, body, callers=callers, connections=callers, seconds=setting.seconds, warm_seconds=_WARM_S)
    used = cpu_s(server.pid) - before
    return _Measured(load.per_s, used / load.sent, load.cpu_share)


def _ratio(flags: str, way: str, callers: int, rounds: Sequence[Mapping[str, _Measured]]) -> Ratio:
    pairs = [(rates[flags], rates[DEFAULT]) for rates in rounds]
    facts = {"processor time of a request": _median(one.cpu_s / other.cpu_s for one, other in pairs)}
    if flags == AGAIN:
        facts["the load generator's share of a core"] = _median(one.generator for one, _ in pairs)
    return Ratio(f"{flags}, {way}, {callers} callers", [one.per_s / other.per_s for one, other in pairs], facts=facts)


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)
