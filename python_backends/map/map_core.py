"""Items of requests, put into calls of another model, and the answers joined again. Plain numpy and threads.

A request has tensors with an axis of items behind the batch axis, [rows, items, ...], of which the first `count` of
each row count. Calls take these items with the batch axis in front, [items, ...], out of several requests if they fit.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from step_support import Arrays, Passed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_CALLS = 24
"""Calls under way at a time. Triton's Python backend has 32 threads for the calls and answers of an instance."""


@dataclass(frozen=True)
class Settings:
    """The parameters of a map."""

    callee: str
    """The model that is called."""
    over: tuple[str, ...]
    """Inputs with an axis of items; all others are the same for every item of a row."""
    callee_batch_size: int = 0
    """Most items of a call; 0: the callee has no batch axis, and each item is a call."""
    max_in_flight: int = 64
    """Items in calls at a time."""
    count: str = ""
    """Input with the number of items that count in each row; without it all do."""
    one_value: tuple[str, ...] = ()
    """Outputs that are [1] for the callee and have no axis but that of the items here."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that make no sense."""
        if not self.callee or not self.over or self.callee_batch_size < 0 or self.max_in_flight < 1:
            raise ValueError(f"found {self}, wanted a callee, inputs in over, and sizes above 0")

    @property
    def call_size(self) -> int:
        """Most items of a call."""
        return max(1, min(self.callee_batch_size, self.max_in_flight))


@dataclass(frozen=True)
class Form:
    """An output of the map: its type, and dims behind the batch axis, the first of which is the items'."""

    dtype: Any
    dims: tuple[int, ...]

    def empty(self, rows: int, items: int) -> np.ndarray:
        """The output of a request none of whose items counts; free axes behind that of the items have no length."""
        return zeros((rows, items, *(max(size, 0) for size in self.dims[1:])), self.dtype)


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros, or empty texts."""
    return np.full(shape, b"", object) if np.dtype(dtype) == object else np.zeros(shape, dtype)


class Work:
    """One request: its items by number, and what became of them."""

    def __init__(
        self,
        inputs: Arrays,
        settings: Settings,
        timeout: int = 0,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Find the items that count.

        Raises:
            ValueError: the inputs do not have the same number of items, or counts are beyond it.
        """
        self.inputs = {name: array for name, array in inputs.items() if name != settings.count}
        self.rows, self.items = _sizes(self.inputs, settings)
        self.timeout, self.is_cancelled = timeout, is_cancelled
        counts = np.full(self.rows, self.items)
        if settings.count:
            counts = _counts(inputs[settings.count], self.rows, self.items, settings)
        self._settings = settings
        self._places = np.flatnonzero(np.arange(self.items) < counts[:, None])
        self.error: Exception | None = None
        self._lock = threading.Lock()
        self._outputs: Arrays = {}

    def __len__(self) -> int:
        """The number of items that count."""
        return len(self._places)

    @property
    def form(self) -> tuple[Any, ...]:
        """The shapes that the items of one call share."""
        return tuple((name, *self._item_shape(name)) for name in sorted(self.inputs))

    def take(self, name: str, start: int, stop: int) -> np.ndarray:
        """An input of some of the items, [items, ...]."""
        array, places = self.inputs[name], self._places[start:stop]
        if name not in self._settings.over:
            return array[places // max(1, self.items)]
        flat = array.reshape(self.rows * self.items, *self._item_shape(name))
        if places[-1] - places[0] == len(places) - 1:
            return flat[places[0] : places[-1] + 1]  # a view
        return flat[places]

    def _item_shape(self, name: str) -> tuple[int, ...]:
        array = self.inputs[name]
        if name not in self._settings.over:
            return array.shape[1:]
        return array.shape[2:] or (1,)  # Triton has no tensors without axes

    def put(self, start: int, stop: int, outputs: Arrays) -> None:
        """Keep the answers to some of the items, [items, ...]. Axes that differ from those of other items are filled
        up."""
        places = self._places[start:stop]
        for name, array in outputs.items():
            if array.shape[:1] != (len(places),):
                raise RuntimeError(f"output '{name}' has the shape {list(array.shape)}, wanted {len(places)} items")
            if name in self._settings.one_value:
                array = array.reshape(len(places))
            with self._lock:
                self._keep(name, places, array)

    def _keep(self, name: str, places: np.ndarray, array: np.ndarray) -> None:
        if len(places) == self.rows * self.items:
            self._outputs[name] = array  # all items in one call
            return
        kept = self._outputs.get(name)
        dims = array.shape[1:] if kept is None else tuple(map(max, kept.shape[1:], array.shape[1:]))
        if kept is None or kept.shape[1:] != dims:
            larger = zeros((self.rows * self.items, *dims), array.dtype)
            if kept is not None:
                larger[(slice(None), *map(slice, kept.shape[1:]))] = kept
            self._outputs[name] = kept = larger
        kept[(places, *map(slice, array.shape[1:]))] = array

    def answer(self, forms: Mapping[str, Form]) -> Arrays | Exception:
        """The outputs of the request, [rows, items, ...], or its error."""
        if self.error is not None:
            return self.error
        shape = (self.rows, self.items)
        return {
            name: self._outputs[name].reshape(*shape, *self._outputs[name].shape[1:])
            if name in self._outputs
            else form.empty(*shape)
            for name, form in forms.items()
        }


def _sizes(inputs: Arrays, settings: Settings) -> tuple[int, int]:
    """The numbers of rows and items of a request."""
    sizes = {name: inputs[name].shape[:2] for name in settings.over if name in inputs}
    if not sizes:
        raise ValueError(f"input '{settings.over[0]}' is missing")
    first, size = next(iter(sizes.items()))
    for name, other in sizes.items():
        if other != size:
            raise ValueError(f"input '{name}' has {other[1]} items, and input '{first}' has {size[1]}")
    return int(size[0]), int(size[1])


def _counts(counts: np.ndarray, rows: int, items: int, settings: Settings) -> np.ndarray:
    """How many items count in each row."""
    counts = counts.reshape(rows)
    beyond = (counts < 0) | (counts > items)
    if beyond.any():
        row = int(np.argmax(beyond))
        raise ValueError(f"input '{settings.count}', item {row}: found {counts[row]}, and there are {items} items")
    return counts


@dataclass(frozen=True)
class Part:
    """Some items of a request."""

    work: Work
    start: int
    stop: int

    def __len__(self) -> int:
        """The number of items."""
        return self.stop - self.start

    def __str__(self) -> str:
        """The items in words, numbered as the request has those that count."""
        return f"item {self.start}" if len(self) == 1 else f"items {self.start} to {self.stop - 1}"


@dataclass(frozen=True)
class Call:
    """Items that go to the callee together."""

    parts: list[Part] = field(default_factory=list)

    def __len__(self) -> int:
        """The number of items."""
        return sum(map(len, self.parts))

    @property
    def timeout(self) -> int:
        """The longest timeout of the requests, in microseconds; 0 if one of them has none. Callers measure their
        deadlines to the microsecond, so requests of one timeout alone would hardly ever share a call."""
        timeouts = [part.work.timeout for part in self.parts]
        return max(timeouts) if all(timeouts) else 0

    def inputs(self) -> Arrays:
        """The callee's inputs, [items, ...]."""
        arrays = {
            name: [part.work.take(name, part.start, part.stop) for part in self.parts]
            for name in self.parts[0].work.inputs
        }
        return {name: some[0] if len(some) == 1 else np.concatenate(some) for name, some in arrays.items()}


def calls_of(works: Sequence[Work], size: int) -> list[Call]:
    """All items in calls of at most `size`. A request is split only where it has more, and what is left over shares
    calls; items of different shapes do not."""
    calls: list[Call] = []
    last: dict[tuple[Any, ...], Call] = {}
    for work in works:
        for start in range(0, len(work), size):
            part = Part(work, start, min(start + size, len(work)))
            call = last.get(work.form)
            if len(part) == size:
                calls.append(Call([part]))
            elif call is None or len(call) + len(part) > size:
                last[work.form] = Call([part])
                calls.append(last[work.form])
            else:
                call.parts.append(part)
    return calls


class Budget:
    """The number of items that may be in calls at a time. One thread takes, others give back."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._changed = threading.Condition()

    def take(self, items: int) -> bool:
        """Wait until these items fit; whether that took a wait."""
        with self._changed:
            waited = self._free < items
            self._changed.wait_for(lambda: self._free >= items)
            self._free -= items
        return waited

    def give(self, items: int) -> None:
        """Items whose call has ended."""
        with self._changed:
            self._free += items
            self._changed.notify_all()


class Runner:
    """Calls the callee with the items of requests.

    Args:
        settings: the map's.
        forms: the map's outputs.
        ask: function that calls the callee with inputs and a timeout in microseconds (0: none) and gives its outputs.
            It raises the callee's error.
    """

    def __init__(self, settings: Settings, forms: Mapping[str, Form], ask: Callable[[Arrays, int], Arrays]) -> None:
        self._settings, self._forms, self._ask = settings, forms, ask
        self._budget = Budget(settings.max_in_flight)
        self._pool = ThreadPoolExecutor(MOST_CALLS - 1, thread_name_prefix="call")  # and the thread of `run`

    def run(self, works: Sequence[Work]) -> list[Arrays | Exception]:
        """The outputs of each request, or its error, when all are known."""
        calls = calls_of(works, self._settings.call_size)
        others = []
        for number, call in enumerate(calls, 1):
            if self._budget.take(len(call)):
                _drop_cancelled(call)
            if number < len(calls):
                others.append(self._pool.submit(self._run, call))
            else:
                self._run(call)  # this thread would only wait
        for other in others:
            other.result()
        return [work.answer(self._forms) for work in works]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _run(self, call: Call) -> None:
        try:
            self._answer(call)
        finally:
            self._budget.give(len(call))

    def _answer(self, call: Call) -> None:
        """Call the callee; where that fails for several requests, call it for each alone."""
        call = Call([part for part in call.parts if part.work.error is None])
        if not call.parts:
            return
        try:
            self._put(call, self._called(call))
        except Exception as error:
            if len(call.parts) > 1:
                for part in call.parts:
                    self._answer(Call([part]))
            else:
                words = str(error) if isinstance(error, Passed) else f"{type(error).__name__}: {error}"
                call.parts[0].work.error = Passed(f"{self._settings.callee}, {call.parts[0]}: {words}")

    def _called(self, call: Call) -> Arrays:
        inputs, timeout = call.inputs(), call.timeout
        if self._settings.callee_batch_size:
            return self._ask(inputs, timeout)
        outputs = self._ask({name: array[0] for name, array in inputs.items()}, timeout)
        return {name: array[None] for name, array in outputs.items()}

    def _put(self, call: Call, outputs: Arrays) -> None:
        if missing := sorted(self._forms.keys() - outputs.keys()):
            raise RuntimeError(f"it gave no output '{missing[0]}'")
        start = 0
        for part in call.parts:
            stop = start + len(part)
            part.work.put(part.start, part.stop, {name: outputs[name][start:stop] for name in self._forms})
            start = stop


def _drop_cancelled(call: Call) -> None:
    """Give requests of a call up whose callers have gone meanwhile."""
    for part in call.parts:
        if part.work.error is None and part.work.is_cancelled():
            part.work.error = Passed("the request was cancelled", "CANCELLED")
