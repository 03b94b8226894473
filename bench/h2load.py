"""A closed loop of callers by h2load: compiled, so it leaves the cores to the server it measures.

h2load is part of nghttp2 (Debian: nghttp2-client). It speaks gRPC as what gRPC is on the wire, HTTP/2
with a prefix before each message, and HTTP/1.1 with `Body.http`.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.processor import children_s
from tritonkit.errors import ClientError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Body", "Load", "find_h2load", "grpc_body", "h2load"]

INFER = "/inference.GRPCInferenceService/ModelInfer"
_REQUESTS = re.compile(r"requests: .*?(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored")
_STATUSES = re.compile(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx")
_DATA = re.compile(r"traffic: .*\((\d+)\) data")
_SHORTEST_S = 0.2
_LONGEST_S = 600.0
_PRINTED = (_REQUESTS, _STATUSES, _DATA)


@dataclass(frozen=True)
class Body:
    """The request that each caller sends, and its protocol.

    Args:
        path: of the URL, `/...`.
        content: the bytes of a request's body.
        headers: by name.
        http: whether to speak HTTP/1.1, with a connection for each caller; otherwise HTTP/2.
        answer_bytes: length of the shortest good answer's body, if it is known: a gRPC error has HTTP's status
            200, and no body.
    """

    path: str
    content: bytes
    headers: Mapping[str, str]
    http: bool = False
    answer_bytes: int | None = None


@dataclass(frozen=True)
class Load:
    """Figures of h2load in the measured time.

    Args:
        sent: all requests, including those before the measured time; each was answered. answers: answers in the
            measured time.
        per_s: answers per second.
        p50_ms, p95_ms, p99_ms: from the first byte sent to the last one received.
        cpu_share: the load generator's own processor time, relative to one core.
    """

    sent: int
    answers: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    cpu_share: float


def find_h2load() -> str:
    """The path of h2load.

    Raises:
        UsageError: it is not installed.
    """
    path = shutil.which("h2load")
    if path is None:
        raise UsageError(
            "the load generator h2load",
            found="no such program on PATH",
            wanted="h2load of nghttp2",
            todo="install it: apt-get install nghttp2-client",
        )
    return path


def grpc_body(message: bytes, *, path: str = INFER, answer: bytes | None = None) -> Body:
    """A gRPC request with this serialized message; `answer` is that of an answer, for its length."""
    return Body(
        path,
        struct.pack(">BI", 0, len(message)) + message,
        {"content-type": "application/grpc", "te": "trailers"},
        answer_bytes=None if answer is None else 5 + len(answer),
    )


def h2load(
    address: str,
    body: Body,
    *,
    callers: int,
    seconds: float,
    warm_seconds: float = 0.5,
    connections: int | None = None,
    before: Sequence[str] = (),
) -> Load:
    """Send for about `seconds`; each caller sends its next request when the last one is answered.

    h2load gets a number of requests, not a duration: at the end of a duration it aborts its requests, and cancelled
    requests sometimes crash Triton 2.51. Short runs find the number.

    Args:
        address: `host:port`, `https://host:port` for TLS, whose certificate is not checked, or `unix:PATH` of a
            socket.
        body: the request of each.
        callers: requests in flight.
        seconds, warm_seconds: counted, and uncounted time before.
        connections: their number, which must divide `callers`; by default one over HTTP/2, `callers` over HTTP/1.1.
        before: words before the command, such as `taskset -c 1`.

    Raises:
        UsageError: h2load is not installed.
        ClientError: a request failed, or h2load did.
    """
    count = connections or (callers if body.http else 1)
    words = [
        *before,
        find_h2load(),
        *(("--h1",) if body.http else ()),
        f"--clients={count}",
        f"--max-concurrent-streams={callers // count}",
        *(f"--header={name}: {value}" for name, value in body.headers.items()),
    ]
    with tempfile.TemporaryDirectory(prefix="tritonkit-h2load-") as folder:
        run = _Run(words, _target(address, body.path), Path(folder), body, callers)
        run.data.write_bytes(body.content)
        number, warmed, sent = callers, 0.0, 0
        while warmed < max(warm_seconds, _SHORTEST_S):
            taken, log = run.send(number)
            warmed, sent = warmed + taken, sent + number
            rate = _rate(log)
            number = max(callers, round(rate * max(warm_seconds - warmed, 2 * _SHORTEST_S)))
        used_s = children_s()
        taken, log = run.send(max(2 * callers, round(rate * seconds)))
    return _load(log, sent + len(log), (children_s() - used_s) / taken)


@dataclass(frozen=True)
class _Run:
    """One load: h2load's arguments, those that name the server, and a folder for files."""

    words: Sequence[str]
    target: Sequence[str]
    folder: Path
    body: Body
    callers: int

    @property
    def data(self) -> Path:
        return self.folder / "body"

    def send(self, number: int) -> tuple[float, NDArray[np.int64]]:
        """Seconds that a number of requests took, and the log: start, status, duration in microseconds."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        words = [*self.words, f"--requests={number}", f"--data={self.data}", f"--log-file={log}"]
        started = time.perf_counter()
        done = subprocess.run([*words, *self.target], capture_output=True, text=True, timeout=_LONGEST_S)
        taken = time.perf_counter() - started
        what = f"{self.callers} callers of {self.target[-1]}"
        if done.returncode != 0 or not all(p.search(done.stdout) for p in _PRINTED):
            raise ClientError(
                what, found=f"h2load ended with {done.returncode}", details=(done.stdout + done.stderr)[-2000:]
            )
        _check(what, done.stdout, number, self.body)
        return taken, np.loadtxt(log, np.int64, ndmin=2)


def _rate(log: NDArray[np.int64]) -> float:
    """Answers per second until the last request was sent, because fewer callers remain after that."""
    start, taken = log[:, 0], log[:, 2]
    seconds = max(1, start.max() - start.min()) / 1e6
    answers = int((start + taken <= start.max()).sum())
    # All requests were sent immediately, so use the longest.
    return answers / seconds if answers else 1e6 * len(log) / int(taken.max())


def _load(log: NDArray[np.int64], sent: int, cpu_share: float) -> Load:
    """Figures of one run's log."""
    p50, p95, p99 = (float(us) for us in np.percentile(log[:, 2], (50, 95, 99)) / 1e3)
    return Load(sent, len(log), float(_rate(log)), p50, p95, p99, cpu_share)


def _target(address: str, path: str) -> list[str]:
    """The arguments that name the server; the host in a socket's URL is never looked up."""
    if address.startswith("unix:"):
        return [f"--base-uri={address}", f"http://localhost{path}"]
    return [f"{address if address.startswith('https://') else f'http://{address}'}{path}"]


def _check(what: str, printed: str, number: int, body: Body) -> None:
    """Refuse a load with failures: statuses other than 2xx, broken streams, answers that are too short."""
    counts = [pattern.search(printed) for pattern in _PRINTED]
    requests, statuses, data = (list(map(int, match.groups())) for match in counts if match)
    failed = number - min(requests[1], statuses[0])
    if failed:
        problem = f"{failed} of {number} requests failed"
    elif data[0] < number * (body.answer_bytes or 0):
        problem = f"{data[0]} bytes in {number} answers, so errors among them"
    else:
        return
    raise ClientError(what, found=problem, wanted="an answer to each", details=printed[printed.find("finished in") :])
