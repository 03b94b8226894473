"""Names of hosts: a DNS that hangs costs a call its time and no more, and the process few threads."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tritonkit.client import AsyncClient, Client
from tritonkit.client.cache import Cache, Entry, PredictionCache
from tritonkit.client.steps import Sleep, Steps, run_blocking
from tritonkit.client.wire.http2 import Http2Transport
from tritonkit.errors import ClientError, DeadlineExceeded, ServerUnavailable


class HungDns:
    """A `getaddrinfo` that answers when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: list[str] = []
        self.go_on = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: str, port: int, *args: Any, **options: Any) -> Any:
        """Nobody, after a long while."""
        self.hosts.append(host)
        self.go_on.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def threads() -> list[threading.Thread]:
    """Threads that look names up."""
    return [thread for thread in threading.enumerate() if thread.name == "tritonkit-dns"]


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[HungDns]:
    """A DNS that hangs until the test is over."""
    dns = HungDns(monkeypatch)
    yield dns
    dns.go_on.set()
    for thread in threads():
        thread.join(10)


ADDRESSES = ["slow.example:8001", "dns:slow.example:8001"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_call_of_a_thread_ends_in_its_time(hung: HungDns, address: str) -> None:
    """`DeadlineExceeded` when its time is up, whatever the system's resolver does."""
    with Client(address, timeout_s=0.3) as client:
        with pytest.raises(DeadlineExceeded):
            client.models()
        assert threads(), "the resolver has not answered"


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_call_of_a_task_ends_in_its_time(hung: HungDns, address: str) -> None:
    """A task gets the same; and the end of the loop does not wait for the resolver either."""

    async def story() -> None:
        async with AsyncClient(address, timeout_s=0.3) as client:
            with pytest.raises(DeadlineExceeded):
                await client.models()

    asyncio.run(story())
    assert threads(), "the resolver has not answered"


def test_calls_for_one_name_share_a_look_up(hung: HungDns) -> None:
    """A hundred calls of several clients while DNS hangs cost one thread and one question."""
    clients = [Client(ADDRESSES[number % 2], timeout_s=0.05) for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        for done in [pool.submit(client.models) for client in clients * 10]:
            assert isinstance(done.exception(30), ClientError)
    for client in clients:
        client.close()
    assert hung.hosts == ["slow.example"]
    assert len(threads()) == 1


def test_many_names_share_a_few_threads(hung: HungDns) -> None:
    """Look-ups without a thread wait in line, each for its own time."""
    transports = [Http2Transport(f"slow{number}.example:8001") for number in range(40)]
    with ThreadPoolExecutor(40) as pool:
        calls = [pool.submit(transport.send, "ServerLive", [b""], 0.2) for transport in transports]
        for done in calls:
            assert isinstance(done.exception(30), DeadlineExceeded)
    assert len(threads()) <= 16
    hung.go_on.set()
    with pytest.raises(ServerUnavailable, match=r"slow39\.example is not known"):
        transports[39].send("ServerLive", [b""], 20.0)


def test_time_to_connect_holds_too(hung: HungDns) -> None:
    """With more time for the call than for a connection, the name is what is told."""
    transport = Http2Transport("slow.example:8001", connect_timeout_s=0.1)
    with pytest.raises(ServerUnavailable, match=r"slow\.example was not resolved in time"):
        transport.send("ServerLive", [b""], 20.0)


def test_an_address_in_figures_asks_nobody(hung: HungDns) -> None:
    """It needs no DNS, and so no thread."""
    for address in ("127.0.0.1:1", "[::1]:1"):
        with pytest.raises(ServerUnavailable, match="cannot connect"):
            Http2Transport(address).send("ServerLive", [b""], 20.0)
    assert not hung.hosts


def test_a_name_that_can_be_none() -> None:
    """A name that the system's resolver refuses to look up is unknown, like any other."""
    with pytest.raises(ServerUnavailable, match="is not known"):
        Http2Transport(f"{'a' * 70}.example:8001").send("ServerLive", [b""], 20.0)


def test_a_loop_whose_threads_are_all_taken() -> None:
    """Names are looked up all the same: the program's own threads are not used."""

    async def story() -> None:
        loop, held = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        taken = loop.run_in_executor(None, held.wait, 30)
        try:
            async with AsyncClient("localhost:1", timeout_s=20.0, retry=None) as client:
                with pytest.raises(ServerUnavailable, match="refused"):
                    await client.models()
        finally:
            held.set()
            await taken

    asyncio.run(story())


def test_the_name_of_a_redis(hung: HungDns) -> None:
    """A cache shared through Redis holds a call up no longer than it may, also in a thread."""
    cache = PredictionCache(Cache(redis="redis://slow.example:6379", redis_timeout_s=0.1))
    key = cache.key("", [b"m"])

    def make() -> Steps[Entry]:
        yield Sleep(0.0)
        return Entry("m", "1", {"y": np.zeros(1, np.float32)})

    kept, origin = run_blocking(cache.fetch(key, make))
    assert (kept.version, origin) == ("1", "server")
    assert threads(), "the resolver has not answered"
    cache.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_does_not_wait_for_its_parent_s_threads() -> None:
    """A look-up under way in the parent is made again in the child."""
    program = textwrap.dedent("""
        import os, socket, threading
        from tritonkit.client.wire.names import look_up
        real, parent = socket.getaddrinfo, os.getpid()
        def slow(*args, **options):
            if os.getpid() == parent:
                threading.Event().wait(20)
            return real(*args, **options)
        socket.getaddrinfo = slow
        look_up("localhost", 1)
        if (child := os.fork()) == 0:
            os._exit(7 if look_up("localhost", 1).result(10) else 8)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "7", done.stderr
