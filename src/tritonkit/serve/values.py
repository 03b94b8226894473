"""Arguments and results of the room: settings, addresses, events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tritonkit.option import Option
from tritonkit.resources import own_or_shipped
from tritonkit.serve.core.supervisor import SHARED_MEMORY

__all__ = ["Backend", "Endpoint", "EventKind", "Ports", "RequiredModels", "ServeEvent", "ServedModels", "Settings"]

Backend = Literal["auto", "native", "python"]

ServedModels = Annotated[
    Sequence[str] | None,
    Option("Serve only this model; may be repeated.", name="--model", metavar="NAME", completes="model"),
]
RequiredModels = Annotated[
    Sequence[str],
    Option(
        "End if this model cannot be served; may be repeated, and `all` stands for every model.",
        metavar="NAME",
        completes="model",
    ),
]

EventKind = Literal[
    "not_served",  # a model that cannot be served, and why; the others are
    "loading",  # the models loaded so far, if that takes long
    "warm_failed",  # a model's first request failed, and why; it is served all the same
    "preparing",  # before the process starts: what will be served, and by which server
    "stand_in",  # native backends are missing or unusable, and why: Python stand-ins serve
    "starting",  # the process runs and loads the models
    "warm_skipped",  # a model was sent no first request, and why
    "ready",  # every model answered
    "stub_died",  # a model's Python process ended; the model is loaded again
    "stub_back",  # and answers again
    "stub_lost",  # or it does not answer, and why
    "streams_lost",  # or it has streams, which only the end of the server ends: the server is restarted
    "stub_grown",  # its shared memory grew far beyond the plan; the model is loaded again
    "short_of_memory",  # warming up takes more memory than is free, or models more than a GPU has, by estimates
    "unguarded",  # the native guard is missing, and the gaps that it leaves
    "server_died",  # tritonserver ended without a call of stop; it is started again
    "server_back",  # and answers again
    "server_lost",  # or it is not started again, and why
    "proxy_died",  # the proxy in front of HTTP ended, and what is done about it
    "stopping",  # no new requests; those in flight are being answered
    "stopped",  # nothing of the server is left
]


@dataclass(frozen=True)
class ServeEvent:
    """An event for a person who watches the server; `model` is empty if it concerns no single model."""

    kind: EventKind
    message: str
    model: str = ""


@dataclass(frozen=True)
class Ports:
    """The three ports of a server; 0 stands for any free one. HTTP's is used only if HTTP is on."""

    grpc: int = 8001
    http: int = 8000
    metrics: int = 8002


@dataclass(frozen=True)
class Endpoint:
    """A server that is ready: its addresses and its models.

    Args:
        grpc, metrics: `host:port`, reachable from this machine.
        http: the REST proxy's `host:port`; empty if HTTP is off.
        pid: the process ID of tritonserver, which changes with a restart.
        log: the file with everything it and its models print; it stays after the end.
        models: the names it serves, those that an ensemble needs included.
        failed: model -> the reason that it is not served.
        ready_s: seconds from the call until every model had answered.
        version: Triton's own version.
        admin_key: the key that `Client(..., admin_key=)` needs to load models, and so to run code. Each run has its
            own.
    """

    grpc: str
    http: str
    metrics: str
    pid: int
    log: Path
    models: tuple[str, ...]
    ready_s: float
    version: str
    admin_key: str = field(default="", repr=False)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Settings:
    """Settings of a server over a model repository.

    Args:
        repository: the model repository.
        models: names to serve, with what their ensembles need; all by default.
        require: the models without which the server is not to run, or "all" of them; by default it runs as long as
            one of those in `models` is served.
        grpc_port, http_port, metrics_port: the ports to listen on, 0 for any free one; HTTP's is used only with `http`.
        host: the address to listen on; the default is reachable from this machine alone.
        ready_timeout_s: seconds allowed from the start of the process until every model has answered once.
        python_backends: the folder with `backends/`, which replace Triton's own in the embedded
            server; by default `python_backends` of the project, or else tritonkit's.
        backend: the embedded server's backends for ONNX Runtime and OpenVINO. "auto" takes native ones that can be
            used, "native" refuses to start without them, and "python" runs a stub process for each instance.
        root: the project, which has `.venv-server` and gets `.tritonkit/run`; the repository's parent
            by default.
        drain_timeout_s: seconds allowed for requests in flight when the server stops.
        finalize_timeout_s: seconds allowed for the models' `finalize` after that, about 1.3 s for each
            instance; 0 leaves it out.
        shared_memory: the file system of the stubs' regions, checked for room before the start.
        http: whether to open the REST proxy too: an Envoy in front of Triton's HTTP, which by itself ends with a
            segmentation fault on some requests.
        http_hosts: names that callers use for this machine, in addition to loopback's and `host`.
        http_origins: origins of the web pages that may call, as browsers write them.
        shared_memory_api: whether clients that have the run's key may register shared memory.
        max_request_mib: the largest request; by default the largest that the models' configurations allow, at
            least 64.
        restarts: the number of failed starts in a row after which a server that died is given up. Delays between the
            starts grow; 0 never restarts it.
        verify: whether to hash the served files while the models load (about a second for each GB). The server
            does not become ready if a file is not as it was published.
        triton_flags: more of tritonserver's flags, by name without dashes; those that tritonkit sets
            itself are refused.
        on_event: a function that receives the events, in the caller's thread until the server is ready and in
            another one after that.
    """

    repository: Path
    _: KW_ONLY
    models: ServedModels = None
    require: RequiredModels = ()
    grpc_port: Annotated[int, Option("Port of gRPC; 0 picks a free one.", min=0, max=65535)] = Ports.grpc
    http_port: Annotated[int, Option("Port of REST; 0 picks a free one.", min=0, max=65535)] = Ports.http
    metrics_port: Annotated[int, Option("Port of the metrics; 0 picks a free one.", min=0, max=65535)] = Ports.metrics
    host: Annotated[str, Option("Address to listen on; the default cannot be reached from outside.")] = "127.0.0.1"
    ready_timeout_s: float = 120.0
    python_backends: Path | None = None
    backend: Annotated[Backend, Option("Backends of ONNX Runtime and OpenVINO; auto prefers native ones.")] = "auto"
    root: Path | None = None
    drain_timeout_s: float = 30.0
    finalize_timeout_s: float = 5.0
    shared_memory: Path = SHARED_MEMORY
    http: Annotated[bool, Option("Also serve REST, through a proxy (docs/rest.md).")] = False
    http_hosts: Annotated[
        Sequence[str],
        Option(
            "A name under which REST callers know this machine; may be repeated.", name="--http-host", metavar="NAME"
        ),
    ] = ()
    http_origins: Annotated[
        Sequence[str],
        Option(
            "Web pages that may call, such as https://app.example.org; may be repeated.",
            name="--http-origin",
            metavar="ORIGIN",
        ),
    ] = ()
    shared_memory_api: Annotated[
        bool, Option("Let clients with this run's key pass tensors by shared memory.", name="--shared-memory")
    ] = False
    max_request_mib: Annotated[
        int | None,
        Option("Largest request; by default what the models' configurations allow, at least 64.", min=1, max=2047),
    ] = None
    restarts: int = 5
    verify: Annotated[
        bool, Option("Refuse files that were changed after they were published; takes a second per GB.")
    ] = False
    triton_flags: Mapping[str, str | int] = field(default_factory=dict)
    on_event: Callable[[ServeEvent], None] | None = None

    def __post_init__(self) -> None:
        self.repository = Path(self.repository).resolve()
        self.project = (self.root or self.repository.parent).resolve()
        given = self.python_backends
        self.stand_ins = (
            own_or_shipped(self.project, "python_backends/backends") if given is None else given / "backends"
        )

    def emit(self, event: ServeEvent) -> None:
        """Call `on_event`; a failing callback must not end the watch."""
        if self.on_event is not None:
            with contextlib.suppress(Exception):
                self.on_event(event)
