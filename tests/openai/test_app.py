"""The HTTP server by itself: keys, bounds and paths. No Triton is behind it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest

import tritonkit.openai
from tests.cli.running import failed, tritonkit_here
from tests.openai.running import asked, running
from tritonkit.errors import UsageError
from tritonkit.openai.settings import OpenAISettings, may_call, read_keys

NOWHERE = "127.0.0.1:1"
KEY = "a-caller-s-key"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
BODY = json.dumps(CHAT).encode()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that requires no key and takes bodies up to 2 KiB."""
    folder = tmp_path_factory.mktemp("open")
    with running(folder, "--address", NOWHERE, "--max-body-kib", "2") as url:
        yield url


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that asks for a key."""
    folder = tmp_path_factory.mktemp("locked")
    keys = folder / "keys"
    keys.write_text(f"# callers\n\nanother-key\n{KEY}\n")
    with running(folder, "--address", NOWHERE, "--key-file", str(keys)) as url:
        yield url


def test_a_wrong_key_is_refused(locked: str) -> None:
    """A wrong key is the package's own error; the right one gets as far as the absent Triton."""
    with (
        openai.OpenAI(base_url=locked, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        client.models.list()
    assert caught.value.code == "invalid_api_key"
    with (
        openai.OpenAI(base_url=locked, api_key=KEY, max_retries=0) as client,
        pytest.raises(openai.InternalServerError) as unavailable,
    ):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    assert unavailable.value.status_code == 503
    assert asked(f"{locked}/models")[0] == 401


def test_two_keys_are_refused(locked: str) -> None:
    """A choice between two keys would be a guess, also for a proxy before this server."""
    url = urlsplit(locked)
    with contextlib.closing(http.client.HTTPConnection(url.netloc, timeout=60)) as connection:
        connection.putrequest("GET", f"{url.path}/models")
        for key in ("wrong", KEY):
            connection.putheader("Authorization", f"Bearer {key}")
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, b"two Authorization headers" in answer.read()) == (401, True)


def test_health_asks_for_no_key_and_tells_the_truth(locked: str) -> None:
    """Nobody answers behind this one."""
    assert asked(f"{locked.removesuffix('/v1')}/health") == (503, {"ready": False})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[" * 2000, 400, "invalid_json"),
        (BODY + b" " * 2048, 413, "body_too_large"),
        (json.dumps(CHAT | {"tools": [{}]}).encode(), 400, "missing_required_parameter"),
        (BODY, 503, "unavailable"),
    ],
    ids=["no JSON", "deep", "large", "tools", "no server"],
)
def test_a_body_is_refused_with_openai_s_error(url: str, body: bytes, status: int, code: str) -> None:
    """And a good one has the status of the server that is not there."""
    http_status, answer = asked(f"{url}/chat/completions", body)
    assert (http_status, answer["error"]["code"]) == (status, code)
    assert set(answer["error"]) == {"message", "type", "param", "code"}


def test_a_body_without_a_length_is_bounded_too(url: str) -> None:
    """It is counted as it comes."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    parts = iter([b" " * 1024] * 3)
    connection.request("POST", "/v1/chat/completions", parts, {"content-type": "application/json"}, encode_chunked=True)
    with connection.getresponse() as response:
        assert response.status == 413
    connection.close()


@pytest.mark.parametrize("length", ["1" * 30, "x", "-1"])
def test_a_length_that_is_none_is_refused(url: str, length: str) -> None:
    """Without a word of Python's."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    headers = {"content-type": "application/json", "content-length": length}
    connection.request("POST", "/v1/completions", None, headers)
    with connection.getresponse() as response:
        assert response.status in (400, 413)
    connection.close()


def test_a_page_in_a_browser_cannot_call(url: str) -> None:
    """Neither as a form nor under a name of its own for this address."""
    assert asked(f"{url}/chat/completions", BODY, {"content-type": "text/plain"})[0] == 415
    status, answer = asked(f"{url}/models", None, {"host": "evil.example:8000"})
    assert (status, answer["error"]["code"]) == (403, "wrong_host")


def test_other_paths_and_methods_are_refused_alike(url: str) -> None:
    """With the same error body."""
    assert asked(f"{url}/images")[0] == 404
    status, answer = asked(f"{url}/completions")
    assert (status, answer["error"]["type"]) == (405, "invalid_request_error")


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    """One a line; only their hashes are kept, and no repr shows these."""
    file = tmp_path / "keys"
    file.write_text(f"first\n# no key\n\n {KEY} \n")
    keys = read_keys(file)
    assert [may_call(keys, f"Bearer {key}".encode()) for key in ("first", KEY, "# no key", "")] == [
        True,
        True,
        False,
        False,
    ]
    assert not may_call(keys, f"Basic {KEY}".encode())
    assert not may_call(keys, KEY.encode())
    assert keys[0].hex() not in repr(OpenAISettings("a", keys=keys))
    assert repr(keys[0]) not in repr(OpenAISettings("a", keys=keys))


@pytest.mark.parametrize("text", ["", "# none\n", "two words\n", "k\u00e9y\n"])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str) -> None:
    """It would open the server to all, or to nobody."""
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(UsageError, match="keys in"):
        read_keys(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(tmp_path / "nowhere")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_need_a_key(host: str) -> None:
    """Unless the person says that something else keeps callers out."""
    assert "--key-file" in failed(tritonkit_here("openai", "--host", host), 2)


def test_an_address_that_is_none_is_said() -> None:
    """Before anything listens."""
    message = failed(tritonkit_here("openai", "--address", "nonsense", "--port", "0"), 2)
    assert "nonsense" in message
    assert "Traceback" not in message


@pytest.mark.slow
def test_a_connection_without_a_request_is_closed(url: str) -> None:
    """Silent, or with a head that does not end, also after a first answer; a body has longer to come."""
    where = urlsplit(url)
    head = f"host: {where.netloc}\r\ncontent-type: application/json\r\n"
    get = f"GET /health HTTP/1.1\r\n{head}".encode()
    post = f"POST /v1/completions HTTP/1.1\r\n{head}content-length: 2\r\n\r\n{{".encode()
    with contextlib.ExitStack() as stack:
        silent, half, second, body = (
            stack.enter_context(socket.create_connection((where.hostname, where.port), 60)) for _ in range(4)
        )
        second.sendall(get + b"\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += second.recv(4096)
        for connection, begun in ((half, get), (second, get), (body, post)):
            connection.sendall(begun)
        assert [_until_closed(connection) for connection in (silent, half, second)] == [b"", b"", b""]
        body.sendall(b"}")
        assert body.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_more_connections_than_may_be_are_closed(tmp_path: Path) -> None:
    """They are closed immediately and older ones stay; here the process's files leave room for 60."""
    with running(tmp_path, "--address", NOWHERE, files=700) as url, contextlib.ExitStack() as stack:
        where = urlsplit(url)

        def connect() -> socket.socket:
            place = (where.hostname, where.port)
            return stack.enter_context(socket.create_connection(place, 60))

        first, *_ = [connect() for _ in range(60)]
        head = f"host: {where.netloc}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"
        first.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n{{".encode())
        assert [_until_closed(connect()) for _ in range(5)] == [b""] * 5
        first.sendall(b"}")
        assert first.recv(4096).startswith(b"HTTP/1.1 400 ")


def _until_closed(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(4096):
            received += data
    return received


def test_a_port_that_is_taken_is_said(url: str) -> None:
    """In a sentence."""
    port = str(urlsplit(url).port)
    assert "cannot listen" in failed(tritonkit_here("openai", "--port", port), 4)


def test_the_former_name_of_the_settings_still_works() -> None:
    """`tritonkit.openai.Settings` is `OpenAISettings` and says so."""
    with pytest.warns(DeprecationWarning, match="OpenAISettings since version 0.2"):
        assert tritonkit.openai.Settings is OpenAISettings
