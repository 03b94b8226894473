"""Metrics that Triton lacks, in Prometheus' text format: stubs, batch limits, shared memory and disk."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from .flags import HTTP_SOCKET
from .stub_watch import StubWatch
from .supervisor import SHARED_MEMORY
from .unix_http import UnixConnection

__all__ = ["Gauges"]

_MODEL = re.compile(r'^nv_inference_request_success\{model="((?:[^"\\]|\\.)*)"', re.MULTILINE)
_CONFIG_S = 2.0
"""Time limit for Triton's answer with a configuration; a scrape waits for it."""
_KNOWN_S = 30.0
"""Seconds after which a batch limit is read again, because its model may have been reloaded."""


class Gauges:
    """The gauges of one server, computed at each scrape.

    Args:
        folder: the server's working directory, with HTTP_SOCKET.
        disk: a folder on the file system whose space is reported, the repository's.
        memory: where shared memory is.
    """

    def __init__(self, folder: Path, disk: Path, memory: Path = SHARED_MEMORY) -> None:
        self._folder, self._disk, self._memory = folder, disk, memory
        self._limits: dict[str, int] = {}
        self._asked: frozenset[str] = frozenset()
        self._asked_at = 0.0
        self.stubs: StubWatch | None = None
        """The watch over the current server process."""

    def text(self, metrics: str) -> str:
        """The lines to add to Triton's own metrics; figures that cannot be read now are left out."""
        return "".join(
            [
                *_space("shared_memory", "POSIX shared memory", self._memory),
                *_space("disk", "the file system of the model repository", self._disk),
                *self._stub_lines(),
                *self._limit_lines(_MODEL.findall(metrics)),
            ]
        )

    def _stub_lines(self) -> Iterable[str]:
        health = {} if self.stubs is None else self.stubs.health()
        if health:
            yield _head("stub_up", "gauge", "1 while the model's Python processes are all there")
            for model, (up, _) in health.items():
                yield _line("stub_up", model, int(up))
            yield _head("stub_deaths_total", "counter", "Python processes of the model that died")
            for model, (_, deaths) in health.items():
                yield _line("stub_deaths_total", model, deaths)

    def _limit_lines(self, models: Iterable[str]) -> Iterable[str]:
        now, names = time.monotonic(), frozenset(models)
        if names - self._asked or now - self._asked_at >= _KNOWN_S:
            self._asked, self._asked_at = names, now
            self._limits = {}
            # A server that does not answer in time is not queried for the other models.
            with contextlib.suppress(OSError, http.client.HTTPException):
                for model in sorted(names):
                    self._ask(model)
        if self._limits:
            yield _head("max_batch_size", "gauge", "max_batch_size of the model; 0: no batch axis")
            for model, limit in self._limits.items():
                yield _line("max_batch_size", model, limit)

    def _ask(self, model: str) -> None:
        connection = UnixConnection(self._folder, HTTP_SOCKET, _CONFIG_S)
        try:
            connection.request("GET", f"/v2/models/{quote(model, safe='')}/config")
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        # A model that is being unloaded has none.
        if answer.status == http.client.OK:
            with contextlib.suppress(ValueError, AttributeError, TypeError):
                self._limits[model] = int(json.loads(body).get("max_batch_size", 0))


def _space(name: str, what: str, place: Path) -> Iterable[str]:
    """Free space for this user, and total space."""
    with contextlib.suppress(OSError):
        system = os.statvfs(place)
        yield _head(f"{name}_free_bytes", "gauge", f"Free bytes of {what}")
        yield f"tritonkit_{name}_free_bytes {system.f_bavail * system.f_frsize}\n"
        yield _head(f"{name}_size_bytes", "gauge", f"Bytes of {what}, free or not")
        yield f"tritonkit_{name}_size_bytes {system.f_blocks * system.f_frsize}\n"


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP tritonkit_{name} {text}\n# TYPE tritonkit_{name} {kind}\n"


def _line(name: str, model: str, value: int) -> str:
    """A sample, labeled with its model as in Triton's own metrics."""
    return f'tritonkit_{name}{{model="{model}"}} {value}\n'
