"""Forms with recorded sound, by the server alone. No Triton is behind it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.openai.running import asked, running

BOUNDARY = "a-boundary"
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that requires no key and takes bodies up to 8 KiB."""
    with running(tmp_path_factory.mktemp("open"), "--address", NOWHERE, "--max-body-kib", "8") as url:
        yield url


def form(*parts: tuple[str, bytes], file: bytes | None = b"RIFF") -> bytes:
    """A form with these fields, and a file unless it is None."""
    text = b""
    for name, value in parts:
        text += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + value + b"\r\n"
    if file is not None:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="../../etc/passwd"\r\n\r\n'
        text += head.encode() + file + b"\r\n"
    return text + f"--{BOUNDARY}--\r\n".encode()


def sent(url: str, data: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """Status and error of a form."""
    kind = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"} | headers
    status, body = asked(f"{url}/audio/transcriptions", data, kind)
    return status, body["error"]


MODEL = ("model", b"m")


@pytest.mark.parametrize(
    ("data", "param", "code"),
    [
        (form(MODEL, file=None), "file", "missing_required_parameter"),
        (form(MODEL, ("file", b"a text"), file=None), "file", "missing_required_parameter"),
        (form(MODEL, ("file", b"a text")), "file", "invalid_value"),
        (form(MODEL, file=b""), "file", "invalid_value"),
        (form(), "model", "missing_required_parameter"),
        (form(MODEL, MODEL), "model", "invalid_value"),
        (form(MODEL, ("response_format", b"srt")), "response_format", "invalid_value"),
        (form(MODEL, ("language", b"de")), "language", "unsupported_parameter"),
        (form(MODEL, ("prompt", b"x")), "prompt", "unsupported_parameter"),
        (form(MODEL, ("temperature", b"0.7")), "temperature", "unsupported_parameter"),
        (form(MODEL, ("stream", b"true")), "stream", "unsupported_parameter"),
        (form(MODEL, ("timestamp_granularities[]", b"word")), "timestamp_granularities", "unsupported_parameter"),
        (form(MODEL, ("tone", b"low")), "tone", "unknown_parameter"),
        (form(*[(f"f{n}", b"") for n in range(40)]), None, "invalid_form"),
        (b"--" + BOUNDARY.encode(), "file", "missing_required_parameter"),
        (form(MODEL)[:-30], "file", "missing_required_parameter"),
        (b"", "file", "missing_required_parameter"),
    ],
    ids=range(17),
)
def test_a_wrong_form_is_refused(url: str, data: bytes, param: str | None, code: str) -> None:
    """The error names the field or the form; a file's name is never used."""
    status, error = sent(url, data)
    assert status == 400, error
    assert (error["param"], error["code"]) == (param, code)


def test_a_good_form_gets_as_far_as_the_absent_server(url: str) -> None:
    """Also with fields that ask for nothing, as the openai package sends it."""
    with (
        openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.audio.transcriptions.create(model="m", file=("a.wav", io.BytesIO(b"RIFF")), temperature=0)
    assert caught.value.status_code == 503


def test_other_bodies_are_refused(url: str) -> None:
    """Pages in a browser may send forms anywhere, and say where they come from."""
    assert sent(url, form(MODEL), origin="https://example.com")[0] == 403
    assert sent(url, b"{}", **{"content-type": "application/json"})[0] == 415
    assert sent(url, form(MODEL), **{"content-type": "multipart/form-data"})[0] == 400
    assert sent(url, form(MODEL, file=b"x" * 9000))[0] == 413
