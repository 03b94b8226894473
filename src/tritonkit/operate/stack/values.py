"""Settings of a stack, its parts and its events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tritonkit.option import Option

__all__ = ["StackEvent", "StackPart", "StackSettings", "State"]

State = Literal["starting", "ready", "down", "stopping", "absent"]


@dataclass(frozen=True)
class StackEvent:
    """Something a person watching the stack wants to know of one of its parts."""

    part: str
    message: str


@dataclass(frozen=True)
class StackPart:
    """A process of the stack as it is now.

    Args:
        name: `replica-0`, `gateway`, `limiter`, `prometheus`, `redis`.
        state: `absent`: it is not started, mostly because its program is not installed here.
        address: where it answers.
        pid: of its process; 0 while there is none.
        cores: that it may use; empty: all.
        said: what was last said of it.
    """

    name: str
    state: State
    address: str = ""
    pid: int = 0
    cores: tuple[int, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class StackSettings:
    """A stack to be: replicas behind a gateway, and what watches them.

    Args:
        root: the project.
        repository: the models.
        models: names to serve; all by default.
        require: those without which no replica is to run, or "all".
        replicas: how many servers.
        gateway: the folder of the gateway's spec, keys and certificates.
        prometheus, redis: whether they are started where they are installed.
        alertmanager: `host:port` of one that Prometheus tells of alerts; empty: they are only seen.
        verify: refuse a repository that is not as it was published, before anything starts.
        public_key: file of a key that must have signed it; None: its manifests decide.
        models_folder: for the copy of the models that replicas serve, where it must not lie in the project; nothing can
            be released then.
        drain_s: for requests that are under way when it stops.
        on_event: is told what happens.
    """

    root: Path
    repository: Path
    _: KW_ONLY
    models: Annotated[
        Sequence[str] | None,
        Option("Serve only this model; may be repeated.", name="--model", metavar="NAME", completes="model"),
    ] = None
    require: Annotated[
        Sequence[str],
        Option(
            "End if this model cannot be served; may be repeated, and `all` stands for every model.",
            metavar="NAME",
            completes="model",
        ),
    ] = ()
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
        """Tell `on_event`; what fails there must not end the stack."""
        with contextlib.suppress(Exception):
            self.on_event(StackEvent(part, message))
