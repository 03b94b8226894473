"""A client's side of a connection driven with mutated frames, and what must hold of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tests.client.wire.fuzz.mutation import Mutator
from tests.client.wire.fuzz.record import CALLS
from tritonkit.client.wire.channel import ChannelConfig
from tritonkit.client.wire.http2.call import Call, Waiter
from tritonkit.client.wire.http2.connection import Connection, Draining
from tritonkit.client.wire.http2.ending import answer_of, error_of
from tritonkit.client.wire.http2.headers import RequestHeaders
from tritonkit.client.wire.limits import AnswerLimit
from tritonkit.client.wire.status import STREAM
from tritonkit.errors import ClientError

__all__ = ["Episode"]

_MIB = 2**20
_NUMBER = re.compile(r"\d{2,}|\d\b")
_TARGET = ChannelConfig("127.0.0.1:8001")
_LIMIT = AnswerLimit(_MIB)


class Episode:
    """One connection from its first byte to its end.

    Args:
        number: of the episode, for messages.
        random: decides.
        mutator: gives the bytes.

    Attributes:
        frames: that were read before the connection ended.
        mutated: of these, those that are not as recorded.
    """

    def __init__(self, number: int, random: Random, mutator: Mutator) -> None:
        self._number, self._random, self._mutator = number, random, mutator
        self._core = Connection(RequestHeaders("127.0.0.1:8001", False), _LIMIT)
        self._calls: list[Call] = []
        self._waiters: list[Waiter] = []
        self._now = 0.0
        self.frames = self.mutated = 0

    def run(self, outcomes: Counter[str]) -> None:
        """Read it all; `AssertionError` for a promise that is broken, anything else is a fault."""
        for method, body in CALLS:
            self._open(method, body)
        core, random = self._core, self._random
        fed, kept = 0, b""
        for data, mutated in self._mutator.sequence():
            if core.lost:
                break
            self.frames += 1
            self.mutated += mutated
            fed += len(data)
            dice = random.random()
            if dice < 0.1:  # in two parts
                at = random.randrange(len(data) + 1)
                core.receive(kept + data[:at])
                kept, data = b"", data[at:]
            elif dice < 0.3:  # with the next one
                kept += data
                continue
            core.receive(kept + data)
            kept = b""
            assert len(core.writer.out) < 1200, "what is to be sent piles up"
            core.writer.out.clear()
            if dice > 0.9:
                random.choice(self._ACTIONS)(self)
        core.receive(kept)
        self._check(fed)
        self._end(outcomes)

    # -- what a client may do meanwhile

    def _open(self, method: str, body: list[Any]) -> None:
        unary = method != "stream"
        try:
            size = len(body[0])
            if self._core.full():
                self._waiters.append(self._core.enqueue())
                return
            call = self._core.open(method if unary else STREAM, body if unary else None, size, 5.0)
        except Draining:
            return
        self._calls.append(call)
        if not unary:
            self._core.writer.write(call, body, size)
            self._push(call)

    def _push(self, call: Call) -> None:
        room = self._core.writer.push(call, _MIB)
        if room is not None:
            self._waiters.append(room)

    def _push_some(self) -> None:
        self._push(self._random.choice(self._calls))

    def _open_another(self) -> None:
        self._open(*self._random.choice(CALLS))

    def _read(self) -> None:
        call = self._random.choice(self._calls)
        if call.streaming:
            self._core.read(call)

    def _give_up(self) -> None:
        self._core.cancel(self._random.choice(self._calls), self._now)

    def _reset_cancelled(self) -> None:
        self._now += 0.2
        self._core.reset_cancelled(self._now)

    def _finish(self) -> None:
        self._core.writer.finish(self._random.choice(self._calls))

    def _ping(self) -> None:
        self._core.ping()

    _ACTIONS: tuple[Callable[[Episode], None], ...] = (
        _push_some,
        _open_another,
        _read,
        _read,
        _give_up,
        _reset_cancelled,
        _finish,
        _ping,
    )

    # -- what must hold

    def _check(self, fed: int) -> None:
        core = self._core
        kept = len(core._reader._partial) + len(core._reader._block or b"")
        kept += sum(len(call._buffer) for call in self._calls)
        assert kept <= fed, "more is kept than came"
        assert core._answers._decoder.header_table._current_size <= 4096
        assert len(core._answers._cache) <= 64
        for call in self._calls:
            assert call.ended is (call.number not in core.calls), "a call is forgotten"
            assert not call.ended or call.ready, "a call has ended and nobody is woken"
            if not call.ended and not call.streaming:
                assert call.answer is None or len(call.answer) <= _MIB

    def _end(self, outcomes: Counter[str]) -> None:
        core = self._core
        outcomes[f"connection: {_NUMBER.sub('N', core.lost) or 'read to its end'}"] += 1
        core.fail("it is over")
        assert not core.calls
        assert not core.cancelled
        assert not core.writer._blocked_calls
        assert not core._queue
        assert all(waiter.ready for waiter in self._waiters), "somebody waits for ever"
        for call in self._calls:
            assert call.ended
            assert call.ready
            if self._number % 8 == 0:
                outcomes[f"call: {_outcome(call)}"] += 1


def _outcome(call: Call) -> str:
    if call.streaming:
        while call.unread:
            assert call.read() is not None
    elif answer_of(call) is not None:
        return "answered"
    error = error_of(call, _TARGET, STREAM if call.streaming else "ModelInfer", [b""], 5.0)
    assert isinstance(error, ClientError)
    assert str(error)
    return type(error).__name__
