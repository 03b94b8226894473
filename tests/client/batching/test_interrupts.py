"""Ctrl-C wherever it may come: the others get their answers, and nothing is left behind."""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.client.batching.conftest import Caller
from tritonkit.client import waiting
from tritonkit.client.batching import batcher
from tritonkit.errors import InferenceError

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="it knows where this version looks for signals")

HERE = (str(Path(batcher.__file__).parent), waiting.__file__)
LOOKS = {"CALL", "RESUME", "JUMP_BACKWARD", "CALL_FUNCTION_EX"}
"""After these the interpreter looks for signals."""


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """Callers that other tests left halfway are not collected during an interrupt."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Interrupt:
    """Raises KeyboardInterrupt in the batching room or in its sleep, at the `at`-th place where a signal may come."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.place = ""
        self._passed = 0
        self._last: dict[FrameType, str] = {}

    @contextmanager
    def armed(self) -> Iterator[None]:
        """While this thread runs the block."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_back is not None:
            self._last[frame.f_back] = "a call of Python"  # the interpreter looks in the callee
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        frame.f_trace_opcodes = True
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            code = frame.f_code
            name = dis.opname[code.co_code[frame.f_lasti]]
            last = self._last.get(frame)
            self._last[frame] = name
            begins = last is None and not code.co_flags & 0x20  # not a generator that goes on
            if last in LOOKS or begins or name == "BEFORE_WITH":
                self._passed += 1
                if self._passed > self.at and not self.place:
                    self.place = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
                    raise KeyboardInterrupt
        return self._stepped


class Victim(Caller):
    """A caller whose steps may be interrupted."""

    interrupt = Interrupt(0)

    def _advance(self, move: Callable[[], Any]) -> None:
        with self.interrupt.armed():
            super()._advance(move)


@pytest.mark.parametrize("victim", range(5))
@pytest.mark.parametrize("fails", [False, True], ids=["answered", "failed"])
def test_an_interrupt_sends_nothing_twice_that_may_not(room: Callable[..., Any], victim: int, fails: bool) -> None:
    """At every place in turn: each of the others is sent once, and gets its value or an error."""
    places = 0
    while True:
        here, interrupt = room(in_flight=1, idempotent=False), Interrupt(places)
        play(here, victim, interrupt, [30.0, 10.0, 30.0, 8.0, 30.0], fails)
        if not interrupt.place:
            break
        places += 1
        assert len(set(here.sent)) == len(here.sent), interrupt.place
        for number, caller in enumerate(here.callers):
            if number == victim:
                assert isinstance(caller.error, KeyboardInterrupt), interrupt.place
            elif caller.result is not None:
                assert caller.result.outputs["x"][0, 0] == number, interrupt.place
            else:
                assert isinstance(caller.error, InferenceError), interrupt.place
        assert not here.left(), interrupt.place
    assert places > 5


def play(here: Any, victim: int, interrupt: Interrupt, times: list[float], fails: bool) -> None:
    """One sends alone, four queue up and go together; one of the five is interrupted."""
    Victim.interrupt = interrupt
    for number, timeout_s in enumerate(times):
        here.kind = Victim if number == victim else Caller
        here.call(number, timeout_s)
    for _ in range(40):
        here.settle()
        for sender in here.senders():
            here.now += 0.003
            if fails and len(sender.wire.items) > 1:
                sender.fail(InferenceError("m", found="one of them is bad"))
            else:
                sender.answer()
        here.now += 0.02
        for caller in here.callers:
            if caller.step is caller.item and caller.item.seconds < 1:
                caller.look()


@pytest.mark.parametrize("victim", range(5))
@pytest.mark.parametrize("times", [[30.0] * 5, [30.0, 10.0, 30.0, 8.0, 30.0]], ids=["same", "own"])
@pytest.mark.parametrize("fails", [False, True], ids=["answered", "halved"])
def test_an_interrupt_harms_nobody_else(room: Callable[..., Any], victim: int, times: list[float], fails: bool) -> None:
    """At every place in turn: the others have their own values, all counts are 0, later calls go on."""
    places = 0
    while True:
        here, interrupt = room(in_flight=1), Interrupt(places)
        play(here, victim, interrupt, times, fails)
        if not interrupt.place:
            break
        places += 1
        for number, caller in enumerate(here.callers):
            if number == victim:
                assert isinstance(caller.error, KeyboardInterrupt), interrupt.place
            else:
                assert caller.result is not None, interrupt.place
                assert caller.result.outputs["x"][0, 0] == number, interrupt.place
        assert not here.left(), interrupt.place
    assert places > 5
