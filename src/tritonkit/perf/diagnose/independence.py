"""The check that a served model answers an item the same whatever it is batched with, which batching takes for granted.

Items of a caller's choice go alone, together, in another order, with one of them replaced, and from many callers, whose
requests the server's own batcher may join. Every answer must be the one that the item has alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tritonkit.client.batching.closeness import Difference, difference
from tritonkit.errors import InferenceError, InvalidInput, Overloaded, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client import Client, ModelSignature

__all__ = ["BatchingCheck", "Coupling", "check_batching"]

_MOST_ITEMS = 16
_CALLERS = 16
_REQUESTS = 256
_SEED = 0

Arrays: TypeAlias = Mapping[str, "NDArray[Any]"]
Verdict: TypeAlias = Literal["independent", "coupled", "not-repeatable", "batches-refused"]

_CHANGE = {
    "independent": "",
    "coupled": "the batch axis is not the first one, or the network computes over it. In config.pbtxt: max_batch_size:"
    " 0 and no dynamic_batching. To batch it, export it with the batch first (batch_first=True, or a transpose)",
    "not-repeatable": "the same item alone has several answers (sampling, a random seed, a state, or requests of others"
    " that the server joined with it): nothing can be said of batches. Check it repeatable, and on a quiet server",
    "batches-refused": "the model does not take several items in one request: max_batch_size: 0, or an export whose"
    " first axis is free",
}


@dataclass(frozen=True, slots=True)
class Coupling:
    """An item whose answer differs from its answer alone.

    Args:
        arrangement: the way in which it was sent.
        item: its place among the items given, from 0.
        output: the name of the output that differs.
        difference: the largest difference; None where the values are not floating-point numbers, or the shapes differ.
        largest: the largest magnitude of that output for the item alone.
        differing: the number of answers that differ in this arrangement, of `compared`.
    """

    arrangement: str
    item: int
    output: str
    difference: float | None
    largest: float | None
    differing: int
    compared: int


@dataclass(frozen=True, slots=True)
class BatchingCheck:
    """Result of a check.

    Args:
        requests_per_run: the mean number of requests that the server joined while many callers called; None for an
            ensemble, which does not run itself.
    """

    model: str
    version: str
    items: int
    max_batch_size: int
    verdict: Verdict
    couplings: tuple[Coupling, ...] = ()
    arrangements: tuple[str, ...] = ()
    requests_per_run: float | None = None
    found: str = ""

    @property
    def change(self) -> str:
        """Advice on what to do; empty where nothing needs doing."""
        return _CHANGE[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"change": self.change}


def check_batching(
    client: Client, name: str, inputs: Arrays, *, version: int | None = None, tolerance: float | None = None
) -> BatchingCheck:
    """Compare the answers of items sent in several ways with each item's answer alone.

    Args:
        client: a client without batching of its own; its requests may run twice.
        name: the name of a served model.
        inputs: items along the first axis of each array; at most 16 are used.
        version: the model's version; the server's choice by default.
        tolerance: the allowed difference, relative to an output's largest magnitude; the default depends on its
            datatype.

    Raises:
        UsageError: there are fewer than two different items.
        ClientError: the model cannot be called.
    """
    model = client.model(name, version)
    items = _different(name, inputs)
    check = _Check(model.predict, model.signature, items, tolerance)
    several = model.signature.max_batch_size > 1
    done: list[str] = []
    verdict: Verdict = "independent"
    couplings: list[Coupling] = []
    note = ""
    if again := check.repeated():
        return _result(name, check, "not-repeatable", (again,), ())
    for arrangement, batches in _arrangements(len(items), model.signature.max_batch_size):
        try:
            coupling = check.compared(arrangement, check.sent(batches))
        except (InferenceError, InvalidInput) as error:
            if isinstance(error, Overloaded):
                raise
            return _result(name, check, "batches-refused", (), tuple(done), reason=error.found)
        done.append(arrangement)
        if coupling:
            couplings.append(coupling)
    runs = _runs(client, name, check.version)
    arrangement = f"{_REQUESTS} requests of {_CALLERS} callers"
    if coupling := check.compared(arrangement, check.called_together()):
        couplings.append(coupling)
    done.append(arrangement)
    after = _runs(client, name, check.version)
    joined = (after[0] - runs[0]) / (after[1] - runs[1]) if after[1] > runs[1] else None
    if couplings:
        verdict = "coupled"
    elif not several:
        note = "its requests hold one item (max_batch_size), so nothing is joined"
    return _result(name, check, verdict, tuple(couplings), tuple(done), joined, note)


def _result(
    name: str,
    check: _Check,
    verdict: Verdict,
    couplings: tuple[Coupling, ...],
    done: tuple[str, ...],
    joined: float | None = None,
    reason: str = "",
) -> BatchingCheck:
    return BatchingCheck(
        name, check.version, len(check.items), check.signature.max_batch_size, verdict, couplings, done, joined, reason
    )


Answered: TypeAlias = Iterator[tuple[int, Arrays]]
"""The place of an item, and its answer."""


class _Check:
    """The items, their answers alone, and requests that are compared with them."""

    def __init__(
        self, predict: Callable[..., Any], signature: ModelSignature, items: Sequence[Arrays], tolerance: float | None
    ) -> None:
        self.signature = signature
        self.items = items
        self._predict = predict
        self._tolerance = tolerance
        self._datatypes = {name: spec.datatype for name, spec in signature.outputs.items()}
        self.version = ""
        self._alone = [self._answer([place]) for place in range(len(items))]

    def _answer(self, places: Sequence[int]) -> Arrays:
        """The outputs of one request with these items."""
        if self.signature.max_batch_size:
            inputs: dict[str, Any] = {
                name: np.stack([self.items[place][name] for place in places]) for name in self.items[0]
            }
        else:
            (place,) = places
            inputs = dict(self.items[place])
        reply = self._predict(inputs=inputs, idempotent=True)
        self.version = reply.version
        return {name: reply[name] for name in reply}

    def repeated(self) -> Coupling | None:
        """An item that has another answer when it is sent alone once more."""
        again = ((place, self._answer([place])) for place in range(len(self.items)))
        return self.compared("alone once more", again)

    def sent(self, batches: Sequence[Sequence[int]]) -> Answered:
        """Each batch in one request."""
        for places in batches:
            outputs = self._answer(places)
            for row, place in enumerate(places):
                yield (
                    place,
                    {name: output[row : row + 1] for name, output in outputs.items()}
                    if all(output.ndim and len(output) == len(places) for output in outputs.values())
                    else outputs,
                )

    def called_together(self) -> Answered:
        """Single items of many callers, which the server may join."""
        places = np.random.default_rng(_SEED).integers(len(self.items), size=_REQUESTS).tolist()
        with ThreadPoolExecutor(_CALLERS) as pool:
            yield from zip(places, pool.map(lambda place: self._answer([place]), places), strict=True)

    def compared(self, arrangement: str, answers: Answered) -> Coupling | None:
        """The largest difference to an answer alone; None if nothing was compared."""
        differing: list[tuple[int, Difference]] = []
        compared = 0
        for place, outputs in answers:
            compared += 1
            worst_of_item = difference(self._alone[place], outputs, self._datatypes, self._tolerance)
            if worst_of_item is not None:
                differing.append((place, worst_of_item))
        if not differing:
            return None
        place, worst = max(differing, key=lambda pair: _weight(pair[1]))
        return Coupling(arrangement, place, worst.output, worst.distance, worst.largest, len(differing), compared)


def _weight(deviation: Difference) -> float:
    if deviation.distance is None or not np.isfinite(deviation.distance):
        return np.inf
    return deviation.distance / max(deviation.largest or 0.0, 1e-30)


def _arrangements(count: int, most: int) -> Iterator[tuple[str, list[list[int]]]]:
    """Names, and the requests of each: places of items."""
    if most < 2:
        return
    size = min(count, most)
    places = list(range(size))
    pairs = [[one, (one + 1) % count] for one in range(count)]
    shuffled = np.random.default_rng(_SEED).permutation(size).tolist()
    yield "pairs", pairs
    yield f"{size} together", [places]
    yield f"{size} shuffled", [shuffled, shuffled[::-1]]
    # Each batch has one of the items twice, in the place of another.
    yield (
        f"{size}, one replaced",
        [[(one + 1) % size if place == one else place for place in places] for one in places],
    )


def _different(name: str, inputs: Arrays) -> list[Arrays]:
    """The items, each once."""
    counts = {len(array) for array in inputs.values()}
    if len(counts) > 1:
        raise UsageError(
            f"inputs of {name}",
            found=f"{' and '.join(map(str, sorted(counts)))} items",
            wanted="the same number of items in each: along the first axis",
        )
    items: list[Arrays] = []
    for place in range(max(counts, default=0)):
        item = {name: array[place] for name, array in inputs.items()}
        if not any(all(np.array_equal(item[n], other[n]) for n in item) for other in items):
            items.append(item)
    if len(items) < 2:
        raise UsageError(
            f"inputs of {name}",
            found=f"{len(items)} different item{'s' * (len(items) != 1)}",
            wanted="at least two different ones: equal items cannot show that one changes another's answer",
            todo="give more along the first axis: --input x=@items.npy of shape [items, ...]",
        )
    return items[:_MOST_ITEMS]


def _runs(client: Client, name: str, version: str) -> tuple[int, int]:
    """Requests and runs of a model so far."""
    for version_statistics in client.statistics(name):
        if version_statistics.version == version:
            return version_statistics.success_count, version_statistics.execution_count
    return 0, 0
