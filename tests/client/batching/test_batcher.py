"""The batcher's choices: the items of a request, its sender, and the receivers of an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tritonkit.errors import DeadlineExceeded, InferenceError, InvalidInput, Overloaded, ServerUnavailable

Make = Callable[..., Any]


def test_a_lone_caller_sends_at_once(room: Make) -> None:
    """Its first step is the request, call after call; nothing was waited."""
    here = room(min_wait_ms=5)
    for value in range(20):
        caller = here.call(value)
        assert caller.wire.values == [value]
        caller.answer()
        assert caller.result.outputs["x"][0, 0] == value
        assert (caller.result.waited_s, caller.result.batch_size) == (0.0, 1)


def test_who_calls_alone_after_a_crowd_soon_waits_no_more(room: Make) -> None:
    """One call may wait a moment for the crowd that left; then every call is sent immediately."""
    here = room(in_flight=1)
    callers = _batch_of(here, 30)
    callers[0].answer()
    here.settle()
    waited = []
    for value in range(10):
        alone = here.call(value)
        while not here.senders():
            here.now += alone.item.seconds + 1e-6
            alone.look()
        here.now += 0.003
        alone.answer()
        waited.append(alone.result.waited_s)
    assert sum(wait > 0 for wait in waited) <= 1
    assert max(waited) < 0.01


def test_who_comes_while_a_batch_flies_goes_with_the_next(room: Make) -> None:
    """One in flight: the others share the next request, and each gets its own value."""
    here = room(in_flight=1)
    first = here.call(0)
    others = [here.call(value) for value in range(1, 6)]
    assert here.senders() == [first]
    here.now += 0.003
    first.answer()
    here.until_sent()
    assert others[0].wire.values == [1, 2, 3, 4, 5]
    here.now += 0.003
    others[0].answer()
    here.settle()
    assert [caller.result.outputs["x"][0, 0] for caller in others] == [1, 2, 3, 4, 5]
    assert {caller.result.batch_size for caller in others} == {5}
    assert others[0].result.waited_s > others[4].result.waited_s >= 0.003


@pytest.mark.parametrize(("max_batch", "max_batch_size"), [(4, 64), (64, 4)])
def test_a_batch_is_never_larger_than_allowed(room: Make, max_batch: int, max_batch_size: int) -> None:
    """The setting and the model's own limit hold, whichever is less."""
    here = room(max_batch_size, max_batch=max_batch, in_flight=1)
    here.call(0)
    for value in range(1, 10):
        here.call(value)
    sizes = []
    while senders := here.senders():
        sizes.append(len(senders[0].wire.items))
        here.now += 0.003
        senders[0].answer()
        if not all(caller.done for caller in here.callers):
            here.until_sent()
    assert sizes == [1, 4, 4, 1]
    assert all(caller.result for caller in here.callers)


def test_no_more_batches_fly_than_allowed(room: Make) -> None:
    """With three in flight the fourth batch waits for one to come back."""
    here = room(max_batch=1, in_flight=3)
    callers = [here.call(value) for value in range(5)]
    here.settle()
    assert len(here.senders()) == 3
    callers[1].answer()
    here.settle()
    assert len(here.senders()) == 3
    assert callers[3].wire.values == [3]


def test_the_rest_of_a_long_queue_leaves_beside_the_first_batch(room: Make) -> None:
    """A landing frees one place; a batch that takes it wakes the next leader for the other."""
    here = room(max_batch=2, in_flight=2)
    callers = [here.call(value) for value in range(7)]
    callers[0].answer()
    callers[1].answer()
    here.settle()
    assert [sender.wire.values for sender in here.senders()] == [[2, 3], [4, 5]]


def test_the_leader_is_woken_when_the_batch_is_complete(room: Make) -> None:
    """Four were there before: the fifth to come ends the wait, not the clock."""
    here = room(in_flight=1, max_wait_ms=1000)
    callers = _batch_of(here, 4)
    here.now += 0.2
    callers[0].answer()
    here.settle()
    again = [here.call(value) for value in range(5)]
    assert not here.senders()
    here.settle()
    assert again[0].wire.values == [0, 1, 2, 3, 4]


def test_the_request_gets_the_leaders_deadline(room: Make) -> None:
    """The leader never outstays its own time."""
    here = room()
    caller = here.call(0, timeout_s=2.0)
    assert caller.wire.deadline == caller.item.deadline


def test_who_has_the_most_time_sends(room: Make) -> None:
    """A leader in a hurry lets another send, so that its deadline does not end their request."""
    here = room(in_flight=1)
    first = here.call(0)
    hurried = here.call(1, timeout_s=0.5)
    patient = here.call(2, timeout_s=20.0)
    first.answer()
    here.until_sent()
    assert patient.wire.values == [2, 1]
    assert patient.wire.deadline == patient.item.deadline
    here.now += 0.5
    hurried.look()
    assert isinstance(hurried.error, DeadlineExceeded)
    assert "under way" in str(hurried.error)
    patient.answer()
    assert patient.result.outputs["x"][0, 0] == 2


def _batch_of(here: Any, count: int, timeout_s: float = 30.0, in_flight: int = 1) -> list[Any]:
    """`count` callers, the first of which is sending for all."""
    first = [here.call(-1) for _ in range(in_flight)]
    callers = [here.call(value, timeout_s) for value in range(count)]
    for caller in first:
        caller.answer()
    here.until_sent()
    assert callers[0].wire.values == list(range(count))
    return callers


@pytest.mark.parametrize("gone", [asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit(), SystemExit()])
def test_a_leader_that_is_stopped_harms_nobody(room: Make, gone: BaseException) -> None:
    """The others are sent again by the next of them; the leader's error is its own."""
    here = room(in_flight=1)
    leader, second, *others = _batch_of(here, 5)
    leader.fail(gone)
    assert leader.error is gone
    here.until_sent()
    assert second.wire.values == [1, 2, 3, 4]
    second.answer()
    here.settle()
    assert [caller.result.outputs["x"][0, 0] for caller in others] == [2, 3, 4]


def test_a_waiting_caller_that_is_cancelled_is_left_out(room: Make) -> None:
    """In the queue it is not sent at all, and if it was to lead, the next one does."""
    here = room(in_flight=1)
    first, second, third, fourth = (here.call(value) for value in range(4))
    second.fail(asyncio.CancelledError())
    first.answer()
    here.until_sent()
    assert third.wire.values == [2, 3]
    fourth.fail(asyncio.CancelledError())  # it is under way
    third.answer()
    assert third.result.batch_size == 2


def test_a_caller_leaves_at_its_deadline(room: Make) -> None:
    """One that was never sent says that it waited to be."""
    here = room(in_flight=1)
    first = here.call(0)
    late = here.call(1, timeout_s=0.5)
    assert late.item.seconds == pytest.approx(0.5)
    here.now += 0.5
    late.look()
    assert isinstance(late.error, DeadlineExceeded)
    assert "waiting to be sent" in str(late.error)
    first.answer()
    here.settle()
    assert not here.senders()


def test_a_wait_leaves_time_for_the_request(room: Make) -> None:
    """With 4 ms left and requests of 3 ms, a batch stays open for 1 ms at most."""
    here = room(in_flight=1, max_wait_ms=100, min_wait_ms=50)
    callers = [here.call(value) for value in range(4)]
    here.now += 0.003
    callers[0].answer()
    here.until_sent()
    here.now += 0.003
    callers[1].answer()
    here.settle()
    hurried = here.call(9, timeout_s=0.004)
    assert hurried.step is hurried.item
    assert 0 < hurried.item.seconds <= 0.001


def test_when_the_leaders_time_is_up_those_with_more_are_sent_again(room: Make) -> None:
    """A caller with almost no time left gets its error immediately; one with time is not affected."""
    here = room(in_flight=1)
    callers = _batch_of(here, 3, timeout_s=10.0)
    callers[2].item.deadline += 5.0
    here.now = callers[0].item.deadline
    callers[0].fail(DeadlineExceeded("m", found="no answer"))
    here.settle()
    assert isinstance(callers[0].error, DeadlineExceeded)
    assert isinstance(callers[1].error, DeadlineExceeded)
    assert callers[1].error is not callers[0].error
    assert here.senders() or callers[2].item.seconds < 1  # it was woken
    here.until_sent()
    assert callers[2].wire.values == [2]


@pytest.mark.parametrize("kind", [Overloaded, ServerUnavailable, DeadlineExceeded, ValueError])
def test_an_error_of_the_server_goes_to_everybody(room: Make, kind: type[Exception]) -> None:
    """It is nobody's item: nothing is sent again, each gets an error object of its own."""
    here = room(in_flight=1)
    callers = _batch_of(here, 4)
    error = kind("bad") if kind is ValueError else kind("m", found="bad")  # type: ignore[call-arg]
    callers[0].fail(error)
    here.settle()
    assert [type(caller.error) for caller in callers] == [kind] * 4
    assert len({id(caller.error) for caller in callers}) == 4
    assert len({str(caller.error) for caller in callers}) == 1


@pytest.mark.parametrize("kind", [InferenceError, InvalidInput])
@pytest.mark.parametrize("bad", [{0.0}, {6.0}, {2.0, 5.0}, set(map(float, range(8)))])
def test_an_error_goes_to_the_item_that_caused_it(room: Make, bad: set[float], kind: type[InferenceError]) -> None:
    """The batch is halved until the bad ones are alone; everybody else gets an answer."""
    here = room(in_flight=2)
    callers = _batch_of(here, 8, in_flight=2)
    requests = 0
    while senders := here.senders():
        assert len(senders) <= 2
        here.now += 0.001
        requests += 1
        sender = senders[0]
        rejected = bad & set(sender.wire.values)
        if rejected:
            sender.fail(kind("m", found=f"bad {sorted(rejected)}"))
        else:
            sender.answer()
        here.settle()
    for value, caller in enumerate(callers):
        if value in bad:
            assert isinstance(caller.error, kind)
            assert caller.error.found == f"bad [{float(value)}]"
        else:
            assert caller.result.outputs["x"][0, 0] == value
    assert requests <= 2 * 8 - 1
    if len(bad) == 1:
        assert requests == 7  # the batch, then two halves of 8, 4 and 2


def test_halves_whose_sender_is_stopped_are_sent_by_another(room: Make) -> None:
    """A caller that was to send half of a failed batch and is cancelled hands it on."""
    here = room(in_flight=1)
    callers = _batch_of(here, 4)
    callers[0].fail(InferenceError("m", found="bad"))
    here.settle()
    assert callers[0].wire.values == [0, 1]
    callers[2].fail(asyncio.CancelledError())  # it waits to send [2, 3]
    callers[0].answer()
    here.until_sent()
    assert callers[3].wire.values == [3]


def test_halves_go_before_newcomers_and_without_those_who_left(room: Make) -> None:
    """The half that waits for its place has it next, and a cancelled caller is not in it."""
    here = room(in_flight=1)
    callers = _batch_of(here, 4)
    callers[0].fail(InferenceError("m", found="bad"))
    here.settle()
    newcomer = here.call(9)
    callers[3].fail(asyncio.CancelledError())
    callers[0].answer()
    newcomer.look()
    assert not here.senders()
    here.settle()
    assert [sender.wire.values for sender in here.senders()] == [[2]]


def test_results_that_do_not_match_the_items_are_an_error(room: Make) -> None:
    """Fewer outcomes than items: nobody gets somebody else's."""
    here = room()
    caller = here.call(0)
    caller._advance(lambda: caller._steps.send([]))
    assert isinstance(caller.error, InferenceError)
    assert "0 items" in caller.error.found


def test_a_result_that_is_an_error_is_raised_for_its_item(room: Make) -> None:
    """The sender may give single items errors."""
    here = room()
    caller = here.call(0)
    error = InvalidInput("m", found="bad")
    caller._advance(lambda: caller._steps.send([error]))
    assert caller.error is error


def test_who_comes_without_time_is_told_so(room: Make) -> None:
    """Its time was over before it could queue up: nothing is said of an answer within 0 s."""
    here = room()
    late = here.call(0, timeout_s=-0.001)
    assert isinstance(late.error, DeadlineExceeded)
    assert late.error.found == "nothing left of the time allowed before the request was sent"
    assert not here.left()
