"""TLS of the server itself: no Triton is behind it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest

from tests.cli.running import failed, tritonkit_here
from tests.openai.running import running
from tests.waiting import PATIENCE_S, eventually
from tritonkit.operate.certificates import make_certificates

NOWHERE = "127.0.0.1:1"
KEY = "a-caller-s-key"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of two authorities, each with its folder."""
    folder = tmp_path_factory.mktemp("pairs")
    for name in ("first", "second"):
        make_certificates(folder / name, ["localhost", "127.0.0.1"])
    return folder


def options(folder: Path) -> tuple[str, ...]:
    """The arguments of a server with the pair of a folder."""
    files = ("--tls-certificate", str(folder / "server.crt"), "--tls-key", str(folder / "server.key"))
    return ("--address", NOWHERE, *files)


@pytest.fixture(scope="module")
def url(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that asks for a key, too."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "keys").write_text(KEY)
    with running(folder, *options(pairs / "first"), "--key-file", str(folder / "keys"), "--host", "0.0.0.0") as url:
        yield url.replace("0.0.0.0", "127.0.0.1")


def caller(url: str, authority: Path, key: str = KEY) -> openai.OpenAI:
    """The real package, over https."""
    trusted = ssl.create_default_context(cafile=str(authority))
    http = openai.DefaultHttpxClient(verify=trusted, timeout=PATIENCE_S)
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, http_client=http)


def reaches(client: openai.OpenAI) -> bool:
    """Whether it comes as far as to where no Triton is."""
    try:
        client.models.list()
    except openai.InternalServerError as error:
        return error.status_code == 503
    except openai.APIConnectionError:
        return False
    return False


def presented(url: str) -> str:
    """The certificate that a caller is shown."""
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    return ssl.get_server_certificate((where.hostname, where.port), timeout=PATIENCE_S)


def test_the_package_calls_over_tls(url: str, pairs: Path) -> None:
    """It trusts the authority and makes several calls on one connection; keys are required as without TLS."""
    assert url.startswith("https://")
    with caller(url, pairs / "first" / "ca.crt") as client:
        for _ in range(3):
            with pytest.raises(openai.InternalServerError) as unavailable:
                client.completions.create(model="m", prompt="x", stream=True)
            assert unavailable.value.status_code == 503
    with caller(url, pairs / "first" / "ca.crt", "wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    with caller(url, pairs / "second" / "ca.crt") as client, pytest.raises(openai.APIConnectionError):
        client.models.list()


def test_old_tls_and_plain_text_are_refused(url: str) -> None:
    """Below 1.2 there is no connection."""
    where = urlsplit(url)
    assert where.port is not None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    place = ("127.0.0.1", where.port)
    with socket.create_connection(place, PATIENCE_S) as plain, pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(plain)
    with socket.create_connection(place, PATIENCE_S) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert not _until_closed(plain).startswith(b"HTTP")


@pytest.mark.slow
def test_a_handshake_that_does_not_end_is_closed(url: str) -> None:
    """Silent, or stopped after some bytes; so is a connection whose request does not come."""
    where = urlsplit(url)
    assert where.port is not None
    place = ("127.0.0.1", where.port)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as stack:
        silent, half, secure = (stack.enter_context(socket.create_connection(place, PATIENCE_S)) for _ in range(3))
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        idle = stack.enter_context(context.wrap_socket(secure))
        idle.sendall(b"GET /health HTTP/1.1\r\n")
        for connection in (silent, half, idle):
            assert _until_closed(connection) == b""


def test_handshakes_at_once_are_few(url: str, pairs: Path) -> None:
    """Further ones are closed immediately; connections with TLS go on, and the next finds room afterwards."""
    where = urlsplit(url)
    assert where.port is not None
    place = ("127.0.0.1", where.port)
    with caller(url, pairs / "first" / "ca.crt") as client:
        assert reaches(client)
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(socket.create_connection(place, PATIENCE_S)) for _ in range(200)]
            assert _until_closed(waiting[-1]) == b""
            assert reaches(client)
        with caller(url, pairs / "first" / "ca.crt") as other:
            eventually(lambda: reaches(other), "room for a handshake")


def test_a_certificate_that_changes_is_taken(pairs: Path, tmp_path: Path) -> None:
    """The next connection gets it; a pair that does not match changes nothing and is reported in the log."""
    own = tmp_path / "own"
    shutil.copytree(pairs / "first", own)
    with running(tmp_path, *options(own)) as url:
        first = presented(url)
        replace(pairs / "second" / "server.crt", own / "server.crt")
        assert presented(url) == first
        assert "the certificate stays as it was" in (tmp_path / "openai.log").read_text()
        replace(pairs / "second" / "server.key", own / "server.key")
        assert presented(url) != first
        with caller(url, pairs / "second" / "ca.crt") as client:
            assert reaches(client)


def replace(source: Path, target: Path) -> None:
    """Replace a pair in one step, like a person who renews it."""
    new = target.with_suffix(".new")
    shutil.copy(source, new)
    new.chmod(0o600)
    new.replace(target)


def test_a_pair_that_cannot_be_served_is_said(pairs: Path, tmp_path: Path) -> None:
    """Before anything listens: one without the other, not there, not its key, no PEM, open to others."""
    first, second = pairs / "first", pairs / "second"
    certificate, key = str(first / "server.crt"), str(first / "server.key")
    text, copied = tmp_path / "text", tmp_path / "open.key"
    text.write_text("no PEM")
    text.chmod(0o600)
    shutil.copy(key, copied)
    copied.chmod(0o644)
    for arguments, message in (
        (("--tls-certificate", certificate), "no --tls-key"),
        (("--tls-key", key), "no --tls-certificate"),
        (("--tls-certificate", str(tmp_path / "none"), "--tls-key", key), "cannot be read"),
        (("--tls-certificate", certificate, "--tls-key", str(tmp_path / "none")), "cannot be read"),
        (("--tls-certificate", certificate, "--tls-key", str(second / "server.key")), "it is not the key of"),
        (("--tls-certificate", certificate, "--tls-key", str(text)), "no certificate with its key"),
        (("--tls-certificate", certificate, "--tls-key", str(copied)), "others than its owner"),
    ):
        assert message in failed(tritonkit_here("openai", *arguments, "--port", "0"), 2), arguments


def _until_closed(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while data := connection.recv(4096):
            received += data
    return received
