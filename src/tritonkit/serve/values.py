"""What the room takes and gives: settings, addresses, events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Endpoint", "EventKind", "Ports", "ServeEvent", "Settings"]

EventKind = Literal[
    "preparing",  # before the process starts: what will be served, and by which server
    "starting",  # the process runs and loads the models
    "warm_skipped",  # a model was sent no first request, and why
    "ready",  # every model answered
    "stub_died",  # a model's Python process ended; the model is loaded again
    "stub_back",  # and answers again
    "stub_lost",  # or it does not, and why
    "stub_grown",  # its shared memory grew far beyond the plan; the model is loaded again
    "unguarded",  # the native guard is missing, and what is open for that
    "server_died",  # tritonserver ended without a call of stop; it is started again
    "server_back",  # and answers again
    "server_lost",  # or it is given up, and why
    "proxy_died",  # the proxy before HTTP ended by itself, and what comes of it
    "stopping",  # no new requests; those in flight are being answered
    "stopped",  # nothing is left
]


@dataclass(frozen=True)
class ServeEvent:
    """Something a person watching the server wants to know; `model` is empty where none is meant."""

    kind: EventKind
    message: str
    model: str = ""


@dataclass(frozen=True)
class Ports:
    """The three ports of a server; 0 stands for any free one. HTTP's is used where HTTP is asked for."""

    grpc: int = 8001
    http: int = 8000
    metrics: int = 8002


@dataclass(frozen=True)
class Endpoint:
    """A server that is ready: where it answers and what it serves.

    Args:
        grpc, metrics: `host:port`, reachable from this machine.
        http: the same of the REST proxy; empty where HTTP was not asked for.
        pid: of the tritonserver process; another one after a restart.
        log: the file with everything it and its models print; it stays after the end.
        models: the names it serves, those that an ensemble needs included.
        ready_s: seconds from the call until every model had answered.
        version: Triton's own version.
        admin_key: what `Client(..., admin_key=)` needs to load models, to run code therefore; it is
            this run's alone.
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


@dataclass(frozen=True)
class Settings:
    """How to serve a repository.

    Args:
        repository: the model repository's folder.
        models: names to serve, with what their ensembles need; None serves all there are.
        ports: where to listen; the host decides who can reach it (loopback: this machine alone).
        ready_timeout_s: from the start of the process until every model has answered.
        python_backends: the folder with `backends/`.
        root: the project, with `.venv-server` and `.tritonkit`; the repository's parent where it is
            None.
        drain_timeout_s: how long requests in flight may take when stopping.
        finalize_timeout_s: how long the models' `finalize` may take after that; Triton spends
            about 1.3 s on each instance.
        shared_memory: the file system that holds the Python stubs' regions.
        http: whether the REST proxy is opened.
        http_hosts: names under which its callers know this machine.
        http_origins: of web pages that may call it.
        shared_memory_api: whether clients with the key may register shared memory.
        max_request_mib: the largest request; None computes it from the models.
        restarts: starts in a row after a death that may fail; 0 starts it never again.
        verify: whether the served files are held against their manifests.
    """

    repository: Path
    models: tuple[str, ...] | None
    ports: Ports
    host: str
    ready_timeout_s: float
    python_backends: Path
    root: Path
    drain_timeout_s: float
    finalize_timeout_s: float
    shared_memory: Path
    http: bool = False
    http_hosts: tuple[str, ...] = ()
    http_origins: tuple[str, ...] = ()
    shared_memory_api: bool = False
    max_request_mib: int | None = None
    restarts: int = 5
    verify: bool = False
