"""Fixtures of the wire: a real gRPC server, and every kind of transport to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .grpc_servers import Answers, grpc_server
from .kinds import KINDS, Connect, connecting


@pytest.fixture
def answers() -> Answers:
    """The server's behavior and its record of calls."""
    return Answers()


@pytest.fixture
def address(answers: Answers) -> Iterator[str]:
    """The address of a real server."""
    with grpc_server(answers) as (_, port):
        yield f"127.0.0.1:{port}"


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make a transport of each kind; it is closed at the end."""
    with connecting(KINDS[request.param]) as connect:
        yield connect
