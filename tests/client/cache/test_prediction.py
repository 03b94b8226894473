"""A client's view of its cache, in one process: hits, one call for many, versions, errors."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from tritonkit.client.cache import Entry, PredictionCache, prediction
from tritonkit.client.steps import run_async, run_blocking
from tritonkit.errors import DeadlineExceeded, InferenceError, InvalidInput, Overloaded, ServerUnavailable

if TYPE_CHECKING:
    from tests.client.cache.conftest import Clock, Maker

MakeCache = Callable[..., PredictionCache]


class Hold(NamedTuple):
    """A step that lasts until a test lets it go; says when it has begun."""

    begun: threading.Event
    go: threading.Event

    def block(self) -> None:
        """Wait in this thread."""
        self.begun.set()
        assert self.go.wait(20)

    async def wait(self) -> None:
        """Wait in this task."""
        self.begun.set()
        while not self.go.is_set():
            await asyncio.sleep(0.001)


class Pass(NamedTuple):
    """A step that is done immediately, after others had their turn."""

    def block(self) -> None:
        """Nothing."""

    async def wait(self) -> None:
        """Nothing."""
        await asyncio.sleep(0)


def hold() -> Hold:
    """A step to let go."""
    return Hold(threading.Event(), threading.Event())


def key(cache: PredictionCache, number: float = 0.0, version: str = "") -> bytes:
    """The key of a call with one number."""
    return cache.key(version, [b"digits", np.float32(number).tobytes()])


def fetch(cache: PredictionCache, maker: Any, **more: Any) -> tuple[Entry, str]:
    """One call in this thread."""
    number, version = more.pop("number", 0.0), more.pop("version", "")
    return run_blocking(cache.fetch(key(cache, number, version), maker, **more))


class Caller(threading.Thread):
    """A thread that makes one call, and keeps what came of it."""

    def __init__(self, cache: PredictionCache, maker: Any, **more: Any) -> None:
        super().__init__(daemon=True)
        self._what = (cache, maker, more)
        self.got: tuple[Entry, str] | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Call."""
        cache, maker, more = self._what
        try:
            self.got = fetch(cache, maker, **more)
        except BaseException as error:
            self.error = error


def wait_for_followers(callers: int) -> None:
    """Give threads the time to reach the flight; being late would only make them lead or hit."""
    threading.Event().wait(0.02 * callers)


def test_an_answer_is_made_once(make_cache: MakeCache, maker: Maker) -> None:
    """The second call with the same inputs is answered from memory, with the same values."""
    cache = make_cache()
    first, from_server = fetch(cache, maker)
    second, from_memory = fetch(cache, maker)
    assert (from_server, from_memory, maker.calls) == ("server", "l1", 1)
    assert (second.model, second.version, list(second.outputs)) == ("digits", "1", ["label", "score"])
    assert second.outputs["score"].tolist() == first.outputs["score"].tolist() == [[1.5] * 3]
    assert second.outputs["label"].tolist() == [[b"one", b""]]
    assert fetch(cache, maker, number=1.0)[1] == "server"


def test_peek_makes_nothing(make_cache: MakeCache, maker: Maker) -> None:
    """`peek` gives what is kept here, or None."""
    cache = make_cache()
    assert cache.peek(key(cache)) is None
    fetch(cache, maker)
    kept = cache.peek(key(cache))
    assert kept is not None
    assert kept.version == "1"


def test_callers_cannot_change_what_is_kept(make_cache: MakeCache, maker: Maker) -> None:
    """Arrays are read-only, also for the caller who made the call; the dictionary is each caller's own."""
    cache = make_cache()
    for _ in range(3):
        kept, _ = fetch(cache, maker)
        for array in kept.outputs.values():
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
        kept.outputs.clear()  # type: ignore[attr-defined]
    assert len(fetch(cache, maker)[0].outputs) == 2


def test_an_answer_gets_too_old(make_cache: MakeCache, maker: Maker, clock: Clock) -> None:
    """After `ttl_s` the server is asked again."""
    cache = make_cache(ttl_s=2)
    fetch(cache, maker)
    clock.turn(1.9)
    assert fetch(cache, maker)[1] == "l1"
    clock.turn(0.2)
    assert fetch(cache, maker)[1] == "server"


@pytest.mark.parametrize(
    "error",
    [
        InferenceError("model digits", found="no"),
        Overloaded("model digits", found="full"),
        ServerUnavailable("a:1", found="gone"),
        DeadlineExceeded("model digits", found="late"),
        InvalidInput("model digits", found="wrong"),
        KeyboardInterrupt(),
        ZeroDivisionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_not_kept(make_cache: MakeCache, maker: Maker, error: BaseException) -> None:
    """An error reaches the caller unchanged; the next one calls again."""
    cache = make_cache()
    maker.error = error
    with pytest.raises(type(error)) as caught:
        fetch(cache, maker)
    assert caught.value is error
    maker.error = None
    assert fetch(cache, maker)[1] == "server"
    assert maker.calls == 2


def test_threads_with_the_same_inputs_share_one_call(make_cache: MakeCache, maker: Maker) -> None:
    """Sixteen concurrent threads cost one call, and each gets the answer."""
    cache, step = make_cache(), hold()
    maker.steps = [step]
    leader = Caller(cache, maker)
    assert step.begun.wait(20)
    followers = [Caller(cache, maker) for _ in range(15)]
    wait_for_followers(5)
    step.go.set()
    for caller in (leader, *followers):
        caller.join(20)
        assert caller.got is not None, caller.error
        assert caller.got[0].outputs["score"].tolist() == [[1.5] * 3]
    assert maker.calls == 1


def test_other_inputs_do_not_wait(make_cache: MakeCache, maker: Maker) -> None:
    """A call with other inputs is made while the first is under way."""
    cache, step = make_cache(), hold()
    maker.steps = [step]
    leader = Caller(cache, maker)
    assert step.begun.wait(20)
    maker.steps = []
    assert fetch(cache, maker, number=2.0)[1] == "server"
    step.go.set()
    leader.join(20)


def test_followers_get_the_error_each_as_their_own(make_cache: MakeCache, maker: Maker) -> None:
    """All who waited for a call that failed get its error, not the same object twice."""
    cache, step = make_cache(), hold()
    maker.steps, maker.error = [step], InferenceError("model digits", found="no", todo="wait")
    leader = Caller(cache, maker)
    assert step.begun.wait(20)
    followers = [Caller(cache, maker) for _ in range(4)]
    wait_for_followers(4)
    step.go.set()
    errors = []
    for caller in (leader, *followers):
        caller.join(20)
        errors.append(caller.error)
    assert {type(error) for error in errors} == {InferenceError}
    assert {str(error) for error in errors} == {str(maker.error)}
    copies = {id(error) for error in errors if error is not maker.error}
    assert len(copies) == 5 - maker.calls  # who came too late to follow made the call too


@pytest.mark.parametrize(
    "error",
    [DeadlineExceeded("model digits", found="late"), KeyboardInterrupt(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
def test_who_followed_a_call_that_was_given_up_is_answered(
    make_cache: MakeCache, maker: Maker, error: BaseException
) -> None:
    """A leader out of time or stopped fails alone: one of the others makes the call for the rest."""
    cache, step = make_cache(), hold()
    first = type(maker)()
    first.steps, first.error = [step], error
    leader = Caller(cache, first)
    assert step.begun.wait(20)
    followers = [Caller(cache, maker) for _ in range(6)]
    wait_for_followers(6)
    step.go.set()
    leader.join(20)
    assert leader.error is error
    for caller in followers:
        caller.join(20)
        assert caller.got is not None, caller.error
    assert maker.calls == 1


def gives_up() -> Any:
    """A call that runs out of its caller's time."""
    yield Pass()
    raise DeadlineExceeded("model digits", found="late")


def on(steps: Any, outcome: Any) -> Iterator[Any]:
    """The next step after `outcome`, if there is one."""
    with suppress(StopIteration):
        yield steps.send(outcome)


def test_who_meets_two_given_up_calls_makes_its_own(make_cache: MakeCache, maker: Maker) -> None:
    """After following twice without success, a caller makes the call although a third is under way."""
    cache = make_cache()
    leaders = [cache.fetch(key(cache), gives_up) for _ in range(3)]
    follower = cache.fetch(key(cache), maker)
    next(leaders[0])
    step = next(follower)
    for done, following in pairwise(leaders):
        assert maker.calls == 0
        with pytest.raises(DeadlineExceeded):
            done.send(None)
        outcome = step.block()
        next(following)  # leads before the follower goes on
        step = next(on(follower, outcome), step)
    assert maker.calls == 1
    leaders[2].close()


def test_an_answer_made_alone_is_its_callers_own(make_cache: MakeCache, maker: Maker) -> None:
    """A caller that makes the call alone, after following twice without success, may empty its dictionary too."""
    cache = make_cache()
    leaders = [cache.fetch(key(cache), gives_up) for _ in range(2)]
    follower = cache.fetch(key(cache), maker)
    next(leaders[0])
    step = next(follower)
    with pytest.raises(DeadlineExceeded):
        leaders[0].send(None)
    next(leaders[1])
    step = follower.send(step.block())
    with pytest.raises(DeadlineExceeded):
        leaders[1].send(None)
    with pytest.raises(StopIteration) as ended:
        follower.send(step.block())
    ended.value.value[0].outputs.clear()
    assert len(fetch(cache, maker)[0].outputs) == 2
    assert maker.calls == 1


def test_a_follower_waits_no_longer_than_its_deadline(make_cache: MakeCache, maker: Maker, clock: Clock) -> None:
    """Its own deadline ends the wait, and neither the leader nor the flight is harmed."""
    cache, step = make_cache(), hold()
    maker.steps = [step]
    leader = Caller(cache, maker)
    assert step.begun.wait(20)
    with pytest.raises(DeadlineExceeded, match="model digits"):
        fetch(cache, maker, deadline=clock() + 0.02, where="model digits")
    step.go.set()
    leader.join(20)
    assert leader.got is not None
    assert fetch(cache, maker)[1] == "l1"


def test_a_call_thrown_away_half_way_lets_others_go_on(make_cache: MakeCache, maker: Maker) -> None:
    """A generator that is never finished ends its flight when it is closed or collected."""
    cache = make_cache()
    maker.steps = [Pass()]
    steps = cache.fetch(key(cache), maker)
    next(steps)
    del steps
    gc.collect()
    assert fetch(cache, maker)[1] == "server"


def test_an_interrupt_anywhere_lets_others_go_on(make_cache: MakeCache, maker: Maker) -> None:
    """Ctrl-C at any line of a call leaves no flight that the next caller would wait for."""
    cache = make_cache(l1=1)
    at = 0

    def interrupt(frame: Any, event: str, _: Any) -> Any:
        nonlocal at
        if frame.f_code.co_filename == prediction.__file__:
            if event == "line":
                at -= 1
                if at == 0:
                    raise KeyboardInterrupt
            return interrupt
        return None

    for line in range(1, 200):
        at = line
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            fetch(cache, maker, number=float(line))
        except KeyboardInterrupt:
            pass
        else:
            assert line > 20, "interrupted nothing"
            return
        finally:
            sys.settrace(before)
        assert len(cache._flights) == 0, f"line {line}"
    raise AssertionError("a call of more lines than that?")


def test_tasks_with_the_same_inputs_share_one_call(make_cache: MakeCache, maker: Maker) -> None:
    """A hundred concurrent tasks cost one call."""
    cache = make_cache()
    maker.steps = [Pass()] * 5

    async def main() -> list[tuple[Entry, str]]:
        calls = (run_async(cache.fetch(key(cache), maker)) for _ in range(100))
        return await asyncio.gather(*calls)

    answers = asyncio.run(main())
    assert maker.calls == 1
    assert {origin for _, origin in answers} == {"server"}


def test_a_cancelled_leader_leaves_the_others_an_answer(make_cache: MakeCache, maker: Maker) -> None:
    """Cancelling the task that makes the call lets another make it."""
    cache, step = make_cache(), hold()
    maker.steps = [step]

    async def main() -> None:
        leader = asyncio.create_task(run_async(cache.fetch(key(cache), maker)))
        await asyncio.sleep(0)
        maker.steps = []
        followers = [asyncio.create_task(run_async(cache.fetch(key(cache), maker))) for _ in range(5)]
        await asyncio.sleep(0.01)
        leader.cancel()
        answers = await asyncio.gather(*followers)
        assert {origin for _, origin in answers} <= {"server", "l1"}
        with pytest.raises(asyncio.CancelledError):
            await leader

    asyncio.run(main())
    assert maker.calls == 2


def test_a_cancelled_follower_harms_nobody(make_cache: MakeCache, maker: Maker) -> None:
    """Cancelling one who waits leaves the call and the others who wait."""
    cache, step = make_cache(), hold()
    maker.steps = [step]

    async def main() -> None:
        tasks = [asyncio.create_task(run_async(cache.fetch(key(cache), maker))) for _ in range(5)]
        await asyncio.sleep(0.01)
        tasks[3].cancel()
        await asyncio.sleep(0.01)
        step.go.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, tuple) for answer in answers] == [True, True, True, False, True]

    asyncio.run(main())
    assert maker.calls == 1


def test_a_task_waits_no_longer_than_its_deadline(make_cache: MakeCache, maker: Maker, clock: Clock) -> None:
    """A task's own deadline ends its wait for another's call."""
    cache, step = make_cache(), hold()
    maker.steps = [step]

    async def main() -> None:
        leader = asyncio.create_task(run_async(cache.fetch(key(cache), maker)))
        await asyncio.sleep(0)
        with pytest.raises(DeadlineExceeded):
            await run_async(cache.fetch(key(cache), maker, deadline=clock() + 0.02))
        step.go.set()
        assert (await leader)[1] == "server"

    asyncio.run(main())


def test_another_version_outdates_what_was_kept(make_cache: MakeCache, maker: Maker) -> None:
    """Once any reply shows another version, no answer of the old one is used where none was named."""
    cache = make_cache()
    fetch(cache, maker)
    fetch(cache, maker, number=1.0)
    maker.version, maker.value = "2", 2.5
    fetch(cache, maker, number=2.0)
    for number in (0.0, 1.0):
        kept, origin = fetch(cache, maker, number=number)
        assert (origin, kept.version) == ("server", "2")
        assert fetch(cache, maker, number=number)[1] == "l1"


def test_a_version_seen_outside_of_the_cache_counts(make_cache: MakeCache, maker: Maker) -> None:
    """`saw` tells of replies that were not fetched through the cache; other models stay."""
    cache = make_cache()
    fetch(cache, maker)
    cache.saw("other", "9")
    assert fetch(cache, maker)[1] == "l1"
    cache.saw("digits", "2")
    assert cache.peek(key(cache)) is None
    maker.version = "2"
    assert fetch(cache, maker)[1] == "server"
    assert fetch(cache, maker)[1] == "l1"


def test_a_rollback_uses_the_older_versions_answers(make_cache: MakeCache, maker: Maker) -> None:
    """Back at the first version, its answers that are not too old are right again."""
    cache = make_cache()
    fetch(cache, maker)
    cache.saw("digits", "2")
    cache.saw("digits", "1")
    assert fetch(cache, maker)[1] == "l1"


def test_a_named_version_stays(make_cache: MakeCache, maker: Maker) -> None:
    """Answers of a named version are used whatever the server chooses for others, and change nothing there."""
    cache = make_cache()
    fetch(cache, maker, version="1")
    maker.version = "2"
    fetch(cache, maker)
    assert fetch(cache, maker, version="1")[1] == "l1"
    maker.version = "1"
    fetch(cache, maker, version="1", number=3.0)
    assert fetch(cache, maker)[1] == "l1"


def test_threads_and_tasks_under_load(make_cache: MakeCache) -> None:
    """Threads that ask for few keys, with errors between, always get their own key's answer."""
    cache = make_cache(l1=5)
    wrong: list[Any] = []

    def call(number: int) -> Any:
        yield Pass()
        if number % 7 == 0:
            raise InferenceError("m", found="no")
        return Entry("digits", "1", {"y": np.array([number])})

    def work(first: int) -> None:
        for at in range(300):
            number = (first + at) % 20
            try:
                the_key = key(cache, float(number))
                kept, _ = run_blocking(cache.fetch(the_key, lambda n=number: call(n)))
            except InferenceError:
                if number % 7:
                    wrong.append(number)
            else:
                if kept.outputs["y"].tolist() != [number]:
                    wrong.append((number, kept))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(cache._flights) == 0
