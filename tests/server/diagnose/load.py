"""Traffic, and what else befalls a server, for the provocations of `tritonkit diagnose`; each a context manager."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.server.at_once import at_once
from tritonkit.client import AsyncClient, Client
from tritonkit.errors import ClientError

__all__ = ["at_rate", "callers", "delayed", "hogs", "in_cgroup", "vector"]

Inputs = Mapping[str, Any]


def vector(value: float = 0.0, size: int = 4) -> Inputs:
    """One item for the small models."""
    return {"x": np.full((1, size), value, np.float32)}


@contextlib.contextmanager
def callers(
    addresses: list[str],
    model: str,
    count: int,
    inputs: Callable[[int, int], Inputs] = lambda caller, number: vector(),
    pause_s: float = 0.0,
    jitter_s: float = 0.0,
) -> Iterator[None]:
    """A given number of callers, each of which waits for its answer; `inputs` by caller and request.

    With `jitter_s` each pause is longer by a random part of it: without it callers whose requests were once joined
    are answered together, and send together from then on.
    """

    def call(caller: int, ended: threading.Event) -> None:
        address, chance = addresses[caller % len(addresses)], random.Random(caller)
        with Client(address, timeout_s=5, retry=None, breaker=None) as client:
            number = 0
            while not ended.is_set():
                with contextlib.suppress(ClientError):
                    client.model(model).predict(inputs=inputs(caller, number))
                number += 1
                ended.wait(pause_s + chance.uniform(0, jitter_s))

    with at_once(count, call):
        yield


@contextlib.contextmanager
def at_rate(address: str, model: str, rate_per_s: float) -> Iterator[None]:
    """Requests at independent moments, whatever the server does."""
    ended = threading.Event()

    async def send() -> None:
        gaps = random.Random(0)
        async with AsyncClient(address, timeout_s=60, retry=None, breaker=None) as client:
            callee = await client.model(model)
            under_way = set()
            while not ended.is_set():
                task = asyncio.ensure_future(callee.predict(inputs=vector()))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(gaps.expovariate(rate_per_s))
            for task in list(under_way):
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """A number of processes that compute all the time."""
    code = "while True: pass"
    processes = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def delayed(address: str, delay_s: float) -> Iterator[str]:
    """A proxy before a server that holds everything back so long, both ways; its address."""
    host, _, port = address.rpartition(":")
    loop = asyncio.new_event_loop()
    listening: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def send(data: bytes) -> None:
            if not writer.is_closing():
                writer.write(data)

        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                loop.call_later(delay_s, send, data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        up = await asyncio.open_connection(host, int(port))
        writers.append(up[1])
        ways = (reader, up[1]), (up[0], writer)
        tasks.update(asyncio.ensure_future(pump(*way)) for way in ways)

    async def end() -> None:
        listening[0].close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(w.wait_closed() for w in writers), return_exceptions=True)
        # What is still to be written late goes to closed writers, which take no more.
        await asyncio.sleep(2 * delay_s)

    listening.append(loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0)))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{listening[0].sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(end())
        loop.close()


@contextlib.contextmanager
def in_cgroup(pids: list[int], controller: str, **limits: str) -> Iterator[None]:
    """The processes in a cgroup of their own, version 1's or 2's, with these limits (file names with _ for .)."""
    first = Path("/sys/fs/cgroup", controller)
    parent = first if first.is_dir() else Path("/sys/fs/cgroup")
    group = parent / f"tritonkit-diagnose-{os.getpid()}"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name.replace("__", ".")).write_text(value)
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (parent / "cgroup.procs").write_text(pid)
        group.rmdir()


def may_make_cgroups(controller: str) -> bool:
    """Whether this machine lets us limit processes so."""
    return os.access(Path("/sys/fs/cgroup", controller), os.W_OK) and os.getuid() == 0
