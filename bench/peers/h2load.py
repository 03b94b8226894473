"""h2load, the one load generator for HTTP/1.1 and gRPC, and the figures in its log."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from bench.h2load import Body, h2load
from bench.peers.processes import pinned
from tritonkit.errors import ClientError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers.traffic import Request

__all__ = ["Load", "closed", "open_connections", "opened", "pace", "percentiles", "read_log"]

WARM_S = 1.0
OPEN_CONNECTIONS = 128
NEAR = 0.03
MOST_EACH = 100.0
"""Requests per second of a connection in an open loop: h2load's timer has steps of 10 ms."""


@dataclass(frozen=True)
class Load:
    """Figures of one run of the load generator in its measured time.

    Args:
        per_s: answers with status 200 per second.
        p50_ms, p95_ms, p99_ms: of those, from the first byte sent to the last received.
        answers: measured answers.
        failures: answers of another status and broken streams, over the whole run.
        total: right answers over the whole run, those before the measured time included.
        generator_cores: processor time of the load generator over its running time.
        offered_per_s: the intended rate of an open loop; 0 in a closed one.
    """

    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    answers: int
    failures: int
    total: int
    generator_cores: float
    offered_per_s: float = 0.0


def closed(request: Request, callers: int, seconds: float, cores: Sequence[int]) -> Load:
    """Each caller sends its next request when the last is answered.

    HTTP: a connection for each. gRPC: one connection with a stream for each, as a client has them, or
    connections where the request says so.

    Raises:
        ClientError: a request failed.
    """
    where = urlsplit(request.url)
    body = Body(where.path, request.body, request.headers, http=request.protocol != "grpc")
    load = h2load(
        f"unix:{request.socket}" if request.socket else where.netloc,
        body,
        callers=callers,
        seconds=seconds,
        warm_seconds=WARM_S,
        connections=callers if request.connections else None,
        before=pinned(cores),
    )
    return Load(load.per_s, load.p50_ms, load.p95_ms, load.p99_ms, load.answers, 0, load.sent, load.cpu_share)


def opened(request: Request, rate: float, seconds: float, cores: Sequence[int]) -> Load:
    """Requests at a rate that does not wait for answers, evenly spread, over many connections.

    A connection whose answer is late sends late; then fewer are sent than were offered, which the
    caller has to look at.
    """
    connections = open_connections(rate)
    starts, period_ms = pace(rate)
    total = math.ceil(rate * (WARM_S + seconds) / connections) * connections
    shape = [
        f"-c{connections}",
        f"-r{min(starts, connections)}",
        f"--rate-period={period_ms}ms",
        f"-n{total}",
        f"--rps={rate / connections:.6f}",
    ]
    lines, used_s = _run(request, shape, cores, timeout_s=2 * (WARM_S + seconds) + 10)
    load = _measured(lines, used_s, WARM_S + seconds)
    return Load(**{**vars(load), "offered_per_s": rate})


def open_connections(rate: float) -> int:
    """Enough connections that each has at least half a second for an answer before it sends again, up to 128; beyond
    that, enough that none sends more often than every 10 ms."""
    few = min(OPEN_CONNECTIONS, max(8, math.ceil(rate / 2)))
    return max(few, math.ceil(rate / MOST_EACH))


def pace(rate: float) -> tuple[int, int]:
    """The number of connections that begin in each period, and its milliseconds, so that the first request of each
    comes when it is due: they then never send all together. The fewest at a time that come within 3 %."""
    pairs = [(starts, max(1, round(1000 * starts / rate))) for starts in range(1, 33)]

    def off(pair: tuple[int, int]) -> float:
        return abs(1000 * pair[0] / pair[1] / rate - 1)

    return next((pair for pair in pairs if off(pair) <= NEAR), min(pairs, key=off))


def read_log(text: str) -> np.ndarray:
    """The lines of `--log-file` as int64 [answers, 3]: start in microseconds, status, microseconds taken."""
    rows = [line.split("\t")[:3] for line in text.splitlines() if line.count("\t") >= 2]
    return np.array(rows, np.int64).reshape(-1, 3)


def percentiles(milliseconds: np.ndarray) -> tuple[float, float, float]:
    """p50, p95 and p99; NaN for no values."""
    if not milliseconds.size:
        return math.nan, math.nan, math.nan
    p50, p95, p99 = np.percentile(milliseconds, (50, 95, 99))
    return float(p50), float(p95), float(p99)


def _measured(lines: np.ndarray, used_s: float, ran_s: float) -> Load:
    """Figures of requests that ended between the warm-up and the end."""
    right = lines[lines[:, 1] == 200]
    begin = lines[:, 0].min() if lines.size else 0
    ended = right[:, 0] + right[:, 2] - begin
    counted = right[(ended >= 1e6 * WARM_S) & (ended < 1e6 * ran_s)]
    p50, p95, p99 = percentiles(counted[:, 2] / 1e3)
    return Load(
        len(counted) / (ran_s - WARM_S),
        p50,
        p95,
        p99,
        len(counted),
        len(lines) - len(right),
        len(right),
        used_s / ran_s,
    )


def _run(
    request: Request, shape: Sequence[str], cores: Sequence[int], timeout_s: float | None = None
) -> tuple[np.ndarray, float]:
    """The log's lines, and the processor time that h2load took."""
    program = shutil.which("h2load")
    if program is None:
        raise UsageError("h2load", found="it is not installed", todo="apt-get install nghttp2-client")
    with tempfile.TemporaryDirectory() as folder:
        body, log, out = (Path(folder) / name for name in ("body", "log", "out"))
        body.write_bytes(request.body)
        headers = [f"-H{name}: {value}" for name, value in request.headers.items()]
        protocol = [] if request.protocol == "grpc" else ["--h1"]
        socket = [f"-Bunix:{request.socket}"] if request.socket else []
        command = [
            *pinned(cores),
            program,
            *protocol,
            *shape,
            *headers,
            *socket,
            f"-d{body}",
            f"--log-file={log}",
            request.url,
        ]
        with out.open("wb") as printed:
            process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
        used_s = _wait(process, timeout_s)
        if process.returncode or not log.exists():
            raise ClientError(
                f"h2load {request.url}",
                found=f"it ended with exit code {process.returncode}",
                details=out.read_text(errors="replace")[-1000:],
            )
        return read_log(log.read_text()), used_s


def _wait(process: subprocess.Popen[bytes], timeout_s: float | None) -> float:
    """Wait for h2load, or end it after its time; return the processor time that it used."""
    import threading

    timer = threading.Timer(timeout_s, process.terminate) if timeout_s else None
    if timer is not None:
        timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        process.kill()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    code = os.waitstatus_to_exitcode(status)
    # Our own timer ended it; its log holds the answers until then.
    process.returncode = 0 if code == -15 else code
    return usage.ru_utime + usage.ru_stime
