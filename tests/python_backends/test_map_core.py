"""Items of requests in calls of another model: which calls are made, and what the requests get."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from map_core import MOST_CALLS, Call, Form, Runner, Settings, Work, calls_of
from step_support import Arrays, Passed

from tests.waiting import eventually

SETTINGS = Settings("callee", ("x",), callee_batch_size=4, count="count")
FORMS = {"y": Form(np.float32, (-1, 2))}


def work(rows: Sequence[int], items: int = 5, settings: Settings = SETTINGS, first: int = 0, **more: object) -> Work:
    """A request with these numbers of items in its rows, numbered from `first` on; -1 where none counts."""
    x = np.full((len(rows), items, 1), -1.0, np.float32)
    for row, count in enumerate(rows):
        x[row, :count, 0] = np.arange(first, first := first + count)
    counts = np.int32(rows)[:, None]
    return Work({"x": x, "count": counts}, settings, **more)  # type: ignore[arg-type]


def double(inputs: Arrays, timeout: int) -> Arrays:
    """The callee: x and twice x."""
    return {"y": np.concatenate([inputs["x"], 2 * inputs["x"]], axis=1)}


@pytest.fixture
def runner() -> Iterator[Callable[..., Runner]]:
    """Makes runners, which end with the test."""
    made: list[Runner] = []

    def make(ask: Callable[[Arrays, int], Arrays] = double, settings: Settings = SETTINGS, **forms: Form) -> Runner:
        made.append(Runner(settings, forms or FORMS, ask))
        return made[-1]

    yield make
    for one in made:
        one.close()


def numbers(call: Call) -> list[int]:
    """The items of a call by their numbers."""
    return [int(value) for value in call.inputs()["x"].ravel()]


def test_items_of_several_requests_share_calls() -> None:
    """A request is split only where it has more items than a call takes; nothing that does not count is called."""
    works = [work([3]), work([1], first=3), work([0, 0]), work([2, 3, 5], first=4), work([1], first=14)]
    calls = calls_of(works, 4)
    assert [numbers(call) for call in calls] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14]]


def test_items_of_other_shapes_have_calls_of_their_own() -> None:
    """Arrays of a call are rectangular."""
    wide = [Work({"x": np.zeros((1, 1, size))}, replace(SETTINGS, count="")) for size in (2, 3, 2)]
    assert [len(call) for call in calls_of(wide, 4)] == [2, 1]


@pytest.mark.parametrize(("timeouts", "longest"), [((5, 7, 6), 7), ((0, 7, 0), 0), ((0, 0, 0), 0)])
def test_requests_with_deadlines_of_their_own_share_calls(timeouts: tuple[int, ...], longest: int) -> None:
    """The call has the longest of their timeouts, and none where one has none: the others have more time than they
    need."""
    [call] = calls_of([work([1], timeout=timeout) for timeout in timeouts], 4)
    assert len(call) == 3
    assert call.timeout == longest


@pytest.mark.parametrize("size", [0, 1, 3, 64])
def test_each_request_gets_the_answers_to_its_items(runner: Callable[..., Runner], size: int) -> None:
    """Rows have different numbers of items; those that do not count are zeros, whatever the size of the calls."""
    settings = replace(SETTINGS, callee_batch_size=size)
    rows = [[5], [0], [2, 0, 5], [1]]
    works = [work(row, settings=settings, first=10 * number) for number, row in enumerate(rows)]

    def ask(inputs: Arrays, timeout: int) -> Arrays:
        assert inputs["x"].ndim == 2 if size else inputs["x"].shape == (1,)
        doubled = double({"x": inputs["x"].reshape(-1, 1)}, timeout)
        return doubled if size else {"y": doubled["y"][0]}

    for number, (row, answer) in enumerate(zip(rows, runner(ask, settings).run(works), strict=True)):
        assert isinstance(answer, dict)
        assert answer["y"].shape == (len(row), 5, 2)
        assert answer["y"].dtype == np.float32
        start = 10 * number
        for count, given in zip(row, answer["y"], strict=True):
            items = np.arange(start, start + count)
            np.testing.assert_array_equal(given[:count], np.stack([items, 2 * items], axis=1))
            assert not given[count:].any()
            start += count


def test_without_counts_all_items_count(runner: Callable[..., Runner]) -> None:
    """A request without an axis of items, of length 0, gives outputs of length 0."""
    settings = replace(SETTINGS, count="")
    works = [Work({"x": np.ones((2, items, 1), np.float32)}, settings) for items in (3, 0)]
    three, none = runner(settings=settings).run(works)
    assert three["y"].tolist() == [[[1, 2]] * 3] * 2
    assert none["y"].shape == (2, 0, 2)


def test_texts_have_no_axis_of_their_own(runner: Callable[..., Runner]) -> None:
    """A callee's [1] is one value of each item; texts that do not count are empty."""
    settings = replace(SETTINGS, over=("text",), one_value=("upper",))
    text = np.array([[b"a", b"b", b""], [b"c", b"", b""]], object)
    request = Work({"text": text, "count": np.int32([[2], [1]])}, settings)

    def ask(inputs: Arrays, timeout: int) -> Arrays:
        assert inputs["text"].shape == (3, 1)
        return {"upper": np.array([[value.upper()] for value in inputs["text"][:, 0]], object)}

    [answer] = runner(ask, settings, upper=Form(np.object_, (-1,))).run([request])
    assert answer["upper"].tolist() == [[b"A", b"B", b""], [b"C", b"", b""]]


def test_inputs_that_are_not_mapped_are_the_same_for_all_items_of_a_row(runner: Callable[..., Runner]) -> None:
    """Each item gets that of its row."""
    settings = replace(SETTINGS, count="", callee_batch_size=3)
    request = Work({"x": np.zeros((2, 2, 1), np.float32), "scale": np.float32([[7], [8]])}, settings)
    seen = []

    def ask(inputs: Arrays, timeout: int) -> Arrays:
        seen.extend(inputs["scale"].ravel().tolist())
        return double(inputs, timeout)

    runner(ask, settings).run([request])
    assert sorted(seen) == [7, 7, 8, 8]


def test_outputs_of_different_lengths_are_filled_up(runner: Callable[..., Runner]) -> None:
    """Calls may give free axes other lengths; the longest of the request holds for all of its items."""
    settings = replace(SETTINGS, callee_batch_size=1)

    def ask(inputs: Arrays, timeout: int) -> Arrays:
        number = int(inputs["x"][0, 0])
        return {"y": np.full((1, number, 2 - number % 2), number)}

    [answer] = runner(ask, settings, y=Form(np.int64, (-1, -1, -1))).run([work([4])])
    assert answer["y"].shape == (1, 5, 3, 2)
    for number in range(4):
        item = answer["y"][0, number]
        assert (item[:number, : 2 - number % 2] == number).all()
        assert item.sum() == number * number * (2 - number % 2)
    [answer] = runner(ask, settings, y=Form(np.int64, (-1, -1, -1))).run([work([0])])
    assert answer["y"].shape == (1, 5, 0, 0)


def test_an_error_is_that_of_its_request(runner: Callable[..., Runner]) -> None:
    """The others of its call are answered, and the message names the callee and the items."""

    def ask(inputs: Arrays, timeout: int) -> Arrays:
        if (inputs["x"] == 3).any():
            raise Passed("no threes")
        return double(inputs, timeout)

    one, three, four = runner(ask).run([work([2]), work([1], first=3), work([1], first=4)])
    assert one["y"][0, 1].tolist() == [1, 2]
    assert isinstance(three, Passed)
    assert str(three) == "callee, item 0: no threes"
    assert four["y"][0, 0].tolist() == [4, 8]
    [large] = runner(ask).run([work([5], first=-2)])
    assert isinstance(large, dict)
    [large] = runner(ask).run([work([5], first=3)])
    assert str(large) == "callee, items 0 to 3: no threes"


def test_a_fault_of_the_callee_is_an_error(runner: Callable[..., Runner]) -> None:
    """It lacks an output, or gives another number of items than it got."""
    [error] = runner(lambda inputs, timeout: {}).run([work([2])])
    assert str(error) == "callee, items 0 to 1: RuntimeError: it gave no output 'y'"
    [error] = runner(lambda inputs, timeout: {"y": np.zeros((1, 2))}).run([work([2])])
    assert "output 'y' has the shape [1, 2], wanted 2 items" in str(error)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": np.zeros((1, 2, 1)), "count": np.int32([[3]])}, "input 'count', item 0: found 3, and there are 2 items"),
        ({"x": np.zeros((2, 2, 1)), "count": np.int32([[0], [-1]])}, "input 'count', item 1: found -1"),
        ({"x": np.zeros((1, 2, 1)), "z": np.zeros((1, 3)), "count": np.int32([[1]])}, "input 'z' has 3 items"),
        ({"count": np.int32([[1]])}, "input 'x' is missing"),
    ],
)
def test_requests_that_make_no_sense_are_refused(inputs: Arrays, message: str) -> None:
    """The message has the input, and the request's item where there are several."""
    with pytest.raises(ValueError, match=message):
        Work(inputs, replace(SETTINGS, over=("x", "z")))


@pytest.mark.parametrize(
    "wrong", [{"callee": ""}, {"over": ()}, {"callee_batch_size": -1}, {"max_in_flight": 0}], ids=str
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    """A configuration by hand has errors, too."""
    with pytest.raises(ValueError, match="wanted a callee"):
        replace(SETTINGS, **wrong)


class Gate:
    """A callee that answers once it is opened, and counts the items and calls under way."""

    def __init__(self) -> None:
        self.open, self.lock = threading.Event(), threading.Lock()
        self.items = self.most_items = self.calls = self.most_calls = 0

    def __call__(self, inputs: Arrays, timeout: int) -> Arrays:
        """Wait, and answer."""
        size = len(inputs["x"])
        with self.lock:
            self.items, self.calls = self.items + size, self.calls + 1
            self.most_items, self.most_calls = max(self.most_items, self.items), max(self.most_calls, self.calls)
        self.open.wait()
        with self.lock:
            self.items, self.calls = self.items - size, self.calls - 1
        return double(inputs, timeout)


@contextmanager
def started(gate: Gate, runner: Runner, works: Sequence[Work]) -> Iterator[list[Arrays | Exception]]:
    """A run in a thread of its own, and the list to which its answers come when the gate opens at the end."""
    answers: list[Arrays | Exception] = []
    thread = threading.Thread(target=lambda: answers.extend(runner.run(works)))
    thread.start()
    try:
        yield answers
    finally:
        gate.open.set()
        thread.join()


def test_items_in_flight_are_bounded(runner: Callable[..., Runner]) -> None:
    """No more than max_in_flight are with the callee at a time, and all are answered in the end."""
    gate = Gate()
    with started(gate, runner(gate, replace(SETTINGS, max_in_flight=10)), [work([5]) for _ in range(8)]) as answers:
        eventually(lambda: gate.items == 8, "two calls of four, since three would be too many")
    assert gate.most_items == 8
    assert len(answers) == 8


def test_calls_are_bounded(runner: Callable[..., Runner]) -> None:
    """Triton has threads for no more, whatever the number of items in flight."""
    gate = Gate()
    settings = replace(SETTINGS, callee_batch_size=1, max_in_flight=100)
    with started(gate, runner(gate, settings), [work([5]) for _ in range(8)]) as answers:
        eventually(lambda: gate.calls == MOST_CALLS, "as many calls as there are threads")
    assert gate.most_calls == MOST_CALLS
    assert all(isinstance(answer, dict) for answer in answers)


def test_a_request_whose_caller_has_gone_is_called_no_more(runner: Callable[..., Runner]) -> None:
    """Items that wait for others are not called for a caller who has gone; those with the callee come to their end."""
    gate = Gate()
    settings = replace(SETTINGS, max_in_flight=4)
    gone = work([5], settings=settings, is_cancelled=lambda: True)
    works = [work([4], settings=settings), gone, work([2], settings=settings)]
    with started(gate, runner(gate, settings), works) as answers:
        eventually(lambda: gate.items == 4, "the first call")
    kept, cancelled, later = answers
    assert isinstance(kept, dict)
    assert isinstance(later, dict)
    assert isinstance(cancelled, Passed)
    assert cancelled.code == "CANCELLED"
