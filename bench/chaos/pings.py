"""The machine itself: when it stood still, and pings that a busy replica did not answer in time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.stack.state import FOLDER

if TYPE_CHECKING:
    from bench.chaos.callers import Load
    from bench.chaos.stack import Running

__all__ = ["PING_S", "Pings"]

PING_S = 2.0
"""The longest silence of a replica: the gateway pings each second, and waits one."""
_PAUSE_S = 0.5
_STILL_S = 5.0
"""Seconds late after which the machine counts as paused: not even a sleeping thread was woken, as in a virtual
machine."""
_COUNTER = r"cluster\..*\.http2\.keepalive_timeout"


@dataclass
class Pings:
    """A watch over Envoy's own counter of pings without an answer, upon which it closes its connection to a replica.

    As a context manager; `spans` is when the counter grew, `still` when the machine stood still.
    """

    running: Running
    load: Load
    spans: list[tuple[float, float]] = field(default_factory=list)
    still: list[tuple[float, float]] = field(default_factory=list)

    def __enter__(self) -> Pings:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        admin = GatewayAdmin(self.running.root / FOLDER / "gateway")
        count_before, looked_s = admin.stat(_COUNTER) or 0, self.load.now_s()
        while not self._waited():
            count, now_s = admin.stat(_COUNTER), self.load.now_s()
            if count is None:  # the gateway was hit itself
                continue
            if count > count_before:
                self.spans.append((looked_s - PING_S, now_s))
            count_before, looked_s = count, now_s

    def _waited(self) -> bool:
        """Whether it is over, after the pause between two looks; a longer one is noted."""
        began = time.monotonic()
        over = self._over.wait(_PAUSE_S)
        if time.monotonic() - began > _PAUSE_S + _STILL_S:
            self.still.append((began - self.load.began, self.load.now_s()))
        return over
