"""Settings of the OpenAI-compatible server, and the keys of its callers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tritonkit.errors import UsageError
from tritonkit.openai.certificate import ServedCertificate
from tritonkit.openai.templates import Chats
from tritonkit.option import Option

if TYPE_CHECKING:
    from tritonkit.client.options import Options

__all__ = ["OpenAISettings", "may_call", "read_keys", "shown_host"]

_LOCAL = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class OpenAISettings:
    """Settings of `tritonkit openai`.

    Args:
        address: the address of Triton or its gateway, as for `Client`.
        client: more settings of the client, such as its credentials.
        host: the address that callers connect to.
        port: the port that callers connect to; 0: a free one.
        certificate: the server's certificate; None: callers connect without TLS.
        keys: SHA-256 of the callers' keys; empty: callers need none.
        forward_keys: whether each caller's key goes on to the address, a gateway that decides what it may do.
        names: the only models that are listed and called; empty: all.
        matryoshka: the models whose embeddings callers may shorten.
        chats: templates of models that take only text.
        max_tokens: default limit on answer tokens; None: the model's own.
        timeout_s: seconds for a whole answer.
        max_requests: most concurrent requests; further ones are refused.
        max_body_kib: largest body of a request.
    """

    address: str
    client: Options = field(default_factory=dict, repr=False)  # type: ignore[assignment]
    host: Annotated[str, Option("Address to listen on; by default only this machine can connect.")] = "127.0.0.1"
    port: Annotated[int, Option("0 takes a free one.", min=0, max=65535)] = 8000
    certificate: ServedCertificate | None = field(default=None, repr=False)
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    forward_keys: Annotated[
        bool, Option("Pass each caller's key on to the address: a gateway, which decides what the key may do.")
    ] = False
    names: Annotated[
        Sequence[str],
        Option(
            "Serve only this model; may be repeated. By default all that the server has.",
            name="--model",
            metavar="NAME",
            completes="model",
        ),
    ] = ()
    matryoshka: Annotated[
        Sequence[str],
        Option(
            "Let callers shorten this model's embeddings by `dimensions`; may be repeated. Only models that were"
            " trained for it (Matryoshka representation learning) keep their quality.",
            metavar="NAME",
            completes="model",
        ),
    ] = ()
    chats: Chats = Chats({})  # noqa: RUF009 - frozen
    max_tokens: Annotated[
        int | None,
        Option("Default limit on the tokens of an answer; the model's own if unset.", min=1, max=2**31 - 1),
    ] = None
    timeout_s: Annotated[float, Option("Seconds for a whole answer.", min=0.1)] = 600.0
    max_requests: Annotated[int, Option("Requests in progress at a time; more are refused.", min=1)] = 256
    max_body_kib: Annotated[int, Option("Size limit of a request, in KiB.", min=1)] = 4096

    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def asks(self) -> bool:
        """Whether callers need a key."""
        return bool(self.keys) or self.forward_keys

    def hosts(self) -> frozenset[str] | None:
        """Allowed values of a request's `Host`, without its port; None: any.

        A page in a browser on this machine can give its own name to a loopback address. A key keeps it out, too.
        """
        if self.asks() or not self.is_local():
            return None
        return frozenset({*_LOCAL, shown_host(self.host)})


def shown_host(host: str) -> str:
    """The host as written in a URL."""
    return f"[{host}]" if ":" in host else host


def read_keys(file: Path) -> tuple[bytes, ...]:
    """SHA-256 of each key in a file with one key a line; empty lines and those that begin with # are skipped.

    Raises:
        UsageError: it cannot be read, or holds no key.
    """
    where = f"keys in {file}"
    try:
        lines = [line.strip() for line in file.read_text("ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not ASCII"
        raise UsageError(where, found=f"it cannot be read: {reason}") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys or not all(key.isprintable() and " " not in key for key in keys):
        raise UsageError(where, found="no keys" if not keys else "a key with spaces", wanted="one key a line")
    return tuple(hashlib.sha256(key.encode()).digest() for key in keys)


def may_call(keys: Sequence[bytes], authorization: bytes) -> bool:
    """Whether a header has one of the keys; the time does not depend on which."""
    scheme, _, key = authorization.partition(b" ")
    digest = hashlib.sha256(key.strip()).digest()
    matches = False
    for allowed in keys:
        matches |= hmac.compare_digest(allowed, digest)
    return matches and scheme.lower() == b"bearer"
