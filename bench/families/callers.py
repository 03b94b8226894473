"""Callers over HTTP/1.1: `python -m bench.families.callers HOST:PORT FOLDER`, JSON out.

One thread holds all connections, so that the load takes little of the cores that it shares with the server. Requests
are encoded beforehand, one a file of the folder; each caller sends the next one when its last is answered.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

__all__ = ["Request", "main", "written"]

WARM_S = 1.0
ENOUGH, LONGEST_S = 3, 60.0
"""Answers for each caller that a measurement waits for, and how long at most."""
_TIMEOUT_S = 60.0
_READ = 1 << 18
_SHOWN = 500


@dataclass(frozen=True)
class Request:
    """A body, and the headers that go with it."""

    body: bytes
    headers: tuple[str, ...] = ("content-type: application/octet-stream",)

    def encoded(self, path: str) -> bytes:
        """The request as it goes over the wire."""
        head = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", *self.headers, f"content-length: {len(self.body)}", "", ""]
        return "\r\n".join(head).encode() + self.body


def written(requests: list[Request], path: str, folder: Path) -> Path:
    """The folder, with a file for each request."""
    folder.mkdir(parents=True)
    for number, request in enumerate(requests):
        (folder / f"{number:03}").write_bytes(request.encoded(path))
    return folder


@dataclass
class _Caller:
    """A connection and what came of its answer."""

    connection: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    answer: bytes = b""
    """The last whole answer."""

    def answered(self) -> int | None:
        """Read what is there: the status of a whole answer, or None.

        Raises:
            ValueError: the answer is not one of HTTP with a length.
        """
        data = self.connection.recv(_READ)
        if not data:
            raise ValueError("the server closed a connection")
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        status, *lines = bytes(self.buffer[:end]).lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        if b"content-length" not in headers:
            raise ValueError(f"an answer without a length: {status.decode(errors='replace')}")
        if len(self.buffer) < end + 4 + int(headers[b"content-length"]):
            return None
        self.answer = bytes(self.buffer[end + 4 :])
        self.buffer.clear()
        return int(status.split()[1])


def _load(callers: list[_Caller], requests: Iterator[bytes], seconds: float) -> dict[str, Any]:
    """Answers in the measured time, which is longer where few came, and failures over the whole, with the first."""
    selector = selectors.DefaultSelector()
    for caller in callers:
        selector.register(caller.connection, selectors.EVENT_READ, caller)
        caller.connection.sendall(next(requests))
    begin = time.monotonic() + WARM_S
    end, answers, failures, used = begin + seconds, 0, 0, time.process_time()
    enough, latest = ENOUGH * len(callers), begin + LONGEST_S
    first = ""
    now = time.monotonic()
    while now < end or (answers < enough and now < latest):
        for key, _ in selector.select(_TIMEOUT_S):
            status = key.data.answered()
            if status is None:
                continue
            now = time.monotonic()
            if status != 200:
                failures += 1
                first = first or f"{status} {key.data.answer[:_SHOWN].decode(errors='replace')}"
            answers += begin <= now
            key.data.connection.sendall(next(requests))
        now = time.monotonic()
    share = (time.process_time() - used) / (WARM_S + now - begin)
    counts = {"answers": answers, "failures": failures, "first": first}
    return {"per_s": answers / (now - begin), **counts, "generator_share": share}


def main() -> None:
    """Connect, warm, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.families.callers", description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    requests = [file.read_bytes() for file in sorted(options.folder.iterdir())]
    host, port = options.address.rsplit(":", 1)
    callers = [_Caller(socket.create_connection((host, int(port)), _TIMEOUT_S)) for _ in range(options.callers)]
    for caller in callers:
        caller.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(json.dumps(_load(callers, cycle(requests), options.seconds)))


if __name__ == "__main__":
    main()
