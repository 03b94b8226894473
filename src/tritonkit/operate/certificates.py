"""Certificates for a start: an authority of one's own, and a server's certificate that it signs.

For a machine or a test: callers get the authority's certificate. In production put certificates of an authority that
callers know in the same place; existing files of another authority are never overwritten.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.disk import unwritable, write_whole
from tritonkit.errors import UsageError
from tritonkit.extras import need_package
from tritonkit.serve.core.keys import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Certificate", "check_pair", "make_certificates", "read_certificate"]

EXTRA = "tritonkit[gateway]"
_AUTHORITY_DAYS, _SERVER_DAYS = 3650, 397
"""Browsers take no server's certificate for longer (CA/Browser Forum, ballot SC31)."""
_DNS_NAME = re.compile(r"(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_-]{1,63}")
_SLACK = datetime.timedelta(minutes=5)
"""Time by which a certificate begins early, for clocks that are behind."""


@dataclass(frozen=True)
class Certificate:
    """Facts of a certificate.

    Args:
        names: the DNS names and addresses that it is valid for.
        begins, ends: the start and the end of its validity, in UTC.
    """

    names: tuple[str, ...]
    begins: datetime.datetime
    ends: datetime.datetime

    def days_left(self) -> float:
        """Days until its end; negative after it."""
        return (self.ends - _now()).total_seconds() / 86400


def make_certificates(folder: Path, names: Sequence[str], days: int = _SERVER_DAYS) -> list[Path]:
    """Write `ca.crt`, `ca.key`, `server.crt` and `server.key`; only their owner can read the keys. An existing
    authority signs again. An existing server certificate is replaced only if that authority signed it.

    Args:
        names: DNS names and addresses that callers use to reach the gateway.

    Raises:
        UsageError: `cryptography` is not installed, no name is given, or the existing certificate is of another
            authority.
    """
    if not names:
        raise UsageError("certs", found="no name", wanted="a DNS name or an address, or more")
    x509 = _x509()
    general = [_general(x509, name) for name in names]
    server_file, server_key_file = folder / "server.crt", folder / "server.key"
    written, ca, ca_key = _authority_of(folder)
    _refuse_foreign(server_file, ca)
    key = _new_key()
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0][:64])])
    issued = _signed(x509, named, ca.subject, key.public_key(), ca_key, days, _server(x509, general, ca))
    # The key first: between the two moments a reader finds a pair that does not fit, and keeps the one it has.
    _put({server_key_file: _pem_of_key(key), server_file: _pem(issued)})
    return [*written, server_file, server_key_file]


def _authority_of(folder: Path) -> tuple[list[Path], Any, Any]:
    """The files written, and the certificate and key of a folder's authority; a missing authority is made."""
    x509 = _x509()
    ca_file, ca_key_file = folder / "ca.crt", folder / "ca.key"
    if not (ca_file.exists() or ca_key_file.exists()):
        if (folder / "server.crt").exists():
            raise _foreign(folder / "server.crt")
        key = _new_key()
        named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tritonkit gateway authority")])
        own = _signed(x509, named, named, key.public_key(), key, _AUTHORITY_DAYS, _authority(x509))
        _put({ca_key_file: _pem_of_key(key), ca_file: _pem(own)})
        return [ca_file, ca_key_file], own, key
    try:
        ca = x509.load_pem_x509_certificate(ca_file.read_bytes())
        ca_key = _read_key(ca_key_file)
        if ca.public_key() != ca_key.public_key():
            raise ValueError("the key is not that of the certificate")
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            str(ca_file),
            found=f"no authority with its key {ca_key_file.name}: {error}",
            wanted="both, or none",
            todo="put them back, or remove both: callers then need the new ca.crt",
        ) from None
    return [], ca, ca_key


def _refuse_foreign(file: Path, ca: Any) -> None:
    """Refuse to write over a certificate that another authority signed."""
    if not file.exists():
        return
    invalid = need_package("cryptography.exceptions", EXTRA).InvalidSignature
    try:
        _x509().load_pem_x509_certificate(file.read_bytes()).verify_directly_issued_by(ca)
    except (ValueError, TypeError, invalid):
        raise _foreign(file) from None


def _foreign(file: Path) -> UsageError:
    return UsageError(
        str(file),
        found="a certificate that another authority signed",
        wanted="none, or one of ca.key",
        todo="it is left as it is; name another folder",
    )


def _put(files: Mapping[Path, bytes]) -> None:
    """Write files in place of older ones. All are on the disk before the first is replaced, so that a full disk leaves
    no key next to another key's certificate."""
    new = {file: file.with_name(f".{file.name}.new") for file in files}
    try:
        for file, content in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            (write_private if file.suffix == ".key" else _write)(new[file], content.decode())
        for file, written in new.items():
            written.replace(file)
    except OSError as error:
        for written in new.values():
            with contextlib.suppress(OSError):
                written.unlink(missing_ok=True)
        raise unwritable(next(iter(files)).parent, error, UsageError) from error


def _write(file: Path, text: str) -> None:
    write_whole(file, text.encode())


def read_certificate(file: Path) -> Certificate:
    """The facts of the first certificate of a PEM file.

    Raises:
        UsageError: the file cannot be read, or is not a certificate.
    """
    x509 = _x509()
    try:
        parsed = x509.load_pem_x509_certificate(file.read_bytes())
    except FileNotFoundError:
        raise UsageError(
            str(file),
            found="there is no such file",
            wanted="a certificate in PEM",
            todo="tritonkit certs makes one for a start; or put yours there",
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(str(file), found=f"no certificate: {error}", wanted="PEM") from None
    try:
        alternative = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [str(name.value) for name in alternative]
    except x509.ExtensionNotFound:
        names = []
    return Certificate(tuple(names), parsed.not_valid_before_utc, parsed.not_valid_after_utc)


def check_pair(certificate: Path, key: Path) -> Certificate:
    """A certificate that can be served: it fits its key, which others cannot read, and it has not expired.

    Raises:
        UsageError: the certificate or the key cannot be used; the message says why.
    """
    facts = read_certificate(certificate)
    own = _x509().load_pem_x509_certificate(certificate.read_bytes()).public_key()
    if own != _private_key(key, certificate).public_key():
        raise UsageError(
            str(key),
            found=f"it is not the key of {certificate}",
            wanted="its key",
            todo="put back the pair that was made together",
        )
    _check_dates(certificate, facts)
    return facts


def _private_key(key: Path, certificate: Path) -> Any:
    """The key of a certificate, from a file that only its owner can read."""
    try:
        state = key.stat()
        private = _read_key(key)
    except FileNotFoundError:
        raise UsageError(
            str(key),
            found="there is no such file",
            wanted=f"the key of {certificate}",
            todo="put it there with mode 0600; or: tritonkit certs",
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            str(key),
            found=f"no private key: {error}",
            wanted="PEM without a password",
            todo="openssl pkey -in KEY -out NEW takes a password away",
        ) from None
    # A volume of Kubernetes gives its files to root, and to the pod's group for reading.
    mounted = state.st_uid == 0 != os.getuid()
    if state.st_mode & (0o037 if mounted else 0o077):
        raise UsageError(
            str(key),
            found="others than its owner can read it",
            wanted="a private key",
            todo=f"make another one if somebody may have seen it, or: chmod 600 {key}",
        )
    return private


def _check_dates(file: Path, certificate: Certificate) -> None:
    """Refuse a certificate that is not valid now."""
    if certificate.begins > _now():
        raise UsageError(
            str(file),
            found=f"it begins on {certificate.begins:%Y-%m-%d %H:%M} UTC, and here it is {_now():%Y-%m-%d %H:%M}",
            wanted="one that is valid",
            todo="set this machine's clock, if it is behind; callers refuse the certificate",
        )
    if certificate.days_left() <= 0:
        raise UsageError(
            str(file),
            found=f"it ended on {certificate.ends:%Y-%m-%d %H:%M} UTC",
            wanted="one that is valid",
            todo="tritonkit certs makes another one where it made this one",
        )


def _x509() -> Any:
    return need_package("cryptography.x509", EXTRA)


def _serialization() -> Any:
    return need_package("cryptography.hazmat.primitives.serialization", EXTRA)


def _new_key() -> Any:
    """A new key on P-256: every client supports it, and a handshake takes a fraction of RSA's time."""
    ec = need_package("cryptography.hazmat.primitives.asymmetric.ec", EXTRA)
    return ec.generate_private_key(ec.SECP256R1())


def _read_key(file: Path) -> Any:
    return _serialization().load_pem_private_key(file.read_bytes(), None)


def _pem_of_key(key: Any) -> bytes:
    kinds = _serialization()
    encoded: bytes = key.private_bytes(kinds.Encoding.PEM, kinds.PrivateFormat.PKCS8, kinds.NoEncryption())
    return encoded


def _pem(certificate: Any) -> bytes:
    encoded: bytes = certificate.public_bytes(_serialization().Encoding.PEM)
    return encoded


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _signed(
    x509: Any, subject: Any, issuer: Any, public: Any, key: Any, days: int, extensions: Iterable[tuple[Any, bool]]
) -> Any:
    hashes = need_package("cryptography.hazmat.primitives.hashes", EXTRA)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _SLACK)
        .not_valid_after(_now() + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, hashes.SHA256())


def _usage(x509: Any, *, signs: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(x509: Any) -> list[tuple[Any, bool]]:
    return [(x509.BasicConstraints(ca=True, path_length=0), True), (_usage(x509, signs=True), True)]


def _server(x509: Any, names: Sequence[Any], ca: Any) -> list[tuple[Any, bool]]:
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(x509, signs=False), True),
        (x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
        (x509.SubjectAlternativeName(names), False),
    ]


def _general(x509: Any, name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not _DNS_NAME.fullmatch(name):
        raise UsageError(f"--name {name!r}", found="it can be none", wanted="a DNS name or an address")
    return x509.DNSName(name)
