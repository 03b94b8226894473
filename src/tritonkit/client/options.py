"""The settings of both clients, defined once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tritonkit.client.batching import Adaptive
    from tritonkit.client.cache import Cache
    from tritonkit.client.observers import Observer
    from tritonkit.client.policy import Breaker, Hedge, Limit, Retry
    from tritonkit.client.shm import SharedMemory
    from tritonkit.client.wire.parameters import Parameter
    from tritonkit.client.wire.secure import TLS, Secret

__all__ = ["ManyOptions", "Options"]


class Options(TypedDict, total=False):
    """The settings of `Client` and `AsyncClient` besides the address; each has a default."""

    timeout_s: float
    """Default seconds for a call, retries and waiting included; 30."""
    idempotent: bool | None
    """Default for whether calls may run twice: such calls are sent again also after the loss of a server that may
    have begun them. None: the model's configuration decides. None."""
    retry: Retry | None
    """Retries of failed calls. None: no retries. `Retry()`."""
    breaker: Breaker | None
    """Pauses for a failing server. None: no pauses. `Breaker()`."""
    hedge: Hedge | None
    """Send a slow call to a second server too. None."""
    limit: Limit | None
    """Bounds on calls that are under way and that wait. None: no limit."""
    batching: Adaptive | None
    """Join single items called at the same time into one request. None."""
    cache: Cache | None
    """Keep answers, here and in Redis. None."""
    shared_memory: SharedMemory | bool
    """Pass tensors to a server on this machine in shared memory. False."""
    observers: Sequence[Observer]
    """Notified of every call: `PrometheusMetrics`, `OpenTelemetryTracing`. None."""
    wire: Literal["http2", "grpcio"]
    """The carrier of calls: tritonkit's HTTP/2, or gRPC's library, for proxies and xDS. The library comes with the
    extra `grpcio` and needs more processor time. "http2"."""
    tls: TLS | bool | None
    """True for TLS with the system's authorities, a `TLS` for others or a client certificate. None."""
    api_key: Secret | None
    """Sent with each call as `x-api-key`. None."""
    bearer: Secret | None
    """Sent with each call as `authorization: Bearer ...`. None."""
    headers: Mapping[str, str | Secret] | None
    """More metadata for each call, such as `{"x-tritonkit-release": "candidate"}`. None."""
    admin_key: Secret | str | None
    """The admin key of a server that restricts `models()` and `load()`, such as tritonkit's container. None."""
    allow_plaintext_credentials: bool
    """Send keys and tokens without TLS also to a host other than this one. False: a `UsageError`."""
    max_response_bytes: int | None
    """Largest message from a server, in bytes. None: 64 MiB for inference, more if a called model's declared outputs
    need it, and 4 MiB for all else."""


class ManyOptions(TypedDict, total=False):
    """The settings of `predict_many` and `try_many` besides the items; each has a default."""

    concurrency: int
    """Calls under way at a time; 8."""
    outputs: Sequence[str] | None
    """Names of the outputs to request; None requests all. None."""
    timeout_s: float | None
    """Seconds for each item; the client's if None. None."""
    idempotent: bool | None
    """See `predict`. None."""
    parameters: Mapping[str, Parameter] | None
    """The same for each item, as in `predict`. None."""
    classification: int | Mapping[str, int] | None
    """The same for each item, as in `predict`. None."""
    progress: Callable[[int], object] | None
    """Called with the number done, each time a reply is handed on. None."""
