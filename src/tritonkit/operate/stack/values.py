"""Settings of a stack, its parts and its events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tritonkit.option import Option
from tritonkit.serve.values import RequiredModels, ServedModels

__all__ = ["StackEvent", "StackPart", "StackSettings", "State"]

State = Literal["starting", "ready", "down", "stopping", "absent"]


@dataclass(frozen=True)
class StackEvent:
    """A message about a part of the stack, for a person who watches it."""

    part: str
    message: str


@dataclass(frozen=True)
class StackPart:
    """A process of the stack as it is now.

    Args:
        name: its name, such as `replica-0`, `gateway`, `limiter`, `prometheus` or `redis`.
        state: its state; `absent`: not started, usually because its program is not installed here.
        address: the address at which it answers.
        pid: the ID of its process; 0 without a process.
        cores: the cores that it may use; empty: all.
        said: the last message about it.
    """

    name: str
    state: State
    address: str = ""
    pid: int = 0
    cores: tuple[int, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class StackSettings:
    """Settings of a stack: replicas behind a gateway, and the programs that monitor them.

    Args:
        root: the project's folder.
        repository: the model repository.
        models: names of the models to serve; all by default.
        require: names of the models without which no replica may run, or "all".
        replicas: the number of servers.
        gateway: the folder of the gateway's spec, keys and certificates.
        prometheus, redis: whether to start them if they are installed.
        alertmanager: `host:port` of the Alertmanager that Prometheus sends alerts to; empty: none.
        verify: refuse a repository that is not as it was published, before anything starts.
        public_key: file of a public key whose owner must have signed the repository; None: its manifests decide.
        models_folder: the folder for the copy of the models that replicas serve, if it must not lie in the project.
            Releases are refused then.
        drain_s: time limit for requests that are under way when the stack stops, in seconds.
        on_event: called with each event.
    """

    root: Path
    repository: Path
    _: KW_ONLY
    models: ServedModels = None
    require: RequiredModels = ()
    replicas: Annotated[int, Option("Number of servers.")] = 2
    gateway: Path = Path("deploy/gateway")
    prometheus: Annotated[bool, Option("Start Prometheus too, where it is installed.")] = True
    redis: Annotated[bool, Option("Start Redis too, where it is installed.")] = True
    alertmanager: Annotated[
        str, Option("An Alertmanager that Prometheus sends its alerts to.", metavar="HOST:PORT")
    ] = ""
    verify: Annotated[bool, Option("Refuse files that are not as they were published; some 2 s for each GiB.")] = True
    public_key: Path | None = None
    models_folder: Path | None = None
    drain_s: float = 30.0
    on_event: Callable[[StackEvent], None] = field(default=lambda event: None)

    def emit(self, part: str, message: str) -> None:
        """Call `on_event`; an error there must not end the stack."""
        with contextlib.suppress(Exception):
            self.on_event(StackEvent(part, message))
