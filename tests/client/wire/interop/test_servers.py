"""The wire with servers that nobody here wrote: gRPC's own, nginx, HAProxy and Envoy, plain and with TLS."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hyperframe.frame import SettingsFrame

from tests.client.wire.grpc_servers import body, data_of
from tests.client.wire.kinds import Connect
from tritonkit.client.wire.secure import TLS
from tritonkit.errors import ClientError, DeadlineExceeded, InferenceError

from .conftest import SERVERS, Start
from .proxies import Started, Way
from .tap import tapped

pytestmark = pytest.mark.slow

MIB = 2**20
ESCAPED = 'a 50 % "quota" was\treached,\nü 模型 %25'


@pytest.fixture
def transport(connect: Connect, served: tuple[Started, TLS | None]) -> Any:
    """To a server as it is by default."""
    running, tls = served
    return connect(running.address, tls=tls)


def only(*names: str) -> pytest.MarkDecorator:
    """For tests of some servers alone."""
    servers = [server for server in SERVERS if server.values[0] in names]
    return pytest.mark.parametrize("server_name", servers, scope="module")


def call(transport: Any, data: bytes = b"x", timeout_s: float = 60.0) -> bytes:
    """Send these bytes to the model that echoes."""
    return data_of(transport.send("ModelInfer", body(data=data), timeout_s))


@pytest.mark.parametrize("size", [0, 1, 16 * 2**10, MIB, 16 * MIB])
def test_a_message_of_any_size(transport: Any, size: int) -> None:
    """Both ways, and small calls before and after it on the same connection."""
    data = bytes(range(256)) * (size // 256 + 1)
    for message in (b"first", data[:size], b"last"):
        assert call(transport, message) == message


def test_many_calls_at_once(transport: Any) -> None:
    """Small and large ones mixed: each caller gets its own answer."""

    def caller(number: int) -> bool:
        data = str(number).encode() * (1 if number % 4 else 50_000)
        return all(call(transport, data) == data for _ in range(5))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(caller, range(32)))


@pytest.mark.parametrize("code", ["NOT_FOUND", "INVALID_ARGUMENT", "INTERNAL"])
def test_an_error_in_trailers_alone(transport: Any, code: str) -> None:
    """The status and its message, whatever characters gRPC had to escape in it: words of a model's own."""
    with pytest.raises(InferenceError) as caught:
        transport.send("ModelInfer", body(code, id=ESCAPED), 60.0)
    assert caught.value.code == code
    assert caught.value.found == f"{code}: {ESCAPED}"
    assert call(transport) == b"x"


def test_a_stream(transport: Any) -> None:
    """Messages both ways, and an end of its own; an error after messages is read after them."""
    stream = transport.stream()
    for data in (b"one", bytes(MIB)):
        stream.write(body(data=data, id="2"), 60.0)
        assert [len(stream.read(60.0)) > len(data) for _ in range(2)] == [True, True]
    stream.end()
    assert stream.read(60.0) is None
    failing = transport.stream()
    failing.write(body(data=b"one"))
    assert failing.read(60.0) is not None
    failing.write(body("fail"))
    with pytest.raises(InferenceError, match="INTERNAL: as asked"):
        failing.read(60.0)


def test_a_call_given_up_is_reset(transport: Any, served: tuple[Started, TLS | None]) -> None:
    """RST_STREAM reaches the model's server, through a proxy too, and the connection lives on."""
    running, _ = served
    running.answers.cancelled.clear()
    with pytest.raises(DeadlineExceeded):
        transport.send("ModelInfer", body("slow", id="2"), 0.2)
    assert running.answers.cancelled.wait(60)
    assert call(transport) == b"x"


@pytest.mark.parametrize("size", [4_000, 12_000])
def test_trailers_of_many_bytes(transport: Any, size: int) -> None:
    """Metadata that a server adds to an answer."""
    for _ in range(3):
        transport.send("ModelInfer", body("trailers", id=str(size)), 60.0)
        assert call(transport) == b"x"


def test_headers_of_many_bytes(transport: Any, served: tuple[Started, TLS | None]) -> None:
    """Metadata of a call, more than one frame may hold: HEADERS and CONTINUATION."""
    running, _ = served
    value = "v" * 20_000
    transport.send("ModelInfer", body(), 60.0, (("x-own", value),))
    assert running.answers.metadata[-1]["x-own"] == value


def test_one_call_at_a_time(connect: Connect, start: Start) -> None:
    """A server that allows one concurrent stream gets one; the others wait for their turn."""
    with start(Way(streams=1)) as running, tapped(running.address) as tap:
        transport = connect(tap.address)
        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(call, transport, b"%d" % number) for number in range(40)]
            assert [done.result(60) for done in calls] == [b"%d" % number for number in range(40)]
        assert len(tap.written) == 1
        settings = [f.settings for f in tap.frames()[0] if isinstance(f, SettingsFrame)]
        assert {SettingsFrame.MAX_CONCURRENT_STREAMS: 1}.items() <= settings[0].items()


@only("nginx", "envoy", "grpcio")
def test_a_connection_that_is_closed_while_calls_run(connect: Connect, start: Start) -> None:
    """GOAWAY by the connection's age or number of calls: none of many calls fails."""
    with start(Way(age_s=1.0, requests=10)) as running, tapped(running.address) as tap:
        transport = connect(tap.address)

        def caller(number: int) -> None:
            for turn in range(30):
                if turn % 3:
                    assert call(transport, b"x" * number) == b"x" * number
                else:
                    transport.send("ModelInfer", body("slow", id="0.1"), 60.0)

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(caller, number) for number in range(4)]:
                done.result(120)
        assert tap.count("GoAway") > 0
        assert len(tap.written) > 1


def test_an_idle_connection_that_was_cut(connect: Connect, start: Start) -> None:
    """The next call works."""
    with start(Way(idle_s=1)) as running, tapped(running.address) as tap:
        transport = connect(tap.address)
        for cut in (1, 2):
            assert call(transport) == b"x"
            while tap.ended < cut and tap.count("GoAway") < cut:
                time.sleep(0.05)
        assert call(transport) == b"x"
        assert len(tap.written) == 3


def test_a_silent_server_is_asked_and_answers(connect: Connect, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that takes long is kept alive by a PING, and ends well."""
    monkeypatch.setattr("tritonkit.client.wire.http2.keepalive.PING_AFTER_S", 0.2)
    monkeypatch.setattr("tritonkit.client.wire.http2.socket_io.SLICE_S", 0.1)
    monkeypatch.setattr("tritonkit.client.wire.http2.task_connection._WATCH_S", 0.1)
    with start(Way()) as running, tapped(running.address) as tap:
        transport = connect(tap.address)
        transport.send("ModelInfer", body("slow", id="1"), 60.0)
        assert call(transport) == b"x"
        assert tap.count("Ping", "ACK") > 0


def test_a_server_lost_amid_a_call(connect: Connect, start: Start) -> None:
    """The call that a proxy's server was to answer ends with an error of ours, and the next one too."""
    with start(Way()) as running, ThreadPoolExecutor(1) as pool:
        transport = connect(running.address)
        assert call(transport) == b"x"
        before = len(running.answers.metadata)
        cut = pool.submit(transport.send, "ModelInfer", body("slow", id="2"), 60.0)
        while len(running.answers.metadata) == before:
            time.sleep(0.01)
        running.stop_backend()
        for failing in (lambda: cut.result(60), lambda: call(transport)):
            with pytest.raises(ClientError) as caught:
                failing()
            assert "127.0.0.1" in caught.value.where


@only("nginx", "haproxy", "envoy")
def test_a_proxy_that_stops(connect: Connect, start: Start) -> None:
    """Calls under way end, well or with an error of ours, and none hangs."""
    for done, _ in stopped(connect, start, signal.SIGTERM):
        assert done is None or isinstance(done, ClientError), done


@only("nginx", "haproxy")
def test_a_proxy_that_drains(connect: Connect, start: Start, server_name: str) -> None:
    """It says GOAWAY while calls run: they are answered, and then the connection is closed."""
    soft = {"nginx": signal.SIGQUIT, "haproxy": signal.SIGUSR1}[server_name]
    for done, goaways in stopped(connect, start, soft):
        assert done is None, done
        assert goaways > 0


def stopped(connect: Connect, start: Start, by: signal.Signals) -> Iterator[tuple[BaseException | None, int]]:
    """How four calls ended that ran when the proxy got a signal, and how often it said GOAWAY."""
    with start(Way()) as running, tapped(running.address) as tap, ThreadPoolExecutor(4) as pool:
        transport = connect(tap.address)
        assert call(transport) == b"x"
        slow = body("slow", id="1")
        calls = [pool.submit(transport.send, "ModelInfer", slow, 60.0) for _ in range(4)]
        while len(running.answers.metadata) < 5:
            time.sleep(0.01)
        assert running.process is not None
        running.process.send_signal(by)
        for done in calls:
            yield done.exception(60), tap.count("GoAway")
