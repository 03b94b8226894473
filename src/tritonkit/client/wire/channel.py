"""The target of calls: its address, the metadata of every call, and whether they are encrypted."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from tritonkit.client.wire.secure import TLS, Secret, SecretHeaders
from tritonkit.errors import UsageError

__all__ = ["RESTRICTED", "Address", "ChannelConfig", "exposed", "is_credential", "is_loopback", "parse_address"]

_KEY_HEADER = "triton-grpc-protocol-admin-key"
"""Triton's prefix, and the name given in `--grpc-restricted-protocol`."""

RESTRICTED = frozenset(
    {
        "RepositoryIndex",
        "RepositoryModelLoad",
        "SystemSharedMemoryRegister",
        "SystemSharedMemoryStatus",
        "SystemSharedMemoryUnregister",
        "CudaSharedMemoryRegister",
        "CudaSharedMemoryStatus",
        "CudaSharedMemoryUnregister",
    }
)
"""Calls that tritonkit's container answers only with the key; no other call carries it."""

_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
_RESTRICTED_HEADER = "triton-grpc-protocol-"

_OURS = frozenset({"te", "content-type", "user-agent", "grpc-timeout", "grpc-encoding", "host"})


class Address(NamedTuple):
    """The address of a server."""

    host: str
    port: int
    tls: bool
    """Whether the scheme is grpcs://."""

    @property
    def target(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(address: str) -> Address:
    """Host and port out of `host:port`, `grpc://host:port` or, with TLS, `grpcs://host:port`.

    Raises:
        UsageError: the address has an unknown scheme, or no port.
    """
    scheme, separator, rest = address.rpartition("://")
    if separator and scheme not in ("grpc", "grpcs"):
        raise UsageError(
            f"address {address}",
            found=f"the scheme {scheme}://",
            wanted="host:port, grpc://host:port or grpcs://host:port",
            todo="use Triton's gRPC port (8001 by default), not its HTTP port (8000)",
        )
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:/\[\]@]+)):(\d{1,5})", rest.rstrip("/"), re.ASCII)
    if match is None or not 0 < int(match[3]) < 65536:
        raise UsageError(
            f"address {address}",
            found="no host and port",
            wanted="host:port or grpc://host:port, such as 127.0.0.1:8001 or [::1]:8001",
        )
    return Address(match[1] or match[2], int(match[3]), scheme == "grpcs")


class ChannelConfig:
    """The target of a transport's calls, and their metadata.

    Args:
        address: `host:port`, `grpc://host:port` or `grpcs://host:port`.
        headers: metadata of every call; values may be a `Secret`.
        tls: the encryption; None: none, or for grpcs:// TLS with the system's authorities.
        admin_key: sent with calls that a server may restrict (its models, loading them).
        server_name: the intended host, if the address is only one of its IP addresses.
        allow_plaintext_credentials: whether keys and tokens may travel without TLS to another host.

    Raises:
        UsageError: an address or header is invalid, or credentials would be sent in plain text.
    """

    def __init__(
        self,
        address: str,
        headers: SecretHeaders = (),
        tls: TLS | None = None,
        admin_key: str | Secret | None = None,
        server_name: str | None = None,
        allow_plaintext_credentials: bool = False,
    ) -> None:
        self.address = parse_address(address)
        self.name = self.address.target
        self.tls = TLS() if tls is None and self.address.tls else tls
        safe = self.tls is not None or allow_plaintext_credentials
        self._exposed = not safe and not is_loopback(self.address.host)
        of_tls = None if self.tls is None else self.tls.server_name
        self.server_name = of_tls or server_name or self.address.host
        self.has_key = bool(admin_key)
        self.pid = os.getpid()
        self.headers = tuple(_checked(headers))
        self.authority = Address(self.server_name, self.address.port, False).target
        key = admin_key if isinstance(admin_key, Secret) or not admin_key else Secret(admin_key)
        self.key = ((_KEY_HEADER, key),) if key else ()
        self.check((*self.headers, *self.key))

    def metadata(self, method: str) -> tuple[tuple[str, str], ...]:
        """The metadata of every call of this name, secrets in plain text."""
        headers = (*self.headers, *(self.key if method in RESTRICTED else ()))
        return tuple((name, value.reveal() if isinstance(value, Secret) else value) for name, value in headers)

    def check(self, headers: SecretHeaders) -> None:
        """Raise a `UsageError` if these would send a key or token in plain text."""
        if not self._exposed:
            return
        for name, value in headers:
            if isinstance(value, Secret) or is_credential(name):
                raise exposed(self.name, f"the header {name}")

    def closed(self) -> UsageError:
        """The error of a call after `close`."""
        return UsageError(
            f"client of {self.name}", found="it was closed", todo="make a new Client, or call inside its `with` block"
        )

    def forked(self) -> UsageError:
        """The error of a call in a fork of the process that made the client."""
        return UsageError(
            f"client of {self.name}",
            found=f"made in process {self.pid} and used in a fork of it, {os.getpid()}",
            wanted="one Client per process: two processes cannot share a connection",
            todo='make the Client after forking, or start workers with the "spawn" method',
        )


def is_loopback(host: str) -> bool:
    """Whether data sent to this host stays on this machine, judged by its text: no name is looked up."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_credential(name: str) -> bool:
    """Whether a header of this name identifies the caller: a key, a token, a session."""
    return name in _CREDENTIALS or name.startswith(_RESTRICTED_HEADER)


def exposed(where: str, what: str) -> UsageError:
    """The error of a key or token that would travel in plain text."""
    return UsageError(
        f"client of {where}",
        found=f"{what} would be sent without TLS to a host that is not this one",
        wanted="TLS, or a server at 127.0.0.1, [::1] or localhost",
        todo="call grpcs://..., or, on a network that nobody else can read, give"
        " allow_plaintext_credentials=True (--allow-plaintext-credentials)",
    )


def _checked(headers: Iterable[tuple[str, str | Secret]]) -> Iterable[tuple[str, str | Secret]]:
    for name, value in headers:
        if not re.fullmatch(r"[a-z0-9_.-]+", name) or name in _OURS:
            raise UsageError(
                "headers",
                found=f"the name {name!r}",
                wanted="lower-case letters, digits, - _ and ., and none of gRPC's own names",
            )
        if not isinstance(value, Secret) and not (value.isascii() and value.isprintable()):
            raise UsageError(f"header {name}", found="characters that no header can carry", wanted="printable ASCII")
        yield name, value
