"""Detects a Python stub that died, and reloads its model or has the whole server restarted.

Triton 2.51 does neither. A model whose stub has died stays "ready" and answers each request with an error
after a second. Loading it does not start the stub again; unloading and loading does (tried). Triton never ends
the streams of such a decoupled model: only the end of their connections does.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping

from .stubs import Stub, find_stubs, grown_models
from .supervisor import SHARED_MEMORY, state
from .unix_http import Admin

__all__ = ["MOST_DEATHS", "TICK_S", "StubWatch"]

TICK_S = 0.5
"""Seconds between two scans; a death counts at the second scan, so it is reported within about a second."""

MOST_DEATHS = 5
"""Deaths of a model within `_PERIOD_S` after which it is not reloaded."""

_PERIOD_S = 60.0
_USUAL_S = 600.0
"""A model that grows again within this time after it was reloaded needs the memory for its usual requests."""

_RESCAN_TICKS = 6
_RETIRE_S = 10.0


class StubWatch:
    """The stubs of one server; `scan` is called every TICK_S.

    Args:
        prefix: prefix of the names of the run's shared-memory regions, which identifies its stubs.
        admin: the server's own API; its timeout should be minutes, as a load may take so long.
        planned: bytes of shared memory for each stub of a model; a model whose stub takes far more is
            reloaded, unless that was done some minutes ago.
        on_event: function that takes the kind of an event, a text and the model's name; called in other
            threads. The kinds are stub_died, stub_grown, stub_back, stub_lost and streams_lost. After
            streams_lost nothing more is done for the model: the server must be restarted.
        answers: function that tells whether a reloaded model answers a request; None to skip this check.
        before: the watch over the previous server; its counts of deaths are continued.
        restarts: whether an ended server is restarted; if not, streams are left to their deadlines.

    `replaced` has the process ids of stubs whose models answer again. Stubs that died may stay zombies
    as long as the server runs, because Triton never waits for them.
    """

    def __init__(
        self,
        prefix: str,
        admin: Admin,
        planned: Mapping[str, int],
        on_event: Callable[[str, str, str], None],
        answers: Callable[[str], bool] | None = None,
        before: StubWatch | None = None,
        restarts: bool = True,
    ) -> None:
        self._prefix = prefix
        self._admin = admin
        self._planned = dict(planned)
        self._on_event = on_event
        self._answers = answers
        self._restarts = restarts
        self.replaced: frozenset[int] = frozenset()
        self._running = set(find_stubs(prefix))
        self._suspects: set[Stub] = set()
        self._retired: set[int] = set()
        self._recovering: set[str] = set()
        self._unloaded: set[str] = set()
        """Models that could not be reloaded, until someone else loads them."""
        self._deaths: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MOST_DEATHS))
        self._died: Counter[str] = Counter() if before is None else before.deaths()
        self._replaced: dict[str, float] = {}
        self._ticks = 0
        self._lock = threading.Lock()

    def scan(self) -> None:
        """Scan once. A stub that is a zombie in two scans has died: a stub that its server ended (by
        unloading the model) is a zombie only for a moment."""
        with self._lock:
            self._ticks += 1
            grown: set[Stub] = set()
            if self._ticks % _RESCAN_TICKS == 0:
                self._rescan()
                grown = self._grown()
            ended = {stub for stub in self._running if state(stub.pid) == "zombie"}
            gone = {stub for stub in self._running if state(stub.pid) == "gone"}
            dead = ended & self._suspects
            self._suspects = ended - dead
            self._running -= dead | gone
            models = {stub.model: stub for stub in dead if stub.model not in self._recovering}
            self._recovering |= set(models)
        for stub in models.values():
            self._report(stub)
        for stub in grown - set(models.values()):
            self._replace(stub)

    def deaths(self) -> Counter[str]:
        """The number of stubs of each model that have died so far."""
        with self._lock:
            return Counter(self._died)

    def health(self) -> dict[str, tuple[bool, int]]:
        """Model with stubs -> whether all are alive, and the number of deaths so far."""
        with self._lock:
            down, died = self._recovering | self._unloaded, Counter(self._died)
            models = {stub.model for stub in self._running} | down | died.keys()
        return {model: (model not in down, died[model]) for model in sorted(models)}

    def _rescan(self) -> None:
        """Add the stubs of models that have been loaded since the last scan."""
        stubs = {s for s in find_stubs(self._prefix) if s.pid not in self._retired}
        self._unloaded -= {stub.model for stub in stubs - self._running}
        self._running |= stubs

    def _grown(self) -> set[Stub]:
        """One stub of each model whose shared memory has grown too far.

        Another reload soon after the last would only interrupt callers whose requests are all as large. So the plan is
        raised instead, and the region stays; the limit on a file bounds it.
        """
        now = time.monotonic()
        sizes = grown_models(self._running, self._planned)
        names = sizes.keys() - self._recovering
        usual = {name for name in names if now - self._replaced.get(name, -_USUAL_S) < _USUAL_S}
        self._planned |= {name: sizes[name] for name in usual}
        names -= usual
        self._replaced |= dict.fromkeys(names, now)
        self._recovering |= names
        return {next(stub for stub in self._running if stub.model == name) for name in names}

    def _replace(self, stub: Stub) -> None:
        text = f"the shared memory of {stub.instance} has grown far beyond its plan; its model is loaded again"
        self._on_event("stub_grown", text, stub.model)
        self._start_recovery(stub, died=False)

    def _report(self, stub: Stub) -> None:
        self._on_event("stub_died", f"the Python process of {stub.instance} ended", stub.model)
        with self._lock:
            self._died[stub.model] += 1
        deaths = self._deaths[stub.model]
        deaths.append(time.monotonic())
        if len(deaths) == MOST_DEATHS and deaths[-1] - deaths[0] < _PERIOD_S:
            text = f"it died {MOST_DEATHS} times within {_PERIOD_S:.0f} s and is not loaded again"
            self._on_event("stub_lost", text, stub.model)
            return
        self._start_recovery(stub, died=True)

    def _start_recovery(self, stub: Stub, *, died: bool) -> None:
        threading.Thread(target=self._recover, args=(stub, died), name=f"reload-{stub.model}", daemon=True).start()

    def _has_streams(self, model: str) -> bool:
        """Whether the model may have streams, which nothing would end."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            return self._admin.is_decoupled(model)
        return False

    def _recover(self, dead: Stub, died: bool) -> None:
        """Reload the model, check that it answers, and end the remaining old stubs."""
        start, name = time.monotonic(), dead.model
        if died and self._restarts and self._has_streams(name):
            text = "its streams would never end: the server is started again, and all its streams are lost"
            self._on_event("streams_lost", text, name)
            return
        answers: bool | None = None  # None: it was not even loaded
        with self._lock:
            former = {stub for stub in self._running if stub.model == name} | {dead}
            self._running -= former
            self._retired |= {stub.pid for stub in former}
        try:
            # Loading alone changes nothing; its ensembles are reloaded with it (tried on 2.51).
            self._admin.unload(name)
            self._admin.load(name)
            answers = self._answers is None or self._answers(name)
        except (OSError, http.client.HTTPException) as error:
            self._on_event("stub_lost", f"it cannot be loaded again: {error}", name)
        if answers:
            text = f"it answers again after {time.monotonic() - start:.1f} s"
            self._on_event("stub_back", text, name)
        with self._lock:
            self._rescan()
            # A stub that died again before it was seen has left nothing to look at: /proc shows no
            # command line of a zombie.
            seen = any(stub.model == name for stub in self._running)
            died_again = answers is False or (answers and not seen)
            if not died_again:
                self._recovering.discard(name)
            if answers is None:
                self._unloaded.add(name)
            if answers:
                self.replaced |= {stub.pid for stub in former}
        _retire(former, _RETIRE_S if died else float("inf"))
        if died_again:
            self._report(dead)


def _retire(former: set[Stub], within_s: float) -> None:
    """Wait for stubs that end with their model, kill those that have not ended in time, and remove their regions.

    Triton ends a model's instances one by one and waits forever for one that has died, so the others would stay. If
    none has died, they stay for the requests that they still answer; streams may take minutes.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and any(state(stub.pid) == "running" for stub in former):
        time.sleep(TICK_S)
    for stub in former:
        with contextlib.suppress(OSError):
            if state(stub.pid) == "running":
                os.kill(stub.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            (SHARED_MEMORY / stub.region).unlink()
