"""TLS, and secrets that are never shown.

Client("grpcs://triton.example:8001", tls=TLS(ca="ca.pem"), api_key=Secret.from_file("key"))
"""

from __future__ import annotations

import functools
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tritonkit.errors import UsageError

if TYPE_CHECKING:
    import ssl

__all__ = ["TLS", "Secret", "SecretHeaders", "auth_headers"]


class Secret:
    """A text that no repr, message, log or pickle shows; `reveal` gives it.

    Raises:
        UsageError: the text is empty, or has characters that a header cannot carry.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str, *, where: str = "secret") -> None:
        if not value or not value.isascii() or not value.isprintable():
            raise UsageError(
                where,
                found="an empty secret" if not value else "characters that no header can carry",
                wanted="one line of printable ASCII",
            )
        self._value = value

    @classmethod
    def from_file(cls, path: str | Path) -> Secret:
        """The file's one line; `UsageError` if it cannot be read."""
        try:
            return cls(Path(path).read_text("utf-8").strip(), where=f"secret in {path}")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"secret in {path}", found=_reason(error), wanted="a readable file with one line"
            ) from None

    @classmethod
    def from_env(cls, name: str) -> Secret:
        """The environment variable's value; `UsageError` if it is not set."""
        value = os.environ.get(name)
        if value is None:
            raise UsageError(f"secret in ${name}", found="not set", wanted="the secret")
        return cls(value.strip(), where=f"secret in ${name}")

    def reveal(self) -> str:
        """The text."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is not pickled: give the other process its file or variable")


SecretHeaders = Sequence[tuple[str, str | Secret]]
"""Metadata of calls: names and values."""


def auth_headers(
    api_key: str | Secret | None = None, bearer: str | Secret | None = None
) -> tuple[tuple[str, Secret], ...]:
    """Metadata that identifies the caller to a gateway: `x-api-key`, and `authorization: Bearer ...`."""
    headers = []
    if api_key is not None:
        headers.append(("x-api-key", Secret(_text(api_key), where="api_key")))
    if bearer is not None:
        headers.append(("authorization", Secret(f"Bearer {_text(bearer)}", where="bearer")))
    return tuple(headers)


def _text(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not text"


@dataclass(frozen=True)
class TLS:
    """Encryption of a connection, TLS 1.2 or newer.

    Args:
        ca: PEM file of the authorities to trust; the system's if None.
        certificate: PEM file of this client's certificate (mutual TLS), with its chain.
        key: PEM file of the certificate's private key, not encrypted; may be in `certificate`.
        server_name: the name the server's certificate must have; the address's host if None.

    Raises:
        UsageError: a file is missing or has other content.
    """

    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise UsageError("tls", found="key without certificate", wanted="both, or neither")
        for name in ("ca", "certificate", "key"):
            path = getattr(self, name)
            if path is None:
                continue
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise UsageError(f"tls.{name} {path}", found=_reason(error), wanted="a readable PEM file") from None
        _ = self.context

    @functools.cached_property
    def context(self) -> ssl.SSLContext:
        """The context for Python's ssl; made once."""
        import ssl

        name, path, expected = "ca", self.ca, "certificates of authorities, PEM"
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["h2"])
            if self.certificate is not None:
                name, path = "certificate", self.certificate
                expected = "a certificate and its own key, not encrypted, PEM"
                # Without a password here, OpenSSL would ask for one at the terminal.
                context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except OSError as error:
            problem = getattr(error, "reason", None) or error.strerror or str(error)
            raise UsageError(f"tls.{name} {path}", found=problem, wanted=expected) from None
        return context
