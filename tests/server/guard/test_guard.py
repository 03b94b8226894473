"""The native guard inside a real tritonserver."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hpack import Decoder, Encoder
from tritonclient.grpc import service_pb2

from tests.native.guarded import DATA, END_STREAM, HEADERS, PADDED, PREFACE, RST_STREAM, SETTINGS, frame, message
from tests.server.at_once import at_once
from tests.server.guard.counting import BOUND, bounded, counted
from tests.server.guard.guarded import Guarded, start_guarded
from tests.server.models import ModelText
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.errors import InferenceError
from tritonkit.serve.core.keys import HEADER, PLACEHOLDER
from tritonkit.serve.core.launch import ENVIRONMENTS
from tritonkit.serve.core.stubs import find_stubs

LIMIT = 1 << 20
MIB = 1 << 20
PREFIX = f"guard_test_{os.getpid()}_"
SERVICE = "/inference.GRPCInferenceService/"
CONFIG = """backend: "python"
max_batch_size: 0
input { name: "x" data_type: TYPE_UINT8 dims: [-1] }
output { name: "y" data_type: TYPE_UINT8 dims: [-1] }
"""
# One byte back, whatever came.
CODE = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x[:1])]) for x in given]
"""
# Nothing waits long in any of these queues, so none of their bounds is ever met.
QUEUES = {
    "queue_free": "",
    "queue_bounded": "default_queue_policy { max_queue_size: 100 }",
    "queue_timed": "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 30000000 }",
    "queue_ranked": "priority_levels: 2 default_priority_level: 1",
}
# The codes that a model's error may have, in the order of the value that asks for one, and what callers see.
CODES = {
    "UNKNOWN": "UNKNOWN",
    "INTERNAL": "INTERNAL",
    "NOT_FOUND": "NOT_FOUND",
    "INVALID_ARG": "INVALID_ARGUMENT",
    "UNAVAILABLE": "UNAVAILABLE",
    "UNSUPPORTED": "UNIMPLEMENTED",
    "ALREADY_EXISTS": "ALREADY_EXISTS",
    "CANCELLED": "CANCELLED",
}
FAILING = f"""import triton_python_backend_utils as pb_utils

CODES = {[*CODES]}

class TritonPythonModel:
    def execute(self, requests):
        codes = [CODES[pb_utils.get_input_tensor_by_name(r, "x").as_numpy()[0]] for r in requests]
        errors = [pb_utils.TritonError(f"my own {{c}}", getattr(pb_utils.TritonError, c)) for c in codes]
        return [pb_utils.InferenceResponse(error=error) for error in errors]
"""
PASSING = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            asked = pb_utils.InferenceRequest(model_name="fails", requested_output_names=["y"], inputs=[x])
            error = asked.exec().error()
            passed = pb_utils.TritonError(error.message(), error.code())
            answers.append(pb_utils.InferenceResponse(error=passed))
        return answers
"""
ENSEMBLE = """platform: "ensemble"
input { name: "x" data_type: TYPE_UINT8 dims: [-1] }
output { name: "y" data_type: TYPE_UINT8 dims: [-1] }
ensemble_scheduling { step {
  model_name: "passes" model_version: -1
  input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }
} }
"""
FAILURES = {
    "fails": ModelText(CONFIG, FAILING),
    "passes": ModelText(CONFIG, PASSING),
    "names": ModelText(CONFIG, PASSING.replace("error.message()", "'fails, item 2: ' + error.message()")),
    "through": ModelText(ENSEMBLE, None),
}
MODELS = ("first", *FAILURES, *QUEUES, *counted(Path()))
HELD = 200
"""A value with which a request waits at the gate."""


def queued(bounds: str) -> ModelText:
    """A model that takes 5 ms for each request, one at a time."""
    config = CONFIG.replace("max_batch_size: 0", "max_batch_size: 1")
    code = CODE.replace("        return", "        time.sleep(0.005)\n        return")
    return ModelText(f"{config}dynamic_batching {{ {bounds} }}\n", f"import time\n{code}")


@pytest.fixture(scope="module")
def server(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One model, a limit of 1 MiB, the key known to this test and to the server alone."""
    folder = tmp_path_factory.mktemp("guarded")
    models = (
        {"first": ModelText(CONFIG, CODE)}
        | FAILURES
        | counted(folder / "gate")
        | {name: queued(b) for name, b in QUEUES.items()}
    )
    with start_guarded(project, folder, models, LIMIT, PREFIX) as running:
        yield running


def request(size: int) -> Any:
    """A request for the model with `size` bytes of input."""
    made = service_pb2.ModelInferRequest(model_name="first", raw_input_contents=[bytes(size)])
    made.inputs.add(name="x", datatype="UINT8").shape.append(size)
    return made


def request_of(total: int) -> Any:
    """A request whose message has `total` bytes."""
    size = total - 64
    while (made := request(size)).ByteSize() < total:
        size += total - made.ByteSize()
    assert made.ByteSize() == total
    return made


def status(call: Any) -> tuple[str, str]:
    """A refused call's status and words."""
    with pytest.raises(grpc.RpcError) as refused:
        call()
    error: Any = refused.value
    return error.code().name, error.details()


def test_a_message_of_the_limit_passes_and_one_byte_more_does_not(server: Guarded) -> None:
    """The limit is the largest message in bytes; above it RESOURCE_EXHAUSTED names both sizes."""
    answer = server.service.ModelInfer(request_of(LIMIT), timeout=PATIENCE_S)
    assert answer.raw_output_contents == [b"\0"]
    refusal = status(lambda: server.service.ModelInfer(request_of(LIMIT + 1), timeout=PATIENCE_S))
    assert refusal == ("RESOURCE_EXHAUSTED", f"Received message larger than max ({LIMIT + 1} vs. {LIMIT})")


def test_a_huge_message_takes_no_memory(server: Guarded) -> None:
    """A refused message of 300 MiB is not gathered: the server's memory grows by far less."""
    before = server.memory_mib()
    code, _ = status(lambda: server.service.ModelInfer(request(300 * MIB), timeout=PATIENCE_S))
    assert code == "RESOURCE_EXHAUSTED"
    assert server.memory_mib() - before < 30


def test_a_decompression_bomb_takes_no_memory(server: Guarded) -> None:
    """300 MiB of zeros, compressed to a third of a MiB: refused, not unpacked."""
    before = server.memory_mib()
    code, words = status(
        lambda: server.service.ModelInfer(request(300 * MIB), timeout=PATIENCE_S, compression=grpc.Compression.Gzip)
    )
    assert code == "UNIMPLEMENTED"
    assert "without compression" in words
    assert server.memory_mib() - before < 30


def test_other_calls_of_the_connection_go_on(server: Guarded) -> None:
    """While messages are refused on a connection, every proper call on it is answered."""

    def proper(_: int) -> bytes:
        return bytes(server.service.ModelInfer(request(1000), timeout=PATIENCE_S).raw_output_contents[0])

    def refused(_: int) -> str:
        return status(lambda: server.service.ModelInfer(request(8 * MIB), timeout=PATIENCE_S))[0]

    with ThreadPoolExecutor(4) as pool:
        bad = pool.map(refused, range(20))
        assert set(pool.map(proper, range(200))) == {b"\0"}
        assert set(bad) == {"RESOURCE_EXHAUSTED"}


def test_a_stream_ends_with_the_status_after_its_answers(server: Guarded) -> None:
    """The first request of a stream is answered; the second, too large, ends it with the status."""
    sent = iter([request(10), request(2 * MIB)])
    call = server.service.ModelStreamInfer(sent, timeout=PATIENCE_S)
    answers = []

    def read() -> None:
        answers.extend(iter(call))

    code, _ = status(read)
    assert code == "RESOURCE_EXHAUSTED"
    assert all(not answer.error_message for answer in answers)


def opening(encoder: Encoder, stream: int, method: str) -> bytes:
    """The HEADERS of a call."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", SERVICE + method),
        (":authority", "x"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    return frame(HEADERS, 4, stream, encoder.encode(fields))


def test_a_prefix_split_over_readings_does_not_pass(server: Guarded) -> None:
    """Whichever part of it the server has read before: the call is refused, the connection goes on."""
    encoder = Encoder()
    begun = PREFACE + frame(SETTINGS, 0, 0) + opening(encoder, 1, "ModelInfer")
    data = frame(DATA, 0, 1, message(LIMIT + 1, bytes(64)))
    alive = opening(encoder, 3, "ServerLive") + frame(DATA, END_STREAM, 3, message(0))
    for cut in (4, 9, 10, 13):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(begun + data[:cut])
            time.sleep(0.1)
            peer.sendall(data[cut:] + frame(DATA, 0, 1, bytes(64)) + alive)
            statuses = ended_calls(peer, 3)
            assert statuses[1] == "8"
            assert statuses[3] == "0"


def ended_calls(peer: socket.socket, last: int) -> dict[int, str]:
    """The first grpc-status of each stream, until the stream `last` has one."""
    decoder, got = Decoder(), b""
    statuses: dict[int, str] = {}
    while last not in statuses:
        part = peer.recv(1 << 16)
        assert part, "the server ended the connection"
        got += part
        while len(got) >= 9 and len(got) >= 9 + int.from_bytes(got[:3], "big"):
            length = 9 + int.from_bytes(got[:3], "big")
            if got[3] == HEADERS:
                block = dict(decoder.decode(got[9:length]))
                if "grpc-status" in block:
                    statuses.setdefault(int.from_bytes(got[5:9], "big"), str(block["grpc-status"]))
            got = got[length:]
    return statuses


def test_regions_and_files_are_the_owners_alone(server: Guarded) -> None:
    """Neither the regions in /dev/shm nor the stubs' other files can be read by anyone else."""
    regions = list(Path("/dev/shm").glob(f"{PREFIX}*"))  # noqa: S108
    assert regions
    assert {oct(region.stat().st_mode & 0o777) for region in regions} == {"0o600"}


def test_the_folder_for_environments_is_in_the_working_directory(server: Guarded) -> None:
    """Triton's Python backend would leave it in /tmp whenever the server is killed; here its run has it."""
    folders = list(Path(f"/proc/{server.pid}/cwd").resolve().glob(ENVIRONMENTS))
    assert [oct(folder.stat().st_mode & 0o777) for folder in folders] == ["0o700"]


def test_the_key_is_nowhere_to_be_seen_and_works(server: Guarded) -> None:
    """Arguments show the placeholder, environments no secret; with the key the API opens."""
    pids = [server.pid, *(stub.pid for stub in find_stubs(PREFIX))]
    assert len(pids) > 1
    shown = [Path(f"/proc/{pid}/{name}").read_bytes() for pid in pids for name in ("cmdline", "environ")]
    assert PLACEHOLDER.encode() in shown[0]
    assert not [text for text in shown if server.key.encode() in text]
    assert not [text for text in shown[2:] if b"TRITONKIT_GUARD" in text]
    index, request = server.service.RepositoryIndex, service_pb2.RepositoryIndexRequest()
    name = f"triton-grpc-protocol-{HEADER}"
    for wrong in ([], [(name, PLACEHOLDER)], [(name, "x")]):
        assert "restricted" in status(lambda metadata=wrong: index(request, metadata=metadata, timeout=PATIENCE_S))[1]
    models = index(request, metadata=[(name, server.key)], timeout=PATIENCE_S).models
    assert {model.name for model in models} == {*MODELS}


def test_a_bounded_queue_gives_as_many_answers_as_a_free_one(server: Guarded) -> None:
    """Triton's batcher misses that an instance became free, and then sleeps for half a second: of three callers to
    each model, who all share the machine, those of a bounded queue got a third of the answers."""

    def is_fair() -> bool:
        """Whether they had their share of some hundred answers: without a core they may not, but not each time."""
        counts = dict.fromkeys(QUEUES, 0)

        def ask(number: int, over: threading.Event) -> None:
            name = [*QUEUES][number % len(QUEUES)]
            request = service_pb2.ModelInferRequest(model_name=name, raw_input_contents=[b"\0"])
            request.inputs.add(name="x", datatype="UINT8").shape.extend([1, 1])
            while not over.is_set():
                server.service.ModelInfer(request, timeout=PATIENCE_S)
                counts[name] += 1

        with at_once(3 * len(QUEUES), ask):
            eventually(lambda: counts["queue_free"] > 500, "answers of the free queue")
        return min(counts.values()) > 0.6 * counts["queue_free"]

    eventually(is_fair, "as many answers of bounded queues")


@pytest.mark.parametrize("code", CODES)
def test_a_model_s_own_error_comes_unchanged(server: Guarded, code: str) -> None:
    """Code and text, also through an ensemble and Python models that pass it on, one with words of its own before it;
    no advice about the server."""
    with Client(f"127.0.0.1:{server.port}", timeout_s=PATIENCE_S) as client:
        texts = {"fails": "", "passes": "", "names": "fails, item 2: ", "through": "in ensemble 'through', "}
        for name, before in texts.items():
            model = client.model(name)
            with pytest.raises(InferenceError) as caught:
                model.predict(x=np.array([[*CODES].index(code)], np.uint8))
            error = caught.value
            assert error.code == CODES[code], name
            assert error.found == f"{CODES[code]}: {before}my own {code}"
            assert (error.wanted, error.todo, error.unprocessed) == ("", "", False)


def counting(model: str, value: int = 0, shape: tuple[int, ...] = (1, 1)) -> Any:
    """A request for an ensemble whose step counts."""
    made = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[bytes([value])])
    made.inputs.add(name="x", datatype="UINT8").shape.extend(shape)
    return made


def count_of(server: Guarded, request: Any, timeout_s: float = PATIENCE_S) -> int:
    """The number of requests that the step was given together; the answer must be the request's own."""
    answer = server.service.ModelInfer(request, timeout=timeout_s)
    values = {
        output.name: content[0] for output, content in zip(answer.outputs, answer.raw_output_contents, strict=True)
    }
    assert values["y"] == request.raw_input_contents[0][0]
    return values["count"]


def most_at_once(server: Guarded, model: str) -> int:
    """The largest such count for 16 callers."""
    with ThreadPoolExecutor(16) as pool:
        return max(pool.map(lambda value: count_of(server, counting(model, value)), range(48)))


@contextlib.contextmanager
def full(server: Guarded) -> Iterator[None]:
    """The bound's number of requests is in the ensemble meanwhile; then they are answered.

    One more is sent, and all have a timeout: of these only the one that had to wait can be refused.
    """
    gate = server.folder / "gate"
    gate.unlink(missing_ok=True)
    request = counting("bounded", HELD)
    request.parameters["timeout"].int64_param = 1000
    with ThreadPoolExecutor(BOUND + 1) as pool:
        sent = [pool.submit(count_of, server, request) for _ in range(BOUND + 1)]
        try:
            refused = next(as_completed(sent))
            assert status(refused.result) == ("UNAVAILABLE", "Request timeout expired")
            yield
        finally:
            gate.touch()
        assert all(call.result() <= BOUND for call in sent if call is not refused)


def test_no_more_requests_than_its_bound_are_in_an_ensemble(server: Guarded) -> None:
    """For 16 callers, who are all answered; more of them are in the same ensemble without a bound."""
    assert most_at_once(server, "unbounded") > BOUND
    assert most_at_once(server, "bounded") <= BOUND


def test_requests_that_wait_are_answered_in_their_turn(server: Guarded) -> None:
    """Also those with an error; those that their callers give up, and streams that break off, leave no trace."""
    with ThreadPoolExecutor(3) as pool, full(server):
        ends = queue.SimpleQueue[Any]()
        stream = server.service.ModelStreamInfer(iter(ends.get, None), timeout=PATIENCE_S)
        for value in (HELD, 1, 2):
            ends.put(counting("bounded", value))
        given_up = server.service.ModelInfer.future(counting("bounded", HELD), timeout=PATIENCE_S)
        assert status(lambda: count_of(server, counting("bounded"), 0.1))[0] == "DEADLINE_EXCEEDED"
        waiting = [
            pool.submit(count_of, server, counting("bounded", 1)),
            pool.submit(status, lambda: count_of(server, counting("bounded", 1, (1, 2)))),
        ]
        given_up.cancel()
        stream.cancel()
        ends.put(None)
        assert not any(call.done() for call in waiting)
    assert waiting[0].result() <= BOUND
    code, words = waiting[1].result()
    assert code == "INVALID_ARGUMENT"
    assert "unexpected shape for input 'x'" in words
    for _ in range(2 * BOUND):  # refused without having waited
        status(lambda: count_of(server, counting("bounded", 1, (1, 2))))
    assert most_at_once(server, "bounded") <= BOUND


def test_a_bound_follows_the_model_s_configuration(server: Guarded) -> None:
    """Loaded again with another one, which holds from then on."""
    config = server.folder / "models" / "bounded" / "config.pbtxt"
    request = service_pb2.RepositoryModelLoadRequest(model_name="bounded")
    metadata = [(f"triton-grpc-protocol-{HEADER}", server.key)]
    for limit, holds in (
        (1, lambda most: most == 1),
        (0, lambda most: most > BOUND),
        (BOUND, lambda most: most <= BOUND),
    ):
        config.write_text(f'name: "bounded"\n{bounded(limit)}')
        server.service.RepositoryModelLoad(request, metadata=metadata, timeout=PATIENCE_S)
        assert holds(most_at_once(server, "bounded")), limit


def hostile(rng: random.Random) -> bytes:
    """A connection's bytes: calls with odd messages, cut into frames, some bytes changed."""
    encoder, parts = Encoder(), [PREFACE, frame(SETTINGS, 0, 0)]
    for stream in range(1, 2 * rng.randint(1, 4), 2):
        parts.append(opening(encoder, stream, rng.choice(["ModelInfer", "ModelStreamInfer", "No"])))
        for _ in range(rng.randint(0, 4)):
            length = rng.choice([0, 3, 100, LIMIT, LIMIT + 1, 1 << 31, (1 << 32) - 1])
            body = message(length, rng.randbytes(rng.choice([0, 3, 200])), rng.choice([0, 0, 0, 1, 255]))
            while body:
                cut = rng.randint(1, len(body))
                parts.append(frame(DATA, rng.choice([0, 0, 0, END_STREAM, PADDED]), stream, body[:cut]))
                body = body[cut:]
        if rng.random() < 0.3:
            parts.append(frame(RST_STREAM, 0, stream, bytes(rng.choice([4, 5]))))
        if rng.random() < 0.3:
            kind, flags, payload = (rng.randint(0, 12), rng.randrange(256), rng.randbytes(rng.randint(0, 20)))
            parts.append(frame(kind, flags, rng.choice([0, stream, stream + 2]), payload))
    data = bytearray(b"".join(parts))
    for _ in range(rng.choice([0, 0, 1, 3])):
        data[rng.randrange(len(PREFACE), len(data))] = rng.randrange(256)
    return bytes(data)


def test_mutated_connections_leave_the_server_alive(server: Guarded) -> None:
    """1,000 hostile connections, from a seed: the server answers as before, with little more memory."""
    rng = random.Random(20_261_122)
    before = server.memory_mib()
    for _ in range(1000):
        data = hostile(rng)
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as peer:
            try:
                while data:
                    cut = rng.choice([len(data), rng.randint(1, 60)])
                    peer.sendall(data[:cut])
                    data = data[cut:]
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass
            except TimeoutError:
                pytest.fail("the server neither answers nor ends the connection")
            except OSError:
                pass
    assert server.service.ModelInfer(request(10), timeout=PATIENCE_S).raw_output_contents == [b"\0"]
    assert server.memory_mib() - before < 60
