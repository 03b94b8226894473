"""Secrets that stay secret, and errors about TLS's files."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.client.wire.certificates import authority, certified, openssl
from tests.client.wire.grpc_servers import Answers, body, data_of, grpc_server
from tests.client.wire.kinds import Connect
from tritonkit.client.wire.secure import TLS, Secret, auth_headers
from tritonkit.errors import ServerUnavailable, UsageError

pytestmark = pytest.mark.needs("openssl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server of the name localhost, and a client."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "stranger"):
        authority(folder, name)
    certified(folder, "server")
    certified(folder, "client")
    openssl(folder, "ec", "-in", "client.key", "-aes256", "-passout", "pass:word", "-out", "locked.key")
    (folder / "words.pem").write_text("no certificate")
    return folder


@pytest.fixture(params=[False, True], ids=["tls", "mutual"])
def secured(request: pytest.FixtureRequest, folder: Path, answers: Answers) -> Iterator[Any]:
    """A server with TLS: its port, and whether it wants a certificate too."""
    pair = ((folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes())
    authority = (folder / "ca.pem").read_bytes() if request.param else None
    credentials = grpc.ssl_server_credentials([pair], authority, request.param)
    with grpc_server(answers, credentials) as (_, port):
        yield port, request.param


def test_encrypted_calls(connect: Connect, folder: Path, secured: Any) -> None:
    """Small and large, with this client's certificate where the server wants one."""
    port, mutual = secured
    own = {"certificate": folder / "client.pem", "key": folder / "client.key"} if mutual else {}
    transport = connect(f"grpcs://localhost:{port}", tls=TLS(ca=folder / "ca.pem", **own))
    for size in (10, 3_000_000, 10):
        assert data_of(transport.send("ModelInfer", body(data=bytes(size)), 20.0)) == bytes(size)
    stream = transport.stream()
    stream.write(body(data=b"x"))
    assert stream.read(5.0) is not None
    stream.end()
    assert stream.read(5.0) is None


def test_a_server_nobody_vouches_for(connect: Connect, folder: Path, secured: Any) -> None:
    """Refused before anything is sent to it."""
    with pytest.raises(ServerUnavailable, match=r"no TLS connection.*certificate"):
        connect(f"localhost:{secured[0]}", tls=TLS(ca=folder / "stranger.pem")).send("ServerLive", [b""], 5.0)


def test_a_server_of_another_name(connect: Connect, folder: Path, secured: Any) -> None:
    """The requested name is the certificate's, the address's or the intended one."""
    port, mutual = secured
    address, tls = f"127.0.0.1:{port}", TLS(ca=folder / "ca.pem")
    with pytest.raises(ServerUnavailable, match="ip address mismatch"):
        connect(address, tls=tls).send("ServerLive", [b""], 5.0)
    if not mutual:
        connect(address, tls=tls, server_name="localhost").send("ServerLive", [b""], 5.0)
        named = TLS(ca=folder / "ca.pem", server_name="localhost")
        connect(address, tls=named).send("ServerLive", [b""], 5.0)


def test_a_certificate_that_is_missing(connect: Connect, folder: Path, answers: Answers) -> None:
    """A server that wants one and gets none is told as that."""
    pair = ((folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes())
    wants = grpc.ssl_server_credentials([pair], (folder / "ca.pem").read_bytes(), True)
    with grpc_server(answers, wants) as (_, port):
        transport = connect(f"localhost:{port}", tls=TLS(ca=folder / "ca.pem"))
        with pytest.raises(ServerUnavailable):
            transport.send("ServerLive", [b""], 5.0)


def test_plain_to_tls_and_tls_to_plain(connect: Connect, folder: Path, address: str, secured: Any) -> None:
    """Both mistakes end with an error."""
    with pytest.raises(ServerUnavailable):
        connect(f"localhost:{secured[0]}").send("ServerLive", [b""], 5.0)
    with pytest.raises(ServerUnavailable, match="TLS"):
        connect(address, tls=TLS(ca=folder / "ca.pem")).send("ServerLive", [b""], 5.0)


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({"ca": "none.pem"}, r"tls\.ca .*none\.pem: No such file"),
        ({"ca": "words.pem"}, r"tls\.ca .*words\.pem"),
        ({"key": "client.key"}, "key without certificate"),
        ({"certificate": "words.pem"}, r"tls\.certificate .*words\.pem"),
        ({"certificate": "client.pem", "key": "server.key"}, r"tls\.certificate .*KEY_VALUES_MISMATCH"),
        ({"certificate": "client.pem", "key": "locked.key"}, r"tls\.certificate "),
        ({"certificate": "client.pem"}, r"tls\.certificate "),
        ({"certificate": "client.pem", "key": "none"}, r"tls\.key .*none: No such file"),
    ],
)
def test_files_that_are_not_what_they_should_be(folder: Path, files: dict[str, str], match: str) -> None:
    """Told when the settings are made, with the file's name."""
    with pytest.raises(UsageError, match=match):
        TLS(**{name: folder / file for name, file in files.items()})


def test_a_secret_is_not_shown() -> None:
    """Not by any of the ways in which values get into logs."""
    secret = Secret("hush")
    shown = f"{secret} {secret!r} {[secret]} {secret!s:>20} {dir(secret)}"
    assert "hush" not in shown
    assert "hush" not in f"{auth_headers(api_key='hush', bearer=secret)}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError):
        vars(secret)


def test_a_secret_is_a_value() -> None:
    """It can be compared, copied, put into a set, and revealed."""
    assert Secret("a") == copy.deepcopy(Secret("a")) == copy.copy(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert {Secret("a"), Secret("a")} == {Secret("a")}
    assert Secret("a").reveal() == "a"


def test_secrets_from_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the line's end; told when they are not there, never with what is in them."""
    (tmp_path / "key").write_text("hush\n")
    assert Secret.from_file(tmp_path / "key") == Secret("hush")
    monkeypatch.setenv("KEY", "hush")
    assert Secret.from_env("KEY") == Secret("hush")
    with pytest.raises(UsageError, match=r"\$NO_KEY: not set"):
        Secret.from_env("NO_KEY")
    with pytest.raises(UsageError, match="No such file"):
        Secret.from_file(tmp_path / "none")
    for text in ("", "two\nlines", "ü"):
        (tmp_path / "key").write_text(text)
        with pytest.raises(UsageError) as caught:
            Secret.from_file(tmp_path / "key")
        assert "lines" not in str(caught.value)


def test_metadata_that_says_who_calls() -> None:
    """From texts or secrets; none for none."""
    assert auth_headers() == ()
    (key, token) = auth_headers(api_key="k", bearer=Secret("t"))
    assert (key[0], key[1].reveal()) == ("x-api-key", "k")
    assert (token[0], token[1].reveal()) == ("authorization", "Bearer t")
