"""The run under way in this process: its requests, their server and their answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rest

from tritonkit.client import Client
from tritonkit.errors import TritonkitError, UsageError
from tritonkit.perf.load import Recorder, Report, Request, workloads
from tritonkit.perf.load.kinds import CALL, kind_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from settings import Settings

    from tritonkit.perf.load.kinds import Kind

__all__ = ["RUN", "Item", "Run", "reach"]

_TIMEOUT_S = 10.0
_REACH_S = 5.0
_GONE_S = 5.0


@dataclass(frozen=True)
class Item:
    """One request in the forms that both kinds of users send."""

    model: str
    request: Request
    kind: Kind
    rest: rest.RestCall | None


class Run:
    """State that Locust's hooks and users share; a new run resets it."""

    def __init__(self) -> None:
        self.settings: Any = None
        self.client: Any = None
        self.items: dict[str, list[Item]] = {}
        self.think_time_s = 0.0
        self.failed = ""
        self.began = 0.0
        self._started: float | None = None
        self._ended = self._workers_s = 0.0
        self._gone_since: float | None = None
        self._recorder = Recorder()

    def prepare(self, root: Path, settings: Settings, protocols: Collection[str]) -> None:
        """Connect, and make every request with its known answer; errors as `reach` and
        `workloads.prepare` raise them."""
        if self.client is not None:
            self.client.close()
        reach(settings, protocols)
        self.settings, self.think_time_s = settings, settings.think_time_s
        self.client = _client(settings.address, _TIMEOUT_S)
        self.items = {}
        for model in settings.weights:
            signature = self.client.model(model).signature
            requests = workloads.prepare(model, root, self.client, settings.inputs).requests
            kind = kind_of(self.client, model)
            over_http = "http" in protocols
            if over_http and kind != CALL:
                raise UsageError(
                    f"model {model}",
                    found="it answers in streams or keeps state, and users who call over HTTP",
                    wanted="users who call over gRPC alone: leave --rest and RestUser out",
                )
            self.items[model] = [
                Item(model, request, kind, rest.encode(signature, request.inputs) if over_http else None)
                for request in requests
            ]

    def begin(self) -> None:
        """Note that users start now."""
        self._started = time.monotonic()
        self.reset()

    def second(self) -> float:
        """Seconds since users started; 0 while the run is being prepared, which its shape does not include."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    def reset(self) -> None:
        """Count requests from now on; drop earlier ones."""
        self._recorder = Recorder()
        self._gone_since = None
        self.began, self._ended, self._workers_s = time.monotonic(), 0.0, 0.0

    def end(self) -> None:
        """Note that users are asked to stop."""
        self._ended = time.monotonic()
        self._started = None

    def record(
        self,
        request_type: str,
        name: str,
        response_time: float,
        response_length: int,
        exception: Exception | None,
        **_: Any,
    ) -> None:
        """Count a request; takes what Locust's `request` event gives."""
        self._recorder.add(request_type, name, response_time, response_length, _words(exception))

    def is_gone(self, unavailable: bool) -> bool:
        """Whether the server has been unavailable for a while; called with the outcome of each request."""
        if not unavailable:
            self._gone_since = None
            return False
        now = time.monotonic()
        self._gone_since = self._gone_since or now
        return now - self._gone_since > _GONE_S

    def give(self, client_id: str, data: dict[str, Any]) -> None:
        """On a worker: put what was counted since the last time into the message to the master."""
        data["tritonkit"] = {"took_s": self._took_s(), "counted": self._recorder.take()}

    def take(self, client_id: str, data: dict[str, Any]) -> None:
        """On the master: add what a worker counted."""
        figures = data["tritonkit"]
        # A worker's own time: before it, the worker prepares what it will send.
        self._workers_s = max(self._workers_s, figures["took_s"])
        self._recorder.merge(figures["counted"])

    def report(self) -> Report:
        """The run so far, or the one that ended."""
        return self._recorder.report(self._workers_s or self._took_s())

    def _took_s(self) -> float:
        return (self._ended or time.monotonic()) - self.began if self.began else 0.0


RUN = Run()


def reach(settings: Settings, protocols: Collection[str]) -> None:
    """Check that the server answers and serves the models; raise `ClientError` or `UsageError` if not."""
    with _client(settings.address, _REACH_S) as client:
        for model in settings.weights:
            client.model(model)
    if "http" in protocols:
        rest.check_ready(settings.http_address, _REACH_S)


def _client(address: str, timeout_s: float) -> Client:
    """A client that hides nothing: a failed request is counted, not sent again."""
    return Client(address, timeout_s=timeout_s, retry=None, breaker=None)


def _words(error: Exception | None) -> str:
    if isinstance(error, TritonkitError):
        return f"{type(error).__name__}: {error.where}: {error.found}"
    return "" if error is None else str(error) or type(error).__name__
