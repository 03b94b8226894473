"""A release's part of the requests, in a real Envoy before servers that say their own name."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import h2.connection
import h2.events
import pytest

from tests.operate.gateway.conftest import Gateway, StartGateway
from tests.waiting import eventually
from tritonkit.operate.gateway import Split, Upstream, read_gateway, write_clusters
from tritonkit.operate.gateway.logs import RELEASE_LOG

pytestmark = pytest.mark.needs("envoy")

INFER = "/inference.GRPCInferenceService/ModelInfer"


class Named:
    """A gRPC server that answers every call with its name, and counts them by model."""

    def __init__(self, name: str, address: str = "127.0.0.1:0") -> None:
        self.name, self.seen = name, Counter[bytes]()
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self,))  # type: ignore[arg-type]
        port = self._server.add_insecure_port(address)
        self.address = f"{address.rpartition(':')[0]}:{port}"
        self._server.start()

    def service(self, details: Any) -> Any:
        """gRPC's own health checks succeed; all else is answered with the name."""
        if details.method.startswith("/grpc.health"):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01")

        def answer(request: bytes, context: Any) -> bytes:
            self.seen[request] += 1
            return self.name.encode()

        return grpc.unary_unary_rpc_method_handler(answer)

    def stop(self) -> None:
        """Calls of it fail from now on."""
        self._server.stop(None).wait()


def message(model: str) -> bytes:
    """A ModelInferRequest of nothing but the model's name."""
    return b"\x0a" + bytes([len(model)]) + model.encode()


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Named]]:
    """Servers at which requests may end."""
    made = {name: Named(name) for name in ("stable", "candidate", "shadow")}
    yield made
    for server in made.values():
        server.stop()


@pytest.fixture(scope="module")
def before(start_gateway: StartGateway, servers: dict[str, Named]) -> Gateway:
    """A gateway before the stable server."""
    made = start_gateway(replicas=(Upstream("stable", servers["stable"].address),))
    made.add_key("all")
    made.reload()
    eventually(lambda: answers(made, "digits", 1) == {"stable": 1}, "the stable server")
    return made


def answers(gateway: Gateway, model: str, count: int, key: str = "all", **headers: str) -> Counter[str]:
    """Counts of the servers that answered `count` calls, or of reasons why calls failed."""
    sent = (("x-api-key", gateway.keys[key]), *((name.replace("_", "-"), value) for name, value in headers.items()))
    authority = (gateway.places.folder / "tls" / "ca.crt").read_bytes()
    counts: Counter[str] = Counter()
    with grpc.secure_channel(gateway.address, grpc.ssl_channel_credentials(authority)) as channel:
        ask = channel.unary_unary(INFER)
        for _ in range(count):
            try:
                counts[ask(message(model), metadata=sent, timeout=30).decode()] += 1
            except grpc.RpcError as error:
                counts[error.code().name] += 1
    return counts


def split(gateway: Gateway, servers: dict[str, Named], made: Split | None) -> None:
    """Let the gateway take it: clusters first, for routes name them."""
    spec = read_gateway(gateway.places.folder)
    replicas = (Upstream("stable", servers["stable"].address),)
    write_clusters(spec, gateway.places, replicas, made)
    eventually(lambda: gateway.admin.healthy("grpc-candidate") > 0, "a candidate that is known")
    gateway.reload(made)


def test_requests_are_split_and_testers_choose(before: Gateway, servers: dict[str, Named]) -> None:
    """Weights split requests of the released model only; a header chooses."""
    candidate = Upstream("candidate", servers["candidate"].address)
    split(before, servers, Split(("digits",), candidate, percent=30))
    counts = answers(before, "digits", 400)
    # A share of 0.3 of 400 lies within these bounds but for one of a million runs.
    assert 75 < counts["candidate"] < 170, counts
    assert counts["candidate"] + counts["stable"] == 400
    assert answers(before, "sentences", 50) == {"stable": 50}
    chosen = {"x_tritonkit_release": "candidate"}
    assert answers(before, "digits", 20, **chosen) == {"candidate": 20}
    assert answers(before, "digits", 20, x_tritonkit_release="stable") == {"stable": 20}
    assert answers(before, "sentences", 20, **chosen) == {"stable": 20}


@pytest.mark.slow
def test_what_is_released_is_logged(before: Gateway, servers: dict[str, Named]) -> None:
    """A line for each request that is split: cluster, who answered, statuses, flags, microseconds, the key."""
    file = before.places.clusters.with_name(RELEASE_LOG)
    candidate = Upstream("candidate", servers["candidate"].address)
    before.add_key("logged")
    split(before, servers, Split(("digits",), candidate, percent=100))

    def lines() -> list[list[str]]:
        own = file.read_text().splitlines() if file.exists() else []
        return [fields for fields in (line.split("\t") for line in own) if fields[-1] == "logged"]

    assert answers(before, "digits", 5, "logged") == {"candidate": 5}
    answers(before, "sentences", 5, "logged")
    answers(before, "digits", 5, "logged", x_tritonkit_release="stable")
    answers(before, "digits", 5, "logged")
    eventually(lambda: len(lines()) >= 10, "a line for each request")
    assert len(lines()) == 10
    fields = ["grpc-candidate", candidate.grpc, "200", "0", "-"]
    assert all(line[:5] == fields and int(line[5]) > 0 and len(line) == 7 for line in lines())


def test_the_time_of_a_request_begins_when_it_was_sent_whole(before: Gateway, servers: dict[str, Named]) -> None:
    """A caller that sends for two seconds makes no version look slow, in a release's log and in metrics."""
    file = before.places.clusters.with_name(RELEASE_LOG)
    before.add_key("slow")
    candidate = Upstream("candidate", servers["candidate"].address)
    split(before, servers, Split(("digits",), candidate, percent=100))
    assert send_slowly(before, 2.0)
    eventually(lambda: file.exists() and "\tslow\n" in file.read_text(), "its line")
    micros = [line.split("\t")[5] for line in file.read_text().splitlines() if line.endswith("\tslow")]
    assert [int(figure) < 2_000_000 for figure in micros] == [True]
    took = r'envoy_gateway_request_ms_bucket\{[^}]*key="slow"[^}]*le="2000"\} (\d+)'
    counted = r'envoy_gateway_request_ms_count\{[^}]*key="slow"[^}]*\} (\d+)'
    figures = [re.search(pattern, before.metrics()) for pattern in (took, counted)]
    assert figures[0]
    assert figures[1]
    assert figures[0][1] == figures[1][1]


def send_slowly(gateway: Gateway, pause_s: float) -> bool:
    """Send a call whose last byte comes after a pause; whether it was answered."""
    context = ssl.create_default_context(cafile=str(gateway.places.folder / "tls" / "ca.crt"))
    context.set_alpn_protocols(["h2"])
    wire = h2.connection.H2Connection()
    sent = message("digits")
    body = b"\0" + len(sent).to_bytes(4, "big") + sent
    with (
        socket.create_connection(("127.0.0.1", gateway.places.port), 30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        wire.initiate_connection()
        wire.send_headers(
            1,
            [
                (":method", "POST"),
                (":path", INFER),
                (":scheme", "https"),
                (":authority", "localhost"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("x-api-key", gateway.keys["slow"]),
            ],
        )
        wire.send_data(1, body[:-1])
        connection.sendall(wire.data_to_send())
        time.sleep(pause_s)
        wire.send_data(1, body[-1:], end_stream=True)
        connection.sendall(wire.data_to_send())
        while True:
            for event in wire.receive_data(connection.recv(65536)):
                if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                    fields = dict(event.headers)
                    if b"grpc-status" in fields:
                        return fields[b"grpc-status"] == b"0"
                if isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                    return False


def test_copies_are_answered_by_nobody_that_callers_see(before: Gateway, servers: dict[str, Named]) -> None:
    """The shadow gets what the stable one gets; its answers go nowhere."""
    made = Split(
        ("digits",),
        Upstream("candidate", servers["candidate"].address),
        0,
        shadow=servers["shadow"].address,
        shadow_percent=100,
    )
    split(before, servers, made)
    for copies in range(5, 55, 5):  # no more than may be in flight at the same time
        assert answers(before, "digits", 5) == {"stable": 5}
        eventually(lambda copies=copies: servers["shadow"].seen[message("digits")] == copies, "all copies")
    assert servers["shadow"].seen[message("sentences")] == 0


def test_a_candidate_that_is_gone_costs_no_call(before: Gateway, servers: dict[str, Named]) -> None:
    """The stable server answers what the candidate does not."""
    dying = Named("dying")
    split(before, servers, Split(("digits",), Upstream("candidate", dying.address), percent=100))
    assert answers(before, "digits", 5) == {"dying": 5}
    dying.stop()
    assert answers(before, "digits", 100) == {"stable": 100}


def test_without_a_split_all_is_as_before(before: Gateway, servers: dict[str, Named]) -> None:
    """The routes go first, the clusters after them."""
    spec = read_gateway(before.places.folder)
    before.reload()
    assert answers(before, "digits", 10, x_tritonkit_release="candidate") == {"stable": 10}
    write_clusters(spec, before.places, (Upstream("stable", servers["stable"].address),))
    eventually(lambda: before.admin.healthy("grpc-candidate") == 0, "its clusters are gone")
    assert answers(before, "digits", 10) == {"stable": 10}
