"""Ports: free ones, taken ones and who has them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tritonkit.errors import ServerStartError, UsageError
from tritonkit.serve.ports import check_free, choose, holder, reachable
from tritonkit.serve.values import Ports


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_zero_is_any_free_port() -> None:
    """Three zeros give three different ports that can be bound."""
    ports = choose(Ports(0, 0, 0), "127.0.0.1")
    assert len({ports.grpc, ports.http, ports.metrics}) == 3
    for port in (ports.grpc, ports.http, ports.metrics):
        assert check_free("127.0.0.1", port) == port


def test_a_taken_port_is_named_with_its_process(taken: int) -> None:
    """The port, the process and the options to choose another."""
    with pytest.raises(ServerStartError, match=rf"port {taken}.*pid {os.getpid()}") as caught:
        choose(Ports(taken, 0, 0), "127.0.0.1")
    assert "--grpc-port" in caught.value.todo


def test_another_processs_port_is_found() -> None:
    """The holder is looked up among all processes of this user."""
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert holder(port).endswith(f"(pid {process.pid})")
        process.communicate("\n")


def test_a_free_port_has_no_holder() -> None:
    """Nobody listens, so nobody is named."""
    assert holder(check_free("127.0.0.1", 0)) == ""


@pytest.mark.parametrize("ports", [Ports(9001, 9001, 0), Ports(70000, 0, 0), Ports(-1, 0, 0)])
def test_ports_that_cannot_be_are_the_callers_mistake(ports: Ports) -> None:
    """The same port twice, or none of the 65535."""
    with pytest.raises(UsageError, match="ports"):
        choose(ports, "127.0.0.1")


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_a_host_of_another_machine_is_the_callers_mistake(host: str) -> None:
    """One can listen on an address of one's own only (192.0.2.1 is for documentation, RFC 5737)."""
    with pytest.raises(UsageError, match="host"):
        choose(Ports(0, 0, 0), host)


def test_addresses_are_written_for_clients_of_this_machine() -> None:
    """A server that listens everywhere is called by loopback; IPv6 goes into brackets."""
    assert reachable("0.0.0.0", 1) == "127.0.0.1:1"
    assert reachable("::", 1) == "[::1]:1"
    assert reachable("::1", 1) == "[::1]:1"
    assert reachable("10.1.2.3", 1) == "10.1.2.3:1"
