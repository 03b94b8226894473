"""A closed loop of callers by h2load: compiled, so it leaves the cores to the server it measures.

h2load is part of nghttp2 (Debian: nghttp2-client). It speaks gRPC as what gRPC is on the wire, HTTP/2
with a prefix before each message, and HTTP/1.1 with `Body.http`.
"""

from __future__ import annotations

import re
import resource
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tritonkit.errors import ClientError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Body", "Load", "find_h2load", "grpc_body", "h2load"]

INFER = "/inference.GRPCInferenceService/ModelInfer"
_REQUESTS = re.compile(r"requests: .*?(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored")
_STATUSES = re.compile(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx")
_DATA = re.compile(r"traffic: .*\((\d+)\) data")
_PRINTED = (_REQUESTS, _STATUSES, _DATA)


@dataclass(frozen=True)
class Body:
    """What each caller sends, and how.

    Args:
        path: of the URL, `/...`.
        content: the bytes of a request's body.
        headers: by name.
        http: whether HTTP/1.1 is spoken, a connection for each caller; else HTTP/2.
        answer_bytes: of an answer's body, where it is known: an answer of another length is a failure, as
            a gRPC error is, which has the HTTP status 200.
    """

    path: str
    content: bytes
    headers: Mapping[str, str]
    http: bool = False
    answer_bytes: int | None = None


@dataclass(frozen=True)
class Load:
    """What h2load saw in the measured time.

    Args:
        answers: how many came.
        per_s: answers per second.
        p50_ms, p95_ms, p99_ms: from the first byte sent to the last one received.
        cpu_share: of one core, the load generator's own processor time.
    """

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
            "the load generator h2load", found="no such program on PATH", wanted="h2load of nghttp2",
            todo="install it: apt-get install nghttp2-client",
        )  # fmt: skip
    return path


def grpc_body(message: bytes, *, path: str = INFER, answer: bytes | None = None) -> Body:
    """A gRPC request with this serialized message; `answer` is one answer's, to know its length."""
    return Body(
        path,
        struct.pack(">BI", 0, len(message)) + message,
        {"content-type": "application/grpc", "te": "trailers"},
        answer_bytes=None if answer is None else 5 + len(answer),
    )


def h2load(
    address: str, body: Body, *, callers: int, seconds: float, warm_seconds: float = 0.5,
    connections: int | None = None, before: Sequence[str] = (),
) -> Load:  # fmt: skip
    """Send for `seconds`, each caller its next request when its last is answered.

    Args:
        address: `host:port`, or `unix:PATH` of a socket.
        body: what each sends.
        callers: requests in flight.
        seconds, warm_seconds: counted, and not counted before; whole seconds and milliseconds.
        connections: over so many, which must divide `callers`; one over HTTP/2, `callers` over HTTP/1.1.
        before: words before the command, such as `taskset -c 1`.

    Raises:
        UsageError: h2load is not installed.
        ClientError: a request failed, or h2load did.
    """
    program = find_h2load()
    count = connections or (callers if body.http else 1)
    with tempfile.TemporaryDirectory(prefix="tritonkit-h2load-") as folder:
        data, log = Path(folder, "body"), Path(folder, "log")
        data.write_bytes(body.content)
        words = [
            *before, program, *(("--h1",) if body.http else ()), f"--clients={count}",
            f"--max-concurrent-streams={callers // count}", f"--duration={_milliseconds(seconds)}",
            f"--warm-up-time={_milliseconds(warm_seconds)}", f"--data={data}", f"--log-file={log}",
            *(f"--header={name}: {value}" for name, value in body.headers.items()), *_target(address, body.path),
        ]  # fmt: skip
        used_s = _children_s()
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=60 + 2 * (seconds + warm_seconds)
        )
        used_s = _children_s() - used_s
        microseconds = _latencies(log)
    what = f"{callers} callers of {address}{body.path}"
    if done.returncode != 0 or not all(p.search(done.stdout) for p in _PRINTED):
        raise ClientError(
            what, found=f"h2load ended with {done.returncode}",
            details=(done.stdout + done.stderr)[-2000:],
        )  # fmt: skip
    _check(what, done.stdout, microseconds.size, callers, body)
    p50, p95, p99 = (float(each) for each in np.percentile(microseconds, (50, 95, 99)) / 1e3)
    share = used_s / (warm_seconds + seconds)
    return Load(microseconds.size, microseconds.size / seconds, p50, p95, p99, share)


def _milliseconds(seconds: float) -> str:
    return f"{max(1, round(1e3 * seconds))}ms"


def _target(address: str, path: str) -> list[str]:
    """The words that name the server; a socket's own URL has a host that nobody looks up."""
    if address.startswith("unix:"):
        return [f"--base-uri={address}", f"http://localhost{path}"]
    return [f"http://{address}{path}"]


def _children_s() -> float:
    """Processor time of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _latencies(log: Path) -> NDArray[np.int64]:
    """Microseconds of each answer in the measured time; h2load's log: start, status, microseconds."""
    text = log.read_bytes() if log.exists() else b""
    return np.array([int(line.split(b"\t")[2]) for line in text.splitlines()], np.int64)


def _check(what: str, printed: str, answers: int, callers: int, body: Body) -> None:
    """Refuse a load with failures: others than 2xx, broken streams, answers too short."""
    counts = [pattern.search(printed) for pattern in _PRINTED]
    requests, statuses, data = (list(map(int, found.groups())) for found in counts if found)
    failed = requests[2] + requests[3] + sum(statuses[1:])
    # At both ends of the measured time an answer and its bytes are not counted together.
    least = 0.99 * (body.answer_bytes or 0) * (answers - callers)
    if failed or not answers:
        found = f"{failed} requests failed, {answers} were answered"
    elif data[0] < least:
        found = f"{answers} answers with {data[0]} bytes, so errors among them"
    else:
        return
    raise ClientError(
        what,
        found=found,
        wanted="an answer to each",
        details=printed[printed.find("finished in") :],
    )
