"""Notices a Python stub that died, and gets its model to answer again.

Triton 2.51 does neither: a model whose stub is gone stays "ready", answers each request after a
second with an error, and is not started again by loading it; unloading and loading it does (tried).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from tritonkit.serve.core.stubs import Stub, find_stubs, grown_models
from tritonkit.serve.core.supervisor import state
from tritonkit.serve.rpc import NotAnswered, Service, connect
from tritonkit.serve.values import ServeEvent
from tritonkit.serve.warm import NoSample, warm_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tritonkit.serve.repository import ServedModel

__all__ = ["MOST_DEATHS", "TICK_S", "StubWatch"]

TICK_S = 0.5
"""Between two looks; a death is believed at the second, so it is told within about a second."""

MOST_DEATHS = 5
"""Deaths of a model within `_PERIOD_S` after which it is left alone."""

_PERIOD_S = 60.0
_RESCAN_TICKS = 6
_RELOAD_S = 300.0
_ANSWER_S = 30.0
_RETIRE_S = 10.0


class StubWatch:
    """The stubs of one server, looked at again and again.

    Args:
        prefix: begins the names of the run's shared-memory regions, and so tells its stubs.
        address: the server's gRPC address.
        key: the run's admin key.
        models: what it serves.
        planned: bytes of shared memory for each stub of a model; one that takes far more is replaced.
        tell: takes the events; called in other threads.
    """

    def __init__(
        self, prefix: str, address: str, key: str, models: Mapping[str, ServedModel],
        planned: Mapping[str, int], tell: Callable[[ServeEvent], None],
    ) -> None:  # fmt: skip
        self._prefix = prefix
        self._address = address
        self._key = key
        self._models = models
        self._planned = planned
        self._tell = tell
        self._known = set(find_stubs(prefix))
        self._suspects: set[Stub] = set()
        self._retired: set[int] = set()
        self._recovering: set[str] = set()
        self._deaths: defaultdict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=MOST_DEATHS)
        )
        self._replaced: dict[str, float] = {}
        self._ticks = 0
        self._lock = threading.Lock()

    def look(self) -> None:
        """Look once. A stub found ended twice in a row has died: one that its server ended (unloading
        the model) is a zombie for a moment only."""
        with self._lock:
            self._ticks += 1
            grown: set[Stub] = set()
            if self._ticks % _RESCAN_TICKS == 0:
                self._rescan()
                grown = self._grown()
            ended = {stub for stub in self._known if state(stub.pid) == "zombie"}
            gone = {stub for stub in self._known if state(stub.pid) == "gone"}
            dead = ended & self._suspects
            self._suspects = ended - dead
            self._known -= dead | gone
            models = {stub.model: stub for stub in dead if stub.model not in self._recovering}
            self._recovering |= set(models)
        for stub in models.values():
            self._report(stub)
        for stub in grown - set(models.values()):
            self._replace(stub)

    def _rescan(self) -> None:
        """Take in the stubs of models that were loaded meanwhile."""
        self._known |= {s for s in find_stubs(self._prefix) if s.pid not in self._retired}

    def _grown(self) -> set[Stub]:
        """One stub of each model whose shared memory has grown too far, and not again within a minute:
        who sends large requests shall not keep a model busy with starting."""
        now = time.monotonic()
        names = grown_models(self._known, self._planned) - self._recovering
        names = {name for name in names if now - self._replaced.get(name, -_PERIOD_S) >= _PERIOD_S}
        self._replaced |= dict.fromkeys(names, now)
        self._recovering |= names
        return {next(stub for stub in self._known if stub.model == name) for name in names}

    def _replace(self, stub: Stub) -> None:
        text = f"the shared memory of {stub.instance} has grown far beyond its plan; its model is loaded again"
        self._tell(ServeEvent("stub_grown", text, stub.model))
        self._start_recovery(stub)

    def _report(self, stub: Stub) -> None:
        self._tell(
            ServeEvent("stub_died", f"the Python process of {stub.instance} ended", stub.model)
        )
        deaths = self._deaths[stub.model]
        deaths.append(time.monotonic())
        if len(deaths) == MOST_DEATHS and deaths[-1] - deaths[0] < _PERIOD_S:
            text = f"it died {MOST_DEATHS} times within {_PERIOD_S:.0f} s and is not loaded again"
            self._tell(ServeEvent("stub_lost", text, stub.model))
            return
        self._start_recovery(stub)

    def _start_recovery(self, stub: Stub) -> None:
        threading.Thread(
            target=self._recover, args=(stub,), name=f"reload-{stub.model}", daemon=True
        ).start()

    def _recover(self, dead: Stub) -> None:
        """Load the model anew, ask it, and tell; then end what is left of its former stubs."""
        start, name = time.monotonic(), dead.model
        answers: bool | None = None  # None: it was not even loaded
        with self._lock:
            former = {stub for stub in self._known if stub.model == name}
            self._known -= former
            self._retired |= {stub.pid for stub in former}
        try:
            with connect(self._address, self._key) as service:
                service.reload(name, _RELOAD_S)
                answers = self._answers(service, name)
        except NotAnswered as error:
            self._tell(ServeEvent("stub_lost", f"it cannot be loaded again: {error}", name))
        if answers:
            text = f"it answers again after {time.monotonic() - start:.1f} s"
            self._tell(ServeEvent("stub_back", text, name))
        with self._lock:
            self._rescan()
            # A stub that died again before it was seen has left nothing to look at: /proc shows no
            # command line of a zombie.
            seen = any(stub.model == name for stub in self._known)
            died_again = answers is False or (answers and not seen)
            if not died_again:
                self._recovering.discard(name)
        _retire(former)
        if died_again:
            self._report(dead)

    def _answers(self, service: Service, name: str) -> bool:
        """Whether the model, loaded anew, answers its warm request; true where it has none."""
        model = self._models.get(name)
        if model is None:
            return True
        try:
            request = warm_request(model, self._models, os.getpid())
        except NoSample:
            return True
        decoupled = model.config.model_transaction_policy.decoupled
        try:
            service.infer(request, decoupled=decoupled, timeout_s=_ANSWER_S)
        except NotAnswered:
            return False
        return True


def _retire(former: set[Stub]) -> None:
    """End stubs that should have gone with their model. Triton ends the instances of a model one
    after the other, and waits forever at the one that had died; the rest would stay for good."""
    deadline = time.monotonic() + _RETIRE_S
    while time.monotonic() < deadline and any(state(stub.pid) == "running" for stub in former):
        time.sleep(TICK_S)
    for stub in former:
        with contextlib.suppress(OSError):
            if state(stub.pid) == "running":
                os.kill(stub.pid, signal.SIGKILL)
