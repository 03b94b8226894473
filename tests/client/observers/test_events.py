"""Several observers as one that harms no call."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from tritonkit.client.observers import CallEvent, Observers
from tritonkit.client.reply import Timing

EVENT = CallEvent("digits", "3", "server", "a:8001", 2, 4, Timing(0.5, 0.4, 0.05, 0.01))


class Recorder:
    """Notes what it is told; fails in the methods named."""

    def __init__(self, name: str = "", failing: tuple[str, ...] = ()) -> None:
        self.name = name
        self.failing = failing
        self.calls: list[Any] = []

    def started(self, model: str) -> str:
        """A call begins."""
        self._fail("started")
        self.calls.append(model)
        return f"{self.name}:{model}"

    def headers(self, token: str) -> tuple[tuple[str, str], ...]:
        """One header."""
        self._fail("headers")
        return ((f"x-{self.name}", token),)

    def finished(self, token: str, event: CallEvent) -> None:
        """The call is over."""
        self._fail("finished")
        self.calls.append((token, event))

    def _fail(self, method: str) -> None:
        if method in self.failing:
            raise RuntimeError(f"{method} of {self.name}")


def test_each_observer_gets_its_own_token() -> None:
    """Each observer gets its own token back, and headers are joined in order."""
    first, second = Recorder("a"), Recorder("b")
    observers = Observers([first, second])
    token = observers.started("digits")
    assert observers.headers(token) == (("x-a", "a:digits"), ("x-b", "b:digits"))
    observers.finished(token, EVENT)
    assert first.calls == ["digits", ("a:digits", EVENT)]
    assert second.calls == ["digits", ("b:digits", EVENT)]


@pytest.mark.parametrize("method", ["started", "headers", "finished"])
def test_a_failing_observer_is_logged_once(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its error is logged at the first call only, and the other observer misses nothing."""
    bad, good = Recorder("bad", (method,)), Recorder("good")
    observers = Observers([bad, good])
    for _ in range(3):
        token = observers.started("digits")
        assert ("x-good", "good:digits") in observers.headers(token)
        observers.finished(token, EVENT)
    assert len(good.calls) == 6
    assert [record.getMessage() for record in caplog.records] == ["Recorder failed; calls go on without it"]


def test_no_observers_are_false() -> None:
    """A client without observers can skip them with one test."""
    assert not Observers()
    assert Observers([Recorder()])
    assert Observers().headers(Observers().started("m")) == ()


def test_an_observers_exit_is_not_swallowed() -> None:
    """Ctrl-C while an observer runs still interrupts."""

    class Interrupted(Recorder):
        def started(self, model: str) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Observers([Interrupted()]).started("m")


def test_the_library_is_quiet() -> None:
    """Without logging set up, a warning of the library prints nothing, and importing loads no extras."""
    code = (
        "import sys; from tritonkit.client.log import logger; import tritonkit.client.observers;"
        "logger.warning('noise');"
        "assert not {'grpc', 'redis', 'prometheus_client', 'opentelemetry'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_the_library_can_be_heard(caplog: pytest.LogCaptureFixture) -> None:
    """An application that sets up logging gets the library's lines."""
    from tritonkit.client.log import logger

    with caplog.at_level(logging.DEBUG, "tritonkit"):
        logger.debug("heard")
    assert caplog.messages == ["heard"]
