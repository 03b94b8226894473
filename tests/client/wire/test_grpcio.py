"""The uses of gRPC's library, and the behavior a client keeps with it: TLS, proxies, limits, keys."""

from __future__ import annotations

import asyncio
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.client.wire.certificates import authority, certified
from tests.client.wire.grpc_servers import Answers, body, data_of, grpc_server
from tests.client.wire.kinds import GRPCIO, Connect, connecting
from tritonkit.client import AsyncClient, Client
from tritonkit.client.wire.limits import AnswerLimit
from tritonkit.client.wire.secure import TLS, Secret
from tritonkit.client.wire.signature import ModelSignature, TensorSpec
from tritonkit.errors import InferenceError, ServerUnavailable, UsageError


@pytest.fixture(params=GRPCIO)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make a transport of gRPC's; it is closed at the end."""
    with connecting(GRPCIO[request.param]) as connect:
        yield connect


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, one that nobody trusts, a server of the name localhost, and a client."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "stranger"):
        authority(folder, name)
    for name in ("server", "client"):
        certified(folder, name)
    return folder


@contextmanager
def secured(folder: Path, *, mutual: bool = False) -> Iterator[int]:
    """The port of a server with TLS, which may want a certificate too."""
    pair = ((folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes())
    trusted = (folder / "ca.pem").read_bytes() if mutual else None
    with grpc_server(Answers(), grpc.ssl_server_credentials([pair], trusted, mutual)) as (_, port):
        yield port


@contextmanager
def proxy() -> Iterator[tuple[str, list[str]]]:
    """An HTTP proxy that knows CONNECT: its address, and whom it connected to."""
    targets: list[str] = []

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            target = self.rfile.readline().split()[1].decode()
            while self.rfile.readline().strip():
                pass
            targets.append(target)
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=pump, args=(server, self.connection))
                back.start()
                pump(self.connection, server)
                back.join()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}", targets
        server.shutdown()
        thread.join()


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("mutual", [False, True])
def test_encrypted_calls(connect: Connect, folder: Path, mutual: bool) -> None:
    """With the authority given, and this client's certificate where the server wants one."""
    own = {"certificate": folder / "client.pem", "key": folder / "client.key"} if mutual else {}
    with secured(folder, mutual=mutual) as port:
        transport = connect(f"grpcs://localhost:{port}", tls=TLS(ca=folder / "ca.pem", **own))
        assert data_of(transport.send("ModelInfer", body(data=b"x"), 20.0)) == b"x"


@pytest.mark.needs("openssl")
def test_the_certificate_is_the_servers(connect: Connect, folder: Path) -> None:
    """One of an unknown authority or for another name is refused; the name that is meant may be given."""
    with secured(folder) as port:
        with pytest.raises(ServerUnavailable, match="cannot connect"):
            connect(f"localhost:{port}", tls=TLS(ca=folder / "stranger.pem")).send("ServerLive", [b""], 20.0)
        tls = TLS(ca=folder / "ca.pem")
        connect(f"127.0.0.1:{port}", tls=tls, server_name="localhost").send("ServerLive", [b""], 20.0)


def test_a_proxy_of_the_environment_is_used(connect: Connect, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`http_proxy` says through whom: what gRPC's library is chosen for."""
    with proxy() as (through, targets):
        monkeypatch.setenv("http_proxy", f"http://{through}")
        monkeypatch.setenv("no_proxy", "")
        transport = connect(address)
        assert data_of(transport.send("ModelInfer", body(data=b"x"), 20.0)) == b"x"
        assert targets == [address]
        transport.close()


def test_a_key_does_not_travel_in_plain_text(connect: Connect) -> None:
    """The same rule as over HTTP/2 of ours."""
    with pytest.raises(UsageError, match="without TLS"):
        connect("192.0.2.1:8001", headers=(("x-api-key", Secret("hidden")),))


def test_an_answer_that_is_too_large(connect: Connect, address: str) -> None:
    """It is refused by its size, and the connection goes on."""
    transport = connect(address, limit=AnswerLimit(1000))
    with pytest.raises(InferenceError, match=r"an answer of 3\d\d\d bytes") as caught:
        transport.send("ModelInfer", body(data=bytes(3000)), 20.0)
    assert caught.value.wanted == "at most 1000 bytes"
    assert data_of(transport.send("ModelInfer", body(data=b"x"), 20.0)) == b"x"


@pytest.mark.slow
def test_what_a_model_declares_is_allowed(connect: Connect, address: str) -> None:
    """The limit grows with the models that the client learns, also after the first call."""
    limit = AnswerLimit()
    transport = connect(address, limit=limit)
    large = 65 * 2**20
    with pytest.raises(InferenceError, match="an answer of"):
        transport.send("ModelInfer", body(data=bytes(large)), 60.0)
    limit.learn(ModelSignature("m", (), 0, {}, {"y": TensorSpec("y", "UINT8", (large,), batched=False)}))
    assert len(data_of(transport.send("ModelInfer", body(data=bytes(large)), 60.0))) == large


def test_xds_says_what_it_lacks(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """`xds:///NAME` goes to gRPC's resolver, which wants its bootstrap file."""
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP", raising=False)
    transport = connect("xds:///models")
    assert transport.address == "xds:///models"
    with pytest.raises(ServerUnavailable, match="GRPC_XDS_BOOTSTRAP"):
        transport.send("ServerLive", [b""], 20.0)


def test_begun_calls_overlap_and_can_be_given_up(address: str, answers: Answers) -> None:
    """`begin` returns immediately; a cancelled call reports that, there and at the server."""
    with connecting(GRPCIO["grpcio-threads"]) as connect:
        transport = connect(address)
        slow = transport.begin("ModelInfer", body("slow", id="5"), 20.0)
        assert data_of(transport.begin("ModelInfer", body(data=b"x"), 20.0).result()) == b"x"
        assert not slow.wait(0.001)
        assert answers.slow.wait(20), "the server has begun the call that is given up"
        slow.cancel()
        assert slow.wait(20.0)
        with pytest.raises(InferenceError, match="the call was cancelled"):
            slow.result()
        assert answers.cancelled.wait(20)


def test_clients_call_over_it(address: str) -> None:
    """`wire="grpcio"` of both clients; another wire is refused."""
    with Client(address, wire="grpcio") as client:
        assert client.models() == ()

    async def story() -> Any:
        async with AsyncClient(address, wire="grpcio") as client:
            return await client.models()

    assert asyncio.run(story()) == ()
    with pytest.raises(UsageError, match="wire='quic'"):
        Client(address, wire="quic")  # type: ignore[arg-type]


def test_without_the_library_the_extra_is_named() -> None:
    """A client that needs it says what to install."""
    program = """
import sys
sys.modules["grpc"] = None
from tritonkit.client import Client
from tritonkit.errors import UsageError
try:
    Client("127.0.0.1:1", wire="grpcio")
except UsageError as error:
    print(error.todo)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "pip install 'tritonkit[grpcio]'\n", done.stderr
