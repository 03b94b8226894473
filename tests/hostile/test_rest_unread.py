"""Answers of the REST proxy that nobody reads, over HTTP/2: a real Envoy, whose own refusals they are."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from hpack import Encoder

from tests.hostile.rest_proxy import Proxy, open_proxy
from tests.native.guarded import END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame
from tests.waiting import eventually
from tritonkit.serve.core.rest import RestLimits

SMALL = RestLimits(max_request_bytes=1 << 20, max_json_bytes=64 << 10, max_memory_mib=64)
MOST_MIB = 220
"""Envoy takes some 70 MiB by itself; these calls took more than 300 with the bounds of before."""


def hoard(proxy: Proxy, streams: int) -> socket.socket:
    """A connection with this many requests, whose answers have no room."""
    connection = proxy.connect()
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/x")]
    block = Encoder().encode(fields)
    requests = [frame(HEADERS, 4 | END_STREAM, 1 + 2 * n, block) for n in range(streams)]
    with contextlib.suppress(OSError):  # ended before all is sent
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0") + b"".join(requests))
    return connection


def test_unread_answers_are_dropped_after_a_while(project: Path, tmp_path: Path) -> None:
    """Each stream is reset, though the connection is alive and idle for long may be."""
    with (
        open_proxy(project, tmp_path, RestLimits(unread_time_s=0.5)) as proxy,
        hoard(proxy, 3) as connection,
        connection.makefile("rb") as stream,
    ):
        ended = set()
        while len(ended) < 3:
            head = stream.read(9)
            stream.read(int.from_bytes(head[:3], "big"))
            if head[3] == RST_STREAM:
                ended.add(int.from_bytes(head[5:], "big"))
    assert ended == {1, 3, 5}


def test_unread_answers_do_not_fill_the_memory(project: Path, tmp_path: Path) -> None:
    """200 connections with 100 requests each: the memory stays near its bound, and others are answered."""
    with open_proxy(project, tmp_path, SMALL) as proxy, contextlib.ExitStack() as stack:
        most = 0.0
        for _ in range(200):
            stack.enter_context(hoard(proxy, 100))
            most = max(most, proxy.memory_mib())
        eventually(lambda: proxy.ask("GET", "/x").status == 404, "another caller is answered")
        assert max(most, proxy.memory_mib()) < MOST_MIB
