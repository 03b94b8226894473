"""A real Envoy with a gateway's configuration, before no replica: what it lets through is answered 503."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.parts import SERVER
from tests.waiting import eventually
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.gateway import (
    Places,
    Split,
    Upstream,
    gateway_command,
    read_gateway,
    write_gateway,
    write_routes,
)
from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.keys import add_key
from tritonkit.serve.core.rest import find_envoy
from tritonkit.serve.core.unix_http import UnixConnection
from tritonkit.serve.ports import check_free

MODELS = ("digits", "digits_network", "sentences")


@dataclass
class Gateway:
    """One that runs: call it, look into its log."""

    places: Places
    admin: GatewayAdmin
    pid: int
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Address of the one port."""
        return f"127.0.0.1:{self.places.port}"

    def add_key(self, name: str, *models: str, rate: float | None = None) -> str:
        """Make a key, which the gateway takes with `reload`."""
        _, self.keys[name] = add_key(self.places.folder / "keys.json", name, models or ("*",), rate)
        return self.keys[name]

    def reload(self, split: Split | None = None) -> None:
        """Let it take the keys as they are now, and a split: every connection made after it has them."""
        # Envoy counts a configuration after it has handed it to its threads, each of which takes it before it answers
        # a connection that comes later.
        before = self.admin.taken()
        assert before is not None
        write_routes(read_gateway(self.places.folder), self.places, MODELS, split)
        eventually(lambda: (self.admin.taken() or 0) > before, "routes that Envoy takes")

    def get(self, path: str, headers: dict[str, str] | None = None, data: bytes | None = None) -> tuple[int, str]:
        """Status and text over HTTP."""
        context = ssl.create_default_context(cafile=str(self.places.folder / "tls" / "ca.crt"))
        request = urllib.request.Request(f"https://{self.address}{path}", data, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def post(self, path: str, headers: dict[str, str], data: bytes) -> tuple[int, str, dict[str, str]]:
        """Status, text and headers of an answer over HTTP/1.1, whatever is sent."""
        context = ssl.create_default_context(cafile=str(self.places.folder / "tls" / "ca.crt"))
        request = urllib.request.Request(f"https://{self.address}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)

    def call(self, method: str, message: bytes = b"", **headers: str) -> tuple[str, str]:
        """Status and words of a call over gRPC, as gRPC's own library has them."""
        sent = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        authority = (self.places.folder / "tls" / "ca.crt").read_bytes()
        with grpc.secure_channel(self.address, grpc.ssl_channel_credentials(authority)) as channel:
            ask = channel.unary_unary(method)
            try:
                ask(message, metadata=sent, timeout=30)
            except grpc.RpcError as error:
                return error.code().name, error.details() or ""
        return "OK", ""

    def connect(self, protocol: str = "http/1.1") -> ssl.SSLSocket:
        """A connection with TLS, for what no library sends."""
        context = ssl.create_default_context(cafile=str(self.places.folder / "tls" / "ca.crt"))
        context.set_alpn_protocols([protocol])
        plain = socket.create_connection(("127.0.0.1", self.places.port), 30)
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def send(self, start: str, *headers: str) -> tuple[int, str]:
        """Status and text of an answer to a request line and headers as they are, over HTTP/1.1."""
        head = "\r\n".join([start, "Host: localhost", *headers, "", ""])
        with self.connect() as connection:
            connection.sendall(head.encode("latin-1"))
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read().decode()

    def metrics(self) -> str:
        """Prometheus' metrics from Envoy's own interface."""
        connection = UnixConnection(self.places.clusters.parent, "admin.sock", 30)
        connection.request("GET", "/stats/prometheus")
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def audit(self, paths: Sequence[str], log: str = "audit.jsonl") -> list[dict[str, Any]]:
        """The line of a log about each of these paths, once all are there."""
        assert self.places.audit is not None
        file = self.places.audit.with_name(log)

        def entries() -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            own = {line["path"]: line for line in lines}
            return [own[path] for path in paths] if set(paths) <= set(own) else []

        lines: list[dict[str, Any]] = eventually(entries, f"{len(paths)} lines of audit")
        return lines


StartGateway = Callable[..., Gateway]


@pytest.fixture(scope="session")
def envoy() -> Path:
    """The real one."""
    program = find_envoy(SERVER)
    if program is None:
        pytest.skip("no Envoy")
    return program


@pytest.fixture(scope="module")
def start_gateway(envoy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    """Start one in a folder of its own, with this `gateway.yaml`."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(
        spec: str = "",
        prepare: Callable[[Path], object] | None = None,
        replicas: tuple[Upstream, ...] = (),
        metrics: str = "",
    ) -> Gateway:
        folder = tmp_path_factory.mktemp("gateway")
        make_certificates(folder / "tls", ["localhost", "127.0.0.1"])
        port = check_free("127.0.0.1", 0)
        (folder / "gateway.yaml").write_text(f"port: {port}\n{spec}")
        if prepare is not None:
            prepare(folder)
        run = folder / "run"
        run.mkdir(mode=0o700)
        settings = read_gateway(folder)
        places = Places(
            folder,
            folder / "rendered",
            run / "clusters.json",
            run / "audit.jsonl" if settings.audit == "file" else None,
            port,
            metrics,
            releases=True,
        )
        config = write_gateway(settings, places, MODELS, replicas, envoy)
        with (run / "log").open("wb") as log:
            processes.append(subprocess.Popen(gateway_command(envoy, config.name), cwd=run, stdout=log, stderr=log))
        admin = GatewayAdmin(run)
        eventually(admin.ready, f"an Envoy that is ready: {(run / 'log').read_text()}")
        return Gateway(places, admin, processes[-1].pid)

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def gateway(start_gateway: StartGateway) -> Gateway:
    """One with keys for all models, for one, and with a rate."""
    made = start_gateway()
    made.add_key("all")
    made.add_key("digits", "digits")
    made.reload()
    assert made.get("/v2", {"x-api-key": made.keys["all"]})[0] == 503
    return made
