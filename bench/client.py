"""The client's costs and savings compared with tritonclient: processor time, joined calls, cached answers."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.programs import output
from bench.report import Ratio, Report
from tritonkit.errors import ServerUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.setting import Setting

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
CALLERS = 64
SIZES = {"256 B": (256, 600, 0.6), "150 KB": (150_528, 300, 0.7), "2.4 MB": (2_408_448, 60, 0.7)}
"""Name -> bytes, calls a round, and the promised limit relative to tritonclient's processor time."""
PAIRS = {
    "threads": ("tritonkit", "tritonkit-shared", "tritonclient"),
    "asyncio": ("tritonkit-async", "tritonkit-async-shared", "tritonclient-async"),
}


def run(setting: Setting) -> Report:
    """Processor time of a call, calls per second of 64 threads, and cached answers, over tritonclient's."""
    with _sink(setting) as sink:
        sizes = {name: [_calls(sink, name) for _ in range(setting.rounds)] for name in SIZES}
        rest = [_rest(sink) for _ in range(setting.rounds)]
    with _shipped(setting) as address, _redis() as redis:
        crowd = [_crowd(address, setting.seconds, turn) for turn in range(setting.rounds)]
        cached = [output(_python(), "bench.cached", address, "--redis", redis) for _ in crowd]
    return Report(
        "client",
        "each client in a process of its own, taking turns; the server shares the cores",
        [*_costs(sizes), *_crowded(crowd), *_cached(cached), _rest_ratio(rest)],
    )


def _calls(sink: Mapping[str, str], name: str) -> dict[str, dict[str, float]]:
    """Measure every way of calling once with one size."""
    size, calls, _ = SIZES[name]
    ways = [way for pair in PAIRS.values() for way in pair]
    arguments = (f"--size={size}", f"--calls={calls}")
    return {way: output(_python(), "bench.caller", way, sink["grpc"], *arguments) for way in ways}


def _rest(sink: Mapping[str, str]) -> dict[str, dict[str, float]]:
    ways = {"tritonclient": sink["grpc"], "tritonclient-http": sink["http"]}
    return {way: output(_python(), "bench.caller", way, where) for way, where in ways.items()}


def _crowd(address: str, seconds: float, turn: int) -> dict[str, dict[str, float]]:
    ways = ["tritonclient", "tritonkit", "tritonkit-batched"]
    arguments = (f"--callers={CALLERS}", f"--seconds={seconds}")
    return {
        way: output(_python(), "bench.caller", way, address, *arguments) for way in sorted(ways, reverse=turn % 2 == 1)
    }


def _costs(sizes: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Ratio]:
    for name, rounds in sizes.items():
        for kind, (ours, shared, theirs) in PAIRS.items():
            yield _cost(f"{kind}, {name}: processor time", rounds, ours, theirs, SIZES[name][2])
            # Small calls travel as usual, so there is nothing to show.
            if name != "256 B":
                yield _cost(f"{kind}, {name}, shared memory", rounds, shared, theirs, SIZES[name][2])


def _cost(name: str, rounds: Sequence[Mapping[str, Any]], ours: str, theirs: str, at_most: float) -> Ratio:
    last = rounds[-1]
    return Ratio(
        f"{name} / tritonclient's",
        [times[ours]["cpu_us"] / times[theirs]["cpu_us"] for times in rounds],
        at_most=at_most,
        facts={
            "microseconds a call": [round(last[way]["cpu_us"]) for way in (ours, theirs)],
            "p50": [round(last[way]["p50_us"]) for way in (ours, theirs)],
        },
    )


def _crowded(rounds: Sequence[Mapping[str, Any]]) -> list[Ratio]:
    def ratio(way: str, figure: str) -> list[float]:
        return [times[way][figure] / times["tritonclient"][figure] for times in rounds]

    last = rounds[-1]
    facts = {way: {key: round(value, 2) for key, value in last[way].items()} for way in sorted(last)}
    return [
        Ratio(
            f"{CALLERS} threads with batching: calls/s / tritonclient's",
            ratio("tritonkit-batched", "per_s"),
            at_least=4.0,
            facts=facts,
        ),
        Ratio(
            f"{CALLERS} threads with batching: p99 / tritonclient's", ratio("tritonkit-batched", "p99_ms"), at_most=1.0
        ),
        Ratio(f"{CALLERS} threads without: calls/s / tritonclient's", ratio("tritonkit", "per_s")),
    ]


def _cached(rounds: Sequence[Mapping[str, float]]) -> list[Ratio]:
    last = {name: round(value, 1) for name, value in rounds[-1].items()}
    return [
        Ratio(
            "cached in this process / served sentences",
            [times["l1_us"] / times["served_us"] for times in rounds],
            at_most=0.02,
            facts={"microseconds": last},
        ),
        Ratio(
            "cached in Redis / served sentences", [times["l2_us"] / times["served_us"] for times in rounds], at_most=0.5
        ),
    ]


def _rest_ratio(rounds: Sequence[Mapping[str, Any]]) -> Ratio:
    return Ratio(
        "tritonclient over HTTP, through the REST proxy / over gRPC: p50 of a call of 256 B",
        [times["tritonclient-http"]["p50_us"] / times["tritonclient"]["p50_us"] for times in rounds],
    )


@contextmanager
def _sink(setting: Setting) -> Iterator[dict[str, str]]:
    """A Triton whose one model takes bytes and ignores them."""
    from tritonkit.serve import serve

    with tempfile.TemporaryDirectory() as folder:
        source, model = ROOT / "bench" / "sink", Path(folder) / "repository" / "sink"
        (model / "1").mkdir(parents=True)
        shutil.copy(source / "config.pbtxt", model)
        shutil.copy(source / "model.py", model / "1")
        with serve(
            model.parent, grpc_port=0, http_port=0, metrics_port=0, root=ROOT, http=True, shared_memory_api=True
        ) as endpoint:
            yield {"grpc": endpoint.grpc, "http": endpoint.http}


@contextmanager
def _shipped(setting: Setting) -> Iterator[str]:
    """A Triton with the models that ship, as they are built."""
    from tritonkit.serve import serve

    models = ("digits_network", "sentences")
    with serve(setting.repository, models=models, grpc_port=0, http_port=0, metrics_port=0, root=ROOT) as endpoint:
        yield endpoint.grpc


@contextmanager
def _redis() -> Iterator[str]:
    """A Redis of its own that keeps nothing on disk."""
    program = shutil.which("redis-server")
    if program is None:
        raise UsageError("redis-server", found="it is not installed", todo="apt-get install redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [program, "--bind", "127.0.0.1", "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL
    )
    try:
        _reach(port)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _reach(port: int) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise ServerUnavailable("redis-server", found="it did not answer within 5 s")


def _python() -> Path:
    return Path(sys.executable)
