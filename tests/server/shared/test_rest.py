"""The REST proxy before a real Triton: what clients need works, and no request ends the server."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tritonclient.http as httpclient

from tests.hostile.conftest import COPY, TEXT, WIDE
from tests.hostile.http_requests import TYPED, Sender
from tests.hostile.rest_proxy import JSON, Proxy, exchange, open_proxy
from tests.hostile.test_closed import regions, resident
from tests.server.models import ModelText
from tests.server.sharing import SharedServer
from tritonkit.client import Client
from tritonkit.serve import Endpoint

HEAD = f"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\n".encode()
VALUES = np.arange(6, dtype=np.float32).reshape(1, 6)


@pytest.fixture(scope="module")
def endpoint(shared: SharedServer) -> Endpoint:
    """The session's server with two models that answer what they are sent."""
    return shared.serving({"wide": ModelText(WIDE, COPY), "text": ModelText(TEXT, COPY)})


@pytest.fixture(scope="module")
def proxy(project: Path, endpoint: Endpoint) -> Iterator[Proxy]:
    """A proxy as it is by default, before that server."""
    with open_proxy(project, endpoint.log.parent) as opened:
        yield opened


@pytest.fixture
def client(proxy: Proxy) -> Iterator[httpclient.InferenceServerClient]:
    """NVIDIA's own client."""
    client = httpclient.InferenceServerClient(f"localhost:{proxy.port}")
    yield client
    client.close()


def as_before(proxy: Proxy) -> None:
    """The same server answers, and rightly."""
    data = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.5, -2]}
    answer = proxy.infer({"inputs": [data]}, model="wide")
    assert json.loads(answer.body)["outputs"][0]["data"] == [1.5, -2.0]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_tritonclient_calls(client: httpclient.InferenceServerClient, binary: bool, compression: str | None) -> None:
    """Numbers as JSON and as binary data, both ways; Triton may pack its answer."""
    tensor = httpclient.InferInput("x", VALUES.shape, "FP32")
    tensor.set_data_from_numpy(VALUES, binary_data=binary)
    output = httpclient.InferRequestedOutput("y", binary_data=binary)
    options = {"request_id": "7", "response_compression_algorithm": compression}
    result = client.infer("wide", [tensor], outputs=[output], **options)
    np.testing.assert_array_equal(result.as_numpy("y"), VALUES)
    assert result.get_response()["id"] == "7"
    waiting = client.async_infer("wide", [tensor])
    np.testing.assert_array_equal(waiting.get_result().as_numpy("y"), VALUES)


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_sends_bytes(client: httpclient.InferenceServerClient, binary: bool) -> None:
    """Text with brackets, quotes, escapes and other scripts comes back as it was."""
    text = np.array([['[[[{{"\\ \u00e9\u4e2d\U0001f600\n']], dtype=object)
    tensor = httpclient.InferInput("x", text.shape, "BYTES")
    tensor.set_data_from_numpy(text, binary_data=binary)
    result = client.infer("text", [tensor]).as_numpy("y")
    assert result is not None
    assert result[0, 0].decode() == text[0, 0]


def test_tritonclient_asks(client: httpclient.InferenceServerClient, endpoint: Endpoint) -> None:
    """Health, metadata, configuration and statistics are open."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("wide")
    assert not client.is_model_ready("no_such")
    assert client.get_server_metadata()["name"] == "triton"
    assert client.get_model_metadata("wide", "1")["inputs"][0]["name"] == "x"
    assert client.get_model_config("text")["max_batch_size"] == 8
    assert client.get_inference_statistics("wide")["model_stats"][0]["name"] == "wide"
    with Client(endpoint.grpc, admin_key=endpoint.admin_key) as owner:
        ready = sorted(model.name for model in owner.models() if model.ready)
    assert sorted(stats["name"] for stats in client.get_inference_statistics()["model_stats"]) == ready


def test_tritonclient_changes_nothing(client: httpclient.InferenceServerClient, endpoint: Endpoint) -> None:
    """Not even with the right key: what changes the server has no proxy here."""
    headers = {"admin-key": endpoint.admin_key}
    for call in (
        lambda: client.unload_model("wide", headers=headers),
        lambda: client.load_model("wide", headers=headers),
        lambda: client.get_model_repository_index(headers=headers),
        lambda: client.get_system_shared_memory_status(headers=headers),
        lambda: client.get_trace_settings(headers=headers),
        lambda: client.update_log_settings({"log_verbose_level": 9}, headers=headers),
    ):
        with pytest.raises(httpclient.InferenceServerException, match="closed here"):
            call()
    assert client.is_model_ready("wide")


def test_tritons_own_answers_pass(proxy: Proxy) -> None:
    """Triton's own errors about an unknown model or input reach the caller."""
    answer = proxy.infer({"inputs": []}, model="no_such")
    assert (answer.status, "unknown model" in answer.error) == (404, True)
    wrong = {"name": "z", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    answer = proxy.infer({"inputs": [wrong]}, model="wide")
    assert (answer.status, "unexpected inference input 'z'" in answer.error) == (400, True)


def test_generate(proxy: Proxy) -> None:
    """The short form of a request, whole and as a stream; a wrong type in it is the caller's fault."""
    answer = proxy.infer({"x": "hello"}, model="text", verb="generate")
    assert json.loads(answer.body)["y"] == "hello"
    answer = proxy.infer({"x": "hello"}, model="text", verb="generate_stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert json.loads(answer.body.removeprefix(b"data: "))["y"] == "hello"
    assert proxy.infer({"x": 1}, model="text", verb="generate").status == 400


def test_what_ended_the_server_is_refused(proxy: Proxy, endpoint: Endpoint) -> None:
    """Each of these, sent to Triton's own port without a key, was a segmentation fault."""
    pid = endpoint.pid
    answer = proxy.infer(b"[" * 150_000, model="wide")
    assert answer.status == 400
    answer = proxy.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n[\r\n" * 600_000 + b"0\r\n\r\n")
    assert answer.status == 400
    as_before(proxy)
    assert endpoint.pid == pid


def test_very_many_chunks_are_served(proxy: Proxy) -> None:
    """The same number of chunks around a right request is answered: Triton sees one body."""
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [3]}
    body = json.dumps({"inputs": [tensor]}).encode() + b" " * 600_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    answer = proxy.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert json.loads(answer.body)["outputs"][0]["data"] == [3.0]


def test_a_packed_bomb_is_not_unpacked(proxy: Proxy, endpoint: Endpoint) -> None:
    """200 MiB of zeros in 200 kB are refused before anyone unpacks them."""
    before = resident(endpoint.pid)
    bomb = gzip.compress(bytes(200 << 20), 9)
    answer = proxy.infer(bomb, "Content-Encoding: gzip", model="wide")
    assert answer.status == 415
    assert resident(endpoint.pid) < before + (20 << 20)


def test_json_that_was_right_is_right_for_the_same_kind_of_request_alone(proxy: Proxy) -> None:
    """The proxy remembers some of it: a wrong one is refused each time, whatever was right meanwhile."""
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    wrong = {"inputs": [{**tensor, "shape": [-1, 1]}]}
    with proxy.connect() as one:  # one thread of the proxy
        for number in range(600):
            data = json.dumps({"id": str(number), "inputs": [tensor]}).encode()
            head = HEAD + f"Content-Length: {len(data)}\r\n\r\n".encode()
            assert exchange(one, head + data).status == 200
            if number % 20 == 0:
                assert proxy.infer(wrong, model="wide").status == 400
        data = json.dumps({"id": "right for generate alone"}).encode()
        rest = JSON.encode() + f"\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        for verb, refused in (("generate", False), ("infer", True)):
            head = f"POST /v2/models/text/{verb} HTTP/1.1\r\nHost: localhost\r\n".encode()
            answer = exchange(one, head + rest + data)
            assert (b"the request: found no inputs" in answer.body) == refused, answer


def test_a_campaign(proxy: Proxy, endpoint: Endpoint) -> None:
    """Mutated requests: all answers typed, the server and its memory as before, nothing left in shared memory."""
    sender, pid, regions_before = Sender(f"127.0.0.1:{proxy.port}"), endpoint.pid, None
    for seed, requests in ((0, 200), (1, 600)):
        if seed:
            before, regions_before = resident(pid), sorted(regions(pid))
        random = Random(seed)
        statuses = Counter(sender.send(random) for _ in range(requests))
    sender.close()
    assert set(statuses) <= TYPED, statuses
    assert statuses["200"] > 50
    assert resident(pid) <= before + max(0.05 * before, 16 << 20)
    assert sorted(regions(pid)) == regions_before
    assert proxy.memory_mib() < 200
    as_before(proxy)
