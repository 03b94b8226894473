"""Certificates, and each kind of server, started once for a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.client.wire.certificates import authority, certified
from tests.client.wire.kinds import HTTP2, Connect, connecting
from tritonkit.client.wire.secure import TLS

from .proxies import PROXIES, Started, Way, started

SERVERS = [pytest.param("grpcio"), *(pytest.param(name, marks=pytest.mark.needs(name)) for name in PROXIES)]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and a server of the name localhost."""
    folder = tmp_path_factory.mktemp("tls")
    authority(folder, "ca")
    certified(folder, "server")
    return folder


@pytest.fixture(params=HTTP2)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make a transport, of threads or of tasks; it is closed at the end."""
    with connecting(HTTP2[request.param]) as connect:
        yield connect


@pytest.fixture(scope="module", params=SERVERS)
def server_name(request: pytest.FixtureRequest) -> str:
    """Which server."""
    name: str = request.param
    return name


@pytest.fixture(scope="module", params=["plain", pytest.param("tls", marks=pytest.mark.needs("openssl"))])
def served(
    request: pytest.FixtureRequest, server_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Started, TLS | None]]:
    """A server as it is by default, plain and with TLS, and what a client needs for it."""
    way, tls = Way(), None
    if request.param == "tls":
        folder = request.getfixturevalue("certificates")
        way, tls = Way(tls=folder), TLS(ca=folder / "ca.pem")
    with started(server_name, tmp_path_factory.mktemp(server_name), way) as running:
        yield running, tls


Start = Callable[[Way], AbstractContextManager[Started]]


@pytest.fixture
def start(server_name: str, tmp_path: Path) -> Start:
    """Start a server of each kind in another way."""
    return lambda way: started(server_name, tmp_path, way)
