"""Calls that may not run twice: none of them goes in a second request once the first may have begun."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.batching.test_batcher import Make, _batch_of
from tritonkit.errors import DeadlineExceeded, InferenceError, InvalidInput


@pytest.mark.parametrize("gone", [asyncio.CancelledError(), KeyboardInterrupt()])
def test_what_may_not_run_twice_is_not_sent_again_for_a_leader_that_is_stopped(room: Make, gone: BaseException) -> None:
    """The server may have begun with the batch: who was in it is told so, who was not goes on."""
    here = room(in_flight=1, idempotent=False)
    leader, *others = _batch_of(here, 4)
    waiting = here.call(9)
    leader.fail(gone)
    here.until_sent()
    assert leader.error is gone
    for caller in others:
        assert isinstance(caller.error, InferenceError)
        assert "was stopped while that was under way" in caller.error.found
    assert waiting.wire.values == [9]
    assert sorted(here.sent) == [-1, 0, 1, 2, 3, 9]


def test_who_was_not_sent_yet_goes_on_without_a_leader_that_is_stopped(room: Make) -> None:
    """A batch that waits for its sender has not been begun with: the others of it are sent."""
    here = room(in_flight=1, idempotent=False)
    first = here.call(0)
    here.call(1, timeout_s=1.0)  # would lead, and leaves that to the one with more time
    patient = here.call(2, timeout_s=20.0)
    here.batcher._queue[0].wake()
    first.fail(asyncio.CancelledError())
    here.now += 0.02
    here.callers[1].look()
    patient.fail(asyncio.CancelledError())
    here.until_sent()
    assert here.callers[1].wire.values == [1]


def test_a_failed_batch_that_may_not_run_twice_is_not_halved(room: Make) -> None:
    """The model may have done its work for the others: all get the error, and nothing is sent again."""
    here = room(in_flight=1, idempotent=False)
    callers = _batch_of(here, 4)
    callers[0].fail(InferenceError("m", found="bad"))
    here.settle()
    assert [type(caller.error) for caller in callers] == [InferenceError] * 4
    assert len(here.sent) == 5


def test_a_batch_that_surely_did_not_run_is_halved(room: Make) -> None:
    """One that was too large to be sent, for example: each half is tried."""
    here = room(in_flight=1, idempotent=False)
    callers = _batch_of(here, 4)
    callers[0].fail(InvalidInput("m", found="too large", unprocessed=True))
    here.until_sent()
    assert callers[0].wire.values == [0, 1]


def test_at_the_leaders_deadline_what_may_not_run_twice_ends_for_all(room: Make) -> None:
    """Items with a little more time are not sent again either."""
    here = room(in_flight=1, idempotent=False)
    callers = _batch_of(here, 3, timeout_s=10.0)
    callers[2].item.deadline += 5.0
    here.now = callers[0].item.deadline
    callers[0].fail(DeadlineExceeded("m", found="no answer"))
    here.settle()
    assert all(isinstance(caller.error, DeadlineExceeded) for caller in callers)
    assert len(here.sent) == 4
