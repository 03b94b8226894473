"""Certificates for a start, held against what TLS libraries ask of them."""

from __future__ import annotations

import datetime
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from tests.rooms import no_room
from tritonkit.errors import UsageError
from tritonkit.operate import certificates
from tritonkit.operate.certificates import check_pair, make_certificates, read_certificate

NAMES = ("localhost", "127.0.0.1", "::1", "gateway.example.org")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates of an authority made for the test."""
    make_certificates(tmp_path / "tls", NAMES)
    return tmp_path / "tls"


def shake_hands(folder: Path, name: str, ca: Path | None = None) -> None:
    """A TLS handshake over a pair of sockets, with the checks that a client makes."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=str(ca or folder / "ca.crt"))
    ours, theirs = socket.socketpair()
    errors: list[Exception] = []

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError) as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(ours, server_hostname=name).close()
    finally:
        ours.close()
        thread.join()
        theirs.close()


@pytest.mark.parametrize("name", NAMES)
def test_clients_take_the_certificate_for_each_name(folder: Path, name: str) -> None:
    """With the authority's certificate, by name and by address."""
    shake_hands(folder, name)
    certificate = check_pair(folder / "server.crt", folder / "server.key")
    assert set(certificate.names) == set(NAMES)
    assert 396 < certificate.days_left() <= 397


def test_another_name_or_authority_is_refused(folder: Path, tmp_path: Path) -> None:
    """The client's own library refuses it."""
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(folder, "other.example.org")
    make_certificates(tmp_path / "other", NAMES)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(folder, "localhost", tmp_path / "other" / "ca.crt")


def test_keys_are_their_owners(folder: Path) -> None:
    """No other user can read them."""
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_again_it_is_another_certificate_of_the_same_authority(folder: Path) -> None:
    """Callers keep what they have of the authority."""
    ca, before = (folder / "ca.crt").read_bytes(), (folder / "server.crt").read_bytes()
    make_certificates(folder, ["localhost"], days=30)
    assert (folder / "ca.crt").read_bytes() == ca
    assert (folder / "server.crt").read_bytes() != before
    shake_hands(folder, "localhost")


def test_a_certificate_of_ones_own_is_left_alone(folder: Path) -> None:
    """One that another authority signed is never written over."""
    (folder / "ca.key").unlink()
    (folder / "ca.crt").unlink()
    before = (folder / "server.crt").read_bytes()
    with pytest.raises(UsageError, match="another authority"):
        make_certificates(folder, NAMES)
    assert (folder / "server.crt").read_bytes() == before


def test_a_certificate_put_in_place_is_left_alone(folder: Path, tmp_path: Path) -> None:
    """Also where an authority for a start was made before: its key would be lost for good."""
    make_certificates(tmp_path / "production", NAMES)
    for name in ("server.crt", "server.key"):
        (folder / name).write_bytes((tmp_path / "production" / name).read_bytes())
    before = (folder / "server.key").read_bytes()
    with pytest.raises(UsageError, match="another authority"):
        make_certificates(folder, NAMES)
    assert (folder / "server.key").read_bytes() == before


@pytest.mark.parametrize("harm", ["no certificate", "empty", "another"])
def test_an_authority_that_is_not_whole_signs_nothing(folder: Path, tmp_path: Path, harm: str) -> None:
    """In a message, and with nothing written."""
    if harm == "no certificate":
        (folder / "ca.crt").unlink()
    elif harm == "empty":
        (folder / "ca.crt").write_bytes(b"")
    else:
        make_certificates(tmp_path / "other", NAMES)
        (folder / "ca.crt").write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    before = (folder / "server.crt").read_bytes()
    with pytest.raises(UsageError, match="no authority with its key"):
        make_certificates(folder, NAMES)
    assert (folder / "server.crt").read_bytes() == before


def test_a_missing_certificate_says_how_to_make_one(tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(UsageError, match="no such file") as caught:
        check_pair(tmp_path / "server.crt", tmp_path / "server.key")
    assert "tritonkit certs" in caught.value.todo


def test_a_key_that_others_can_read_is_refused(folder: Path) -> None:
    """It may have been seen."""
    (folder / "server.key").chmod(0o640)
    with pytest.raises(UsageError, match="others than its owner can read it"):
        check_pair(folder / "server.crt", folder / "server.key")


def test_a_key_of_another_certificate_is_refused(folder: Path, tmp_path: Path) -> None:
    """Envoy would say so only when callers come."""
    make_certificates(tmp_path / "other", NAMES)
    with pytest.raises(UsageError, match="it is not the key of"):
        check_pair(folder / "server.crt", tmp_path / "other" / "server.key")


def test_a_certificate_of_tomorrow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose clock went back, the error has both days."""
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2)
    with monkeypatch.context() as ahead:
        ahead.setattr(certificates, "_now", lambda: later)
        make_certificates(tmp_path, NAMES)
    with pytest.raises(UsageError, match=f"it begins on {later:%Y-%m-%d} .* and here it is"):
        check_pair(tmp_path / "server.crt", tmp_path / "server.key")


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    """With the day on which it ended."""
    make_certificates(tmp_path, NAMES, days=0)
    with pytest.raises(UsageError, match="it ended on"):
        check_pair(tmp_path / "server.crt", tmp_path / "server.key")


@pytest.mark.parametrize("text", ["", "nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(tmp_path: Path, text: str) -> None:
    """With its file."""
    (tmp_path / "server.crt").write_text(text)
    with pytest.raises(UsageError, match="no certificate"):
        read_certificate(tmp_path / "server.crt")


def test_names_are_wanted(tmp_path: Path) -> None:
    """And have to be some."""
    with pytest.raises(UsageError, match="no name"):
        make_certificates(tmp_path, [])


def test_on_a_full_disk_the_pair_stays_as_it_is(tmp_path: Path) -> None:
    """A key is not replaced unless its certificate is on the disk, too."""
    make_certificates(tmp_path, ["localhost"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    room = len(before["server.key"]) + 50  # for a key, and for no certificate
    assert room < len(before["server.crt"])
    with no_room(room), pytest.raises(UsageError, match="cannot be written: File too large"):
        make_certificates(tmp_path, ["localhost"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
