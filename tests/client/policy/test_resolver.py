"""Names that stand for several servers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

from tests.client.policy.world import World
from tritonkit.client.policy import Policy
from tritonkit.client.policy.resolver import parse_name
from tritonkit.client.steps import Sleep, Steps, run_async, run_blocking
from tritonkit.errors import DeadlineExceeded, ServerUnavailable, UsageError


class Dns:
    """`getaddrinfo` with given answers and a count of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: list[str] = []
        self.lookups = 0
        self.answered = 0
        self.hold: threading.Event | None = None
        self.real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: str, port: int, *args: Any, **options: Any) -> list[Any]:
        """Every host, or the error of an unknown name."""
        self.lookups += 1
        if self.hold is not None:
            self.hold.wait(30)
        self.answered += 1
        if not self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [self._info(host, port) for host in self.hosts]

    def _info(self, host: str, port: int) -> Any:
        if ":" in host:
            return (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (host, port, 0, 0))
        return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Dns:
    """A DNS made of a list."""
    return Dns(monkeypatch)


def world(*addresses: str, script: Any = lambda _: (0.0, None), **settings: Any) -> World:
    """A world over names."""
    return World(addresses or ["dns:triton:8001"], script, **settings)


def addresses(here: World) -> list[str]:
    """The addresses of the servers that get calls."""
    return sorted(replica.address for replica in here.policy.pool.replicas)


def settled(here: World) -> None:
    """Wait for look-ups in other threads."""
    for resolver in here.policy.resolvers:
        for _ in range(2000):
            if resolver.answered.is_set:
                break
            threading.Event().wait(0.005)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("dns:triton:8001", ("triton", 8001)),
        ("dns:///triton.internal:8001", ("triton.internal", 8001)),
        ("dns:[::1]:8001", ("::1", 8001)),
        ("triton:8001", None),
        ("127.0.0.1:8001", None),
    ],
)
def test_addresses_that_are_names(address: str, expected: Any) -> None:
    """`dns:host:port` and gRPC's own `dns:///host:port` are names; others are one server."""
    name = parse_name(address)
    assert (name and name[:2]) == expected


@pytest.mark.parametrize(
    "address", ["dns:triton", "dns:", "dns::8001", "dns://a/b:1", "dns:a:99999", "dns:a:x", "dns:grpc://a:1"]
)
def test_names_that_are_none(address: str) -> None:
    """A name without host or port is refused with an example."""
    with pytest.raises(UsageError, match="dns"):
        world(address)


@pytest.mark.parametrize("listed", [[], "a:1", ["a:1", "a:1"]])
def test_lists_that_are_none(listed: Any) -> None:
    """No address, a bare text and the same address twice are mistakes."""
    with pytest.raises(UsageError):
        World(listed, lambda _: (0.0, None))


def test_every_address_is_a_server(dns: Dns) -> None:
    """All A and AAAA addresses get calls, IPv6 in brackets; the name stays the server's for TLS."""
    dns.hosts = ["10.0.0.2", "10.0.0.1", "fd00::1"]
    here = world()
    assert here.policy.pool.replicas == ()
    endpoints = {here.call().endpoint for _ in range(60)}
    assert endpoints == {"10.0.0.1:8001", "10.0.0.2:8001", "[fd00::1]:8001"}
    assert {server.server_name for server in here.made} == {"triton"}
    assert dns.lookups == 1


def test_names_and_addresses_together(dns: Dns) -> None:
    """A list may hold both, and an address that DNS gives too is one server."""
    dns.hosts = ["10.0.0.1", "10.0.0.2"]
    here = world("10.0.0.1:8001", "dns:triton:8001")
    here.call()
    settled(here)
    assert addresses(here) == ["10.0.0.1:8001", "10.0.0.2:8001"]
    assert len(here.made) == 2


def test_a_name_is_looked_up_again_after_a_while(dns: Dns) -> None:
    """After `refresh_s` the next call starts a look-up and does not wait for it; servers come and go."""
    dns.hosts = ["10.0.0.1", "10.0.0.2"]
    here = world(refresh_s=30.0)
    here.call()
    dns.hosts = ["10.0.0.2", "10.0.0.3"]
    here.clock.now += 29.0
    here.call()
    assert dns.lookups == 1
    here.clock.now += 1.1
    here.call()
    settled(here)
    assert dns.lookups == 2
    assert addresses(here) == ["10.0.0.2:8001", "10.0.0.3:8001"]
    here.call()
    assert here.servers["10.0.0.1:8001"].closed == 1


def test_a_slow_dns_keeps_nobody_waiting_later(dns: Dns) -> None:
    """While a later look-up hangs, calls go to what is known, and only one look-up is under way."""
    dns.hosts = ["10.0.0.1"]
    here = world(refresh_s=5.0)
    here.call()
    dns.hold = threading.Event()
    for _ in range(5):
        here.clock.now += 6.0
        assert here.call().endpoint == "10.0.0.1:8001"
    dns.hold.set()
    settled(here)
    assert dns.lookups == 2


def test_a_lost_server_hurries_the_next_look_up(dns: Dns) -> None:
    """After `ServerUnavailable` the name is looked up immediately, but not twice within a second."""
    dns.hosts = ["10.0.0.1"]
    failing = ServerUnavailable("10.0.0.1:8001", found="refused")
    here = world(script=lambda _: (0.0, failing), breaker=None, retry=None)
    for _ in range(5):
        with pytest.raises(ServerUnavailable):
            here.call()
        settled(here)
    assert dns.lookups == 1
    here.clock.now += 1.1
    for _ in range(5):
        with pytest.raises(ServerUnavailable):
            here.call()
        settled(here)
    assert dns.lookups == 2


def test_all_servers_replaced(dns: Dns) -> None:
    """When every address changed, as after a rolling restart, calls find the new ones within a second."""
    dns.hosts = ["10.0.0.1"]
    gone = {"10.0.0.1:8001"}
    refused = ServerUnavailable("10.0.0.1:8001", found="refused")
    here = world(script=lambda s: (0.0, refused if s.address in gone and dns.lookups > 1 else None))
    here.call()
    dns.hosts = ["10.0.0.2"]
    dns.lookups += 1  # from here on the old server is dead
    ends = []
    for _ in range(12):
        here.clock.now += 0.1
        try:
            ends.append(here.call().endpoint)
        except ServerUnavailable:
            ends.append("lost")
        settled(here)
    assert ends[-1] == "10.0.0.2:8001"


def test_a_server_is_left_before_its_transport_is_closed(dns: Dns) -> None:
    """State that it holds for the client, such as shared memory, is given up while the server can still be reached."""
    left: list[tuple[str, int]] = []

    def leave(transport: Any) -> Steps[None]:
        yield Sleep(0.0)
        left.append((transport.address, transport.closed))

    dns.hosts = ["10.0.0.1", "10.0.0.2"]
    here = world(leave=leave)
    here.call()
    dns.hosts = ["10.0.0.2"]
    here.clock.now += 31
    for _ in range(3):
        here.call()
        settled(here)
    assert left == [("10.0.0.1:8001", 0)]
    assert here.servers["10.0.0.1:8001"].closed == 1


def test_an_unknown_name(dns: Dns) -> None:
    """A name that DNS does not know is `ServerUnavailable` with the reason, and is looked up once a second."""
    here = world()
    for _ in range(3):
        with pytest.raises(ServerUnavailable) as caught:
            here.call()
    assert "Name or service not known" in caught.value.found
    assert caught.value.where == "dns:triton:8001"
    assert dns.lookups == 1
    dns.hosts = ["10.0.0.1"]
    here.clock.now += 1.1
    assert here.call().endpoint == "10.0.0.1:8001"


def test_a_dns_that_fails_later_changes_nothing(dns: Dns) -> None:
    """The known addresses stay in use."""
    dns.hosts = ["10.0.0.1"]
    here = world(refresh_s=5.0)
    here.call()
    dns.hosts = []
    here.clock.now += 6.0
    here.call()
    settled(here)
    assert here.call().endpoint == "10.0.0.1:8001"


def test_a_first_look_up_ends_at_the_deadline(dns: Dns) -> None:
    """A DNS that hangs costs a call no more than its time."""
    dns.hold = threading.Event()
    here = world()
    with pytest.raises(DeadlineExceeded, match="not resolved"):
        here.call(timeout_s=0.05)
    dns.hold.set()
    settled(here)


def test_many_callers_share_the_first_look_up(dns: Dns) -> None:
    """Threads that start together wait for one look-up."""
    dns.hosts = ["10.0.0.1"]
    dns.hold = threading.Event()
    here = world()
    ends: list[str] = []
    threads = [threading.Thread(target=lambda: ends.append(here.call().endpoint)) for _ in range(8)]
    for thread in threads:
        thread.start()
    dns.hold.set()
    for thread in threads:
        thread.join(30)
    assert ends == ["10.0.0.1:8001"] * 8
    assert dns.lookups == 1


class AsyncServer:
    """A transport of tasks that answers with its address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.closed = 0

    async def send(
        self, method: str, body: Any, timeout_s: float, headers: Any = (), elsewhere: Any = None
    ) -> memoryview:
        """The address."""
        return memoryview(self.address.encode())

    async def close(self) -> None:
        """Counted."""
        self.closed += 1


def test_tasks_share_a_look_up_that_outlives_their_cancelling(dns: Dns) -> None:
    """The task that began a look-up is cancelled; the others still get its answer."""
    dns.hosts = ["10.0.0.1"]
    dns.hold = threading.Event()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        policy = Policy(["dns:triton:8001"], lambda address, _: AsyncServer(address))

        def call() -> asyncio.Task[Any]:
            steps = policy.call("ModelInfer", (b"",), loop.time() + 20, where="m")
            return asyncio.create_task(run_async(steps))

        tasks = [call() for _ in range(5)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        await asyncio.sleep(0)
        assert dns.hold is not None
        dns.hold.set()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError)
        assert [end.endpoint for end in ends[1:]] == ["10.0.0.1:8001"] * 4
        await policy.aclose()
        assert [replica.transport.closed for replica in policy.pool.replicas] == [1]

    asyncio.run(story())
    assert dns.lookups == 1


def test_the_real_localhost() -> None:
    """The system's own resolver knows localhost; its addresses are this machine's."""
    here = world("dns:localhost:8001")
    here.call()
    assert set(addresses(here)) <= {"127.0.0.1:8001", "[::1]:8001"}
    assert addresses(here)
    assert {server.server_name for server in here.made} == {"localhost"}


def test_a_transport_that_cannot_be_made(dns: Dns) -> None:
    """An error in making a transport reaches the caller, and is not a thread's traceback."""

    def connect(address: str, name: str | None) -> Any:
        raise UsageError("TLS", found="no such file")

    dns.hosts = ["10.0.0.1"]
    policy = Policy(["dns:triton:8001"], connect)
    with pytest.raises(UsageError, match="no such file"):
        run_blocking(policy.call("ModelInfer", (), time.monotonic() + 20, where="m"))


def test_a_closed_client_looks_nothing_up(dns: Dns) -> None:
    """After `close` a name is not looked up and no transport is made."""
    dns.hosts = ["10.0.0.1"]
    here = world()
    here.policy.close()
    with pytest.raises(UsageError, match="closed"):
        here.call()
    assert not here.made
