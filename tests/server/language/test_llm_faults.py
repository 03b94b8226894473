"""Language models in a real Triton when something fails: a killed process, callers who leave or do not read."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import struct
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from hpack import Encoder
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.native.guarded import DATA, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame, message
from tests.server.language.test_llm import LONG, LONG_ANSWER, answer, gauge, greedy, prompt, write_served
from tests.server.models import ModelText, write_repository
from tests.server.openai_models import PARROT
from tests.server.own.test_serve import Events
from tests.server.watched import Watched
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.errors import InferenceError, ServerUnavailable
from tritonkit.serve import Endpoint, serve
from tritonkit.serve.core import stub_watch
from tritonkit.serve.core.supervisor import children

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
END_HEADERS, ACK = 0x4, 0x1
PING = 6
UNREAD_S = 1
"""The time after which a caller that does not read gets a keepalive ping here."""
OPTIONS: dict[str, Any] = {"grpc_port": 0, "metrics_port": 0, "finalize_timeout_s": 0}
FLAGS = {"grpc-keepalive-time": UNREAD_S * 1000, "grpc-keepalive-timeout": 1000}

Input = tuple[str, list[int], bytes]
"""Datatype, shape and bytes of an input."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model of forty places, with pages for more than forty long answers."""
    repository = tmp_path_factory.mktemp("faults") / "repository"
    write_served(repository / "tiny", cache_mib="96", threads="1", max_sequences="40", context="8192")
    return repository


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Endpoint]:
    """A Triton with it."""
    with serve(repository, **OPTIONS) as endpoint:
        yield endpoint


@pytest.fixture
def client(server: Endpoint) -> Iterator[Client]:
    """A client of it."""
    with Client(server.grpc, timeout_s=PATIENCE_S) as client:
        yield client


def deaths(server: Endpoint) -> float:
    """Processes of the model that have died, as the metrics have it."""
    with urlopen(f"http://{server.metrics}/metrics", timeout=PATIENCE_S) as page:
        match = re.search(r'^tritonkit_stub_deaths_total{model="tiny"} (\S+)', page.read().decode(), re.M)
    return float(match[1]) if match else -1.0


@pytest.mark.slow
def test_a_killed_process(repository: Path) -> None:
    """All sixteen streams end with an error promptly, not at their deadlines an hour away, and none is begun again; the
    model answers again as it did, and nobody had to do anything."""
    events = Events()
    with (
        serve(repository, **OPTIONS, on_event=events) as endpoint,
        Client(endpoint.grpc, timeout_s=PATIENCE_S) as client,
        contextlib.ExitStack() as stack,
    ):
        expected = answer(client, text="w5", max_tokens=50, ignore_eos=True)[1]
        model = client.model("tiny")
        streams = [stack.enter_context(model.stream(inputs=LONG_ANSWER, timeout_s=3600)) for _ in range(16)]
        for stream in streams:
            assert next(stream)["tokens"].size
        eventually(lambda: gauge(endpoint, "running") == 16, "they run")

        with ThreadPoolExecutor(16) as pool:
            ends = [pool.submit(list, stream) for stream in streams]
            (stub,) = children(endpoint.pid)
            os.kill(stub, signal.SIGKILL)
            errors = [type(one.exception(PATIENCE_S)) for one in ends]
        assert errors == [ServerUnavailable] * 16
        eventually(lambda: events.of("server_back"), "the model is served again")
        assert answer(client, text="w5", max_tokens=50, ignore_eos=True)[1] == expected
        # Triton itself ends where the process died with a lock of their shared memory; then nobody saw it die.
        assert deaths(endpoint) == len(events.of("stub_died"))
        assert not events.of("stub_lost")


def test_a_server_that_may_not_be_started_again_loads_the_model(tmp_path: Path) -> None:
    """A dead stub is replaced as for models without streams; the server goes on."""
    events = Events()
    repository = write_repository(tmp_path / "repository", {"parrot": PARROT, "echo": ModelText()})
    with serve(repository, **OPTIONS, restarts=0, on_event=events) as endpoint:
        for stub in children(endpoint.pid):
            if b"parrot" in Path(f"/proc/{stub}/cmdline").read_bytes():
                os.kill(stub, signal.SIGKILL)
        eventually(lambda: events.of("stub_back"), "it is loaded again")
        with Client(endpoint.grpc) as client:
            assert client.is_ready("echo")
            assert list(client.model("parrot").stream(text="SAY a"))
    assert not events.of("server_died")


@pytest.mark.slow
def test_streams_outlive_a_model_that_is_loaded_again(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One absurd text makes the memory between Triton and the model grow, for which the model is loaded again: streams
    that run meanwhile have all their tokens."""
    monkeypatch.setattr(stub_watch, "_RETIRE_S", 0.0)
    events = Events()
    with (
        serve(repository, **OPTIONS, on_event=events) as endpoint,
        Client(endpoint.grpc, timeout_s=PATIENCE_S) as client,
        contextlib.ExitStack() as stack,
    ):
        model = client.model("tiny")
        streams = [stack.enter_context(model.stream(inputs=LONG_ANSWER)) for _ in range(8)]
        counts = [next(stream)["tokens"].size for stream in streams]
        with pytest.raises(InferenceError, match="wanted at most"):
            answer(client, text=b"x" * (40 << 20))
        eventually(lambda: events.of("stub_back"), "the model is loaded again")
        for number, stream in enumerate(streams):
            counts[number] += sum(reply["tokens"].size for reply in stream)
        assert counts == [LONG] * 8
        assert len(events.of("stub_grown")) == 1


def test_half_of_the_callers_leave(server: Endpoint, client: Client) -> None:
    """Twenty of forty: twenty still run, with part of the pages; when these leave too, all pages are free."""
    model = client.model("tiny")
    with contextlib.ExitStack() as staying, contextlib.ExitStack() as leaving:
        for number in range(40):
            stream = model.stream(inputs=LONG_ANSWER | {"text": prompt(number)})
            (leaving if number % 2 else staying).enter_context(stream)
        eventually(lambda: gauge(server, "running") == 40, "all run")
        assert gauge(server, "cache_usage") > 0
        leaving.close()
        eventually(lambda: gauge(server, "running") == 20, "half of them run")
        assert gauge(server, "cache_usage") > 0
    eventually(lambda: gauge(server, "running") == 0, "none runs")
    eventually(lambda: gauge(server, "cache_usage") == 0, "all pages are free")
    assert gauge(server, "waiting") == 0


def number(datatype: str, value: float) -> Input:
    """One INT32, INT64, FP32 or BOOL."""
    form = {"INT32": "<i", "INT64": "<q", "FP32": "<f", "BOOL": "<?"}[datatype]
    return datatype, [1], struct.pack(form, value)


def texts(*values: bytes) -> Input:
    """BYTES."""
    return "BYTES", [len(values)], b"".join(struct.pack("<I", len(v)) + v for v in values)


def request(**inputs: Input) -> Any:
    """A request to the model, right or not."""
    made = service_pb2.ModelInferRequest(model_name="tiny")
    for name, (datatype, shape, data) in inputs.items():
        made.inputs.add(name=name, datatype=datatype).shape.extend(shape)
        made.raw_input_contents.append(data)
    return made


GOOD = {"text": texts(b"w5"), "max_tokens": number("INT32", 4)}
BAD: dict[str, dict[str, Input]] = {
    "prompt beyond the window": {"text": texts(b"w9 " * 8192)},
    "prompt of 4 MiB": {"text": texts(b"w9 " * (4 << 20))},
    "empty prompt": {"text": texts(b"")},
    "prompt of invalid UTF-8": {"text": texts(b"w5 \xff")},
    "two prompts": {"text": texts(b"w5", b"w6")},
    "prompt and messages": {"messages": texts(b'[{"role": "user", "content": "w5"}]')},
    "prompt of a false length": {"text": ("BYTES", [1], struct.pack("<I", 1 << 30) + b"w5")},
    "prompt of another type": {"text": number("INT32", 5)},
    "no tokens": {"max_tokens": number("INT32", 0)},
    "fewer than no tokens": {"max_tokens": number("INT32", -1)},
    "too many tokens": {"max_tokens": number("INT32", 2**31 - 1)},
    "more tokens at least than at most": {"min_tokens": number("INT32", 5)},
    "tokens of another type": {"max_tokens": number("FP32", 4)},
    "no number of tokens": {"max_tokens": ("INT32", [0], b"")},
    "another shape": {"max_tokens": ("INT32", [1, 1], struct.pack("<i", 4))},
    "half a number": {"max_tokens": ("INT32", [1], b"\1\0")},
    "temperature NaN": {"temperature": number("FP32", float("nan"))},
    "temperature infinite": {"temperature": number("FP32", float("inf"))},
    "temperature below zero": {"temperature": number("FP32", -1)},
    "top_p above one": {"top_p": number("FP32", 1.5)},
    "top_k below zero": {"top_k": number("INT32", -1)},
    "penalty of zero": {"repetition_penalty": number("FP32", 0)},
    "seed below zero": {"seed": number("INT64", -1)},
    "many stops": {"stop": texts(*[b"w7"] * 100_000)},
    "a long stop": {"stop": texts(b"w7 " * 100_000)},
    "an empty stop": {"stop": texts(b"w7", b"")},
    "a stop of invalid UTF-8": {"stop": texts(b"\xff")},
    "logprobs of another type": {"logprobs": number("INT32", 1)},
    "unknown parameter": {"top_z": number("INT32", 1)},
}


@pytest.mark.slow
def test_no_bad_request_disturbs_good_ones(repository: Path, server: Endpoint, client: Client) -> None:
    """Eight greedy answers are the engine's own while other callers make every mistake, each with its own refusal."""
    prompts = [(prompt(n), 1000 + n) for n in range(8)]
    (pid,) = children(server.pid)
    with grpc.insecure_channel(server.grpc) as channel, contextlib.ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        model = client.model("tiny")
        streams = [
            stack.enter_context(model.stream(text=text, max_tokens=most, ignore_eos=True)) for text, most in prompts
        ]
        streamed = [next(stream)["tokens"].tolist() for stream in streams]
        rest = [
            pool.submit(lambda stream: [reply["tokens"].tolist() for reply in stream], stream) for stream in streams
        ]
        for place, (name, wrong) in enumerate(cycle(BAD.items())):
            if place >= len(BAD) and all(one.done() for one in rest):
                break
            answers = list(stub.ModelStreamInfer(iter([request(**GOOD | wrong)]), timeout=PATIENCE_S))
            assert [bool(one.error_message) for one in answers] == [True], (name, answers)
        for tokens, one in zip(streamed, rest, strict=True):
            tokens += [token for some in one.result() for token in some]
    assert streamed == greedy(repository / "tiny" / "1", prompts)
    assert [pid] == children(server.pid)


def send_streams(caller: socket.socket, count: int, tokens: int, **headers: str) -> None:
    """Begin a number of streams on a connection, of a number of tokens each."""
    caller.sendall(PREFACE + frame(SETTINGS, 0, 0))
    encoder = Encoder()
    inputs = GOOD | {"max_tokens": number("INT32", tokens), "ignore_eos": number("BOOL", 1)}
    body = request(**inputs).SerializeToString()
    head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", METHOD),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *headers.items(),
    ]
    for stream in range(1, 2 * count, 2):
        caller.sendall(frame(HEADERS, END_HEADERS, stream, encoder.encode(head)))
        caller.sendall(frame(DATA, END_STREAM, stream, message(len(body), body)))


def read_frames(caller: socket.socket) -> Generator[tuple[int, int]]:
    """Kind and stream of what comes on a connection; settings and PINGs are answered."""
    with caller.makefile("rb") as came:
        while head := came.read(9):
            payload = came.read(int.from_bytes(head[:3], "big"))
            kind, flags = head[3], head[4]
            if kind in (SETTINGS, PING) and not flags & ACK:
                caller.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            yield kind, int.from_bytes(head[5:], "big")


def test_a_caller_that_stops_reading_is_left(repository: Path) -> None:
    """Once all have begun. Its sixteen streams are cancelled long before their answers would have ended: places and
    pages are free, its connection is closed, and another caller has its answer meanwhile."""
    with (
        serve(repository, **OPTIONS, triton_flags=FLAGS) as server,
        Client(server.grpc, timeout_s=PATIENCE_S) as client,
    ):
        expected = answer(client, text=prompt(1), max_tokens=50, ignore_eos=True)[1]
        before = gauge(server, "tokens_total")
        host, _, port = server.grpc.rpartition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as caller:
            send_streams(caller, 16, LONG)
            silent = set(range(1, 32, 2))
            with contextlib.closing(read_frames(caller)) as came:
                while silent:
                    kind, stream = next(came)
                    if kind == DATA:
                        silent.discard(stream)
            assert answer(client, text=prompt(1), max_tokens=50, ignore_eos=True)[1] == expected
            eventually(lambda: gauge(server, "running") == 0, "they are cancelled")
            assert gauge(server, "tokens_total") < before + 16 * LONG
            eventually(lambda: gauge(server, "cache_usage") == 0, "all pages are free")
            with contextlib.suppress(ConnectionResetError):
                list(iter(lambda: caller.recv(1 << 16), b""))


@pytest.mark.slow
@pytest.mark.needs("envoy")
def test_a_caller_of_the_gateway_that_stops_reading_is_left(repository: Path, tmp_path: Path) -> None:
    """Here it reads its connection, and gives its streams no more room after the first 64 KiB: both are reset."""
    stack = Watched(tmp_path, repository, "limits: {idle_s: 2}\n", replicas=1, prometheus=False, redis=False)
    try:
        context = ssl.create_default_context(cafile=str(stack.gateway / "tls" / "ca.crt"))
        context.set_alpn_protocols(["h2"])
        host, _, port = stack.stack.address.rpartition(":")
        plain = socket.create_connection((host, int(port)), PATIENCE_S)
        with context.wrap_socket(plain, server_hostname=host) as caller:
            send_streams(caller, 2, 4000, **{"x-api-key": stack.key})
            reset: set[int] = set()
            with contextlib.closing(read_frames(caller)) as came:
                while len(reset) < 2:
                    kind, stream = next(came)
                    if kind == RST_STREAM:
                        reset.add(stream)
            assert reset == {1, 3}
        with stack.client() as client:
            assert answer(client, text="w5", max_tokens=50, ignore_eos=True)[1]
    finally:
        stack.stop()
