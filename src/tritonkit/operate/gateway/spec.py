"""`gateway.yaml`: a gateway's address, certificates, tokens in addition to its keys, and limits. All have defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from tritonkit.errors import SpecError
from tritonkit.repository.modelspec.base import InnerPath, Strict
from tritonkit.repository.modelspec.document import read_document

__all__ = ["FILE", "GatewayLimits", "GatewaySpec", "Jwt", "SharedLimits", "Tls", "read_gateway"]

FILE = "gateway.yaml"

Seconds = Annotated[float, Field(gt=0, le=3600)]
Count = Annotated[int, Field(gt=0, le=1_000_000, strict=True)]
_OF_TARGET = 0.5
"""Mean time of accepted requests, as a part of the target."""


def _url(text: str) -> str:
    """Refuse text that is not an address, and an address for which others on the network could answer."""
    try:
        url = urlsplit(text)
        plain = url.hostname in ("127.0.0.1", "localhost") and url.scheme == "http"
        right = (url.scheme == "https" or plain) and url.hostname and url.path and url.username is None
        right = right and ":" not in (url.hostname or "") and (url.port or 1) > 0
    except ValueError:
        right = False
    if not right or any(letter.isspace() for letter in text):
        raise ValueError(f"{text!r}; wanted https://HOST/PATH, http:// only on this machine")
    return text


def _redis(text: str) -> str:
    """Refuse text that is not an address of a Redis, and an address that contains a password."""
    try:
        url = urlsplit(text)
        right = url.scheme in ("redis", "rediss") and url.hostname and (url.port or 1) > 0
        password = url.password is not None
    except ValueError:
        right = password = False
    if password:
        raise ValueError("a password in the address (not shown); wanted it in `password_file`")
    if not right or any(letter.isspace() for letter in text):
        raise ValueError(f"{text!r}; wanted redis://HOST:PORT, or rediss://HOST:PORT for TLS")
    return text


class Tls(Strict):
    """Certificates; paths are relative to the gateway's folder."""

    certificate: InnerPath = "tls/server.crt"
    """PEM file of the certificate, with its chain up to an authority that callers know."""
    key: InnerPath = "tls/server.key"
    """PEM file of the certificate's key; readable by its owner alone."""
    client_ca: InnerPath | None = None
    """PEM file of the authorities of callers' certificates: mutual TLS, in addition to keys. None: not needed."""


class Jwt(Strict):
    """JSON Web Tokens (RFC 7519) instead of keys."""

    issuer: Annotated[str, Field(min_length=1)]
    """The claim `iss` that a token must have."""
    audiences: tuple[str, ...] = ()
    """Audiences, of which the claim `aud` must have one; empty: `aud` is not checked."""
    jwks: InnerPath | None = None
    """A file with the issuer's keys as a JWK set (RFC 7517)."""
    jwks_url: Annotated[str, AfterValidator(_url)] | None = None
    """URL of the issuer's JWK set, instead of the file: over TLS, or on this machine."""
    models_claim: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "models"
    """The claim that lists the models that a caller may use, as a list or with spaces between; `*` means all."""
    models: tuple[Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9._~-]{1,128})$")], ...] = ()
    """The models of a token without that claim."""
    rate_per_s: Annotated[float, Field(ge=0.01, le=1e6)] | None = None
    """Requests a second of each subject; None: no limit of its own. With a rate, tokens open no streams over gRPC."""
    burst: Count | None = None
    """Requests in a burst beyond the rate; None: what the rate allows in a tenth of a second."""

    @property
    def tokens(self) -> int:
        """The size of a subject's bucket."""
        return self.burst or max(1, round((self.rate_per_s or 0) / 10))

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.jwks is None) == (self.jwks_url is None):
            raise ValueError(f"jwks is {self.jwks!r}, jwks_url {self.jwks_url!r}; wanted one of them")
        return self


class SharedLimits(Strict):
    """Rates of keys for several gateways together, with the counts in one Redis."""

    redis: Annotated[str, AfterValidator(_redis)]
    """`redis://HOST:PORT`, by TLS `rediss://`; a user's name may stand before the host, a password may not."""
    password_file: InnerPath | None = None
    """File with the password of Redis, in one line."""
    ca: InnerPath | None = None
    """PEM file of the authorities for the certificate of a `rediss://`; None: the system's."""
    service: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$")] | None = None
    """HOST:PORT of a `tritonkit limiter` that runs elsewhere; None: `tritonkit up` starts one."""
    timeout_ms: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 20
    """The longest time that a request waits for a decision. Then it passes, if the gateway's own count allows it."""


class GatewayLimits(Strict):
    """Limits of the gateway. Requests beyond them are refused immediately, not queued."""

    request_mib: Annotated[int, Field(gt=0, le=2047, strict=True)] = 64
    """Largest body of a request."""
    requests_per_replica: Count = 256
    """Requests in flight for each replica; one more is refused as overload. The next two settings limit it, too."""
    capacity_per_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Requests that one replica can answer in a second, as `tritonkit load --find-rate` measures it."""
    target_ms: Annotated[float, Field(gt=0, le=3.6e6)] | None = None
    """Time in which 99 of 100 accepted requests are to be answered, even under overload."""
    connections: Count = 4096
    """Connections of callers; one more is closed immediately."""
    memory_mib: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 1024
    """Memory of the gateway itself, or four of the largest requests if that is more. From a third of it on, timeouts
    become shorter; near it requests are refused, and connections closed."""
    streams: Annotated[int, Field(gt=0, le=100_000, strict=True)] = 256
    """Requests under way on one connection."""
    header_kib: Annotated[int, Field(gt=0, le=96, strict=True)] = 16
    """Largest size of all headers of a request together."""
    timeout_s: Seconds = 60.0
    """The longest deadline that a caller may set, and the default deadline."""
    stream_s: Seconds = 3600.0
    """The same for a stream. A revoked key may be used for this long in a stream that is already open."""
    header_s: Seconds = 10.0
    """Time for a connection's TLS handshake, and for a request's headers to arrive."""
    idle_s: Seconds = 300.0
    """Time after which a connection without a request ends, and a request without any data moving."""
    unread_s: Seconds = 30.0
    """Time for the rest of an answer to be read once it is complete; it shrinks as memory fills."""
    retry_percent: Annotated[float, Field(ge=0, le=100)] = 100.0
    """Percent of the requests in flight that may be sent to another replica. Only requests that no replica has begun
    are sent again, so this costs little."""
    shared: SharedLimits | None = None
    """The Redis in which gateways count together; None: each counts alone."""

    @model_validator(mode="before")
    @classmethod
    def _from_capacity(cls, fields: Any) -> Any:
        """Limit of requests in flight by Little's law: rate of answers times mean time. The mean is half of the target,
        because the slowest of a hundred takes about twice the mean."""
        if not isinstance(fields, dict):
            return fields
        per_s, target_ms = fields.get("capacity_per_s"), fields.get("target_ms")
        if per_s is None and target_ms is None:
            return fields
        if per_s is None or target_ms is None or "requests_per_replica" in fields:
            raise ValueError("wanted capacity_per_s and target_ms together, or requests_per_replica")
        try:
            most = max(1, round(float(per_s) * float(target_ms) / 1e3 * _OF_TARGET))
        except (TypeError, ValueError, OverflowError):
            return fields  # its fields say what is wrong
        return fields | {"requests_per_replica": most}


class GatewaySpec(Strict):
    """The content of gateway.yaml."""

    host: str = "127.0.0.1"
    """The address to listen on; the default is reachable from this machine alone."""
    port: Annotated[int, Field(ge=0, le=65535, strict=True)] = 8443
    """One port for gRPC and REST, with TLS; 0 takes a free one."""
    tls: Tls = Tls()
    jwt: Jwt | None = None
    limits: GatewayLimits = GatewayLimits()
    audit: Literal["stdout", "file"] = "file"
    """Destination of the audit log: `audit.jsonl` of the run, or the gateway's output, which suits containers."""


def read_gateway(folder: Path) -> GatewaySpec:
    """The `gateway.yaml` of a folder; the defaults if it does not exist.

    Raises:
        SpecError: the file cannot be read, or has an unknown key or a value out of range.
    """
    file = folder / FILE
    if not file.exists():
        return GatewaySpec()
    try:
        return read_document(file, GatewaySpec)
    except SpecError as error:
        raise SpecError(
            error.where,
            found=error.found,
            wanted=error.wanted,
            todo="correct it; docs/gateway.md says what may stand there",
            details=error.details,
        ) from None
