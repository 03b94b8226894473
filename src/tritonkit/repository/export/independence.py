"""Trials of whether a network's answer for an item depends on the other items of its batch.

Pure functions: they are given items, and a function that runs batches. Several different items run together and each
alone, at several batch sizes and in several orders. Then some are replaced, and the answers to the rest must not
change. Both tests are needed. Two batches of one size run the same kernels, so the smallest change between them counts.
A batch and a single item run different kernels. There an item close to a threshold may fall on the other side of it
without any coupling.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Independence
from tritonkit.repository.export.comparing import (
    apart,
    differs_by,
    explains,
    has_floats,
    may_be_rare,
    rare,
    spread,
    tipped,
)
from tritonkit.repository.export.mixtures import ROWS, RUNS, pairs_at_edges
from tritonkit.repository.export.neighbors import KINDS, OTHERS, WHOLE, ZEROS, join, neighbor, orders, patterns
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.work import assumed_work
from tritonkit.repository.modelspec.quality import Tolerance

__all__ = ["DEFAULT_LARGEST", "prove"]

DEFAULT_LARGEST = 64
"""Largest batch to try, if it is affordable."""

_CORE_SIZES = (2, 3)
_SIZES = (4, 8, 5, 16, 17, 33)
_BUDGET = 200_000_000_000
"""Products, as `work` counts them, to spend on larger batches: half of them on the items of the first layout, half of
the rest on those of the next, and so on. The number is the same on every machine, so that the verdict is too."""
_HEAVY, _LIGHT = 2_000_000_000, 1_000_000_000
"""Work of an item above which fewer kinds of neighbors are tried, and work of a batch below which all kinds are."""
_GIVEN_UP_S = 120.0
"""Seconds after which no batch beyond the smallest is begun, however much work is left."""
_MOST_BYTES = 128 << 20
_SHAKES = 4
_EDGES, _EDGE_ROUNDS = 0.2, 16
"""Share of the remaining work to spend on items near an edge, and the most rounds of trials with them."""


class _CoupledError(Exception):
    """A coupling that was seen; its text is a sentence."""


@dataclass
class _Trial:
    """Items of one layout, the outputs of each item alone, and the state of their trial."""

    run: Callable[[Batch], Batch]
    items: list[Batch]
    tolerance: Tolerance
    kinds: Sequence[str] = KINDS
    shaken: Callable[[int], Callable[[Batch], Batch] | None] = lambda _: None
    work: int = 0
    """Work of one item."""
    left: float = 0.0
    """Work for batches beyond the smallest."""
    ends: float = 0.0
    alone: list[Batch] = field(default_factory=list)
    largest: int = 0
    """The largest batch that ran."""
    tipped: dict[int, dict[str, Any]] = field(default_factory=dict)
    moved: dict[int, list[Batch]] = field(default_factory=dict)
    """Item -> outputs of the shaken networks for that item alone."""
    rare: dict[str, list[int]] = field(default_factory=dict)
    """Output -> number of unexplained discrete values that differ, and number compared."""


def prove(
    run: Callable[[Batch], Batch],
    groups: Sequence[Sequence[Batch]],
    tolerance: Tolerance,
    *,
    kinds: Sequence[str] = KINDS,
    largest: int = DEFAULT_LARGEST,
    work: Callable[[Batch], int] = assumed_work,
    shaken: Callable[[int], Callable[[Batch], Batch] | None] = lambda _: None,
    budget: float = _BUDGET,
) -> Independence:
    """Try whether items are independent.

    Args:
        run: a function from a batch to its outputs, which raises BuildError if it fails.
        groups: lists of items [1, ...], one list for each layout.
        tolerance: the distance allowed between an item's answers in a batch and alone. For outputs much smaller than
            1 the absolute part shrinks with them.
        kinds: replacements to try for the other items of a batch, of `neighbors.KINDS`.
        largest: the largest batch to try.
        work: a function that estimates an item's work, which decides what is tried.
        shaken: a function from a seed to the network with weights moved as little as rounding does, or to None.
        budget: work to spend on batches beyond the smallest, which are tried in any case.
    """
    tried, reason, most = 0, "", 1
    ends = time.monotonic() + _GIVEN_UP_S
    shaken = cache(shaken)
    for place, items in enumerate(groups):
        trial = _Trial(run, list(items), tolerance, kinds, shaken, ends=ends)
        try:
            reason = _run_alone(trial) or reason
            if len(trial.items) < 2:
                continue
            if seen := _changes_alone(trial):
                return Independence("random", seen)
            trial.work, trial.left = work(trial.items[0]), budget / 2 ** (place + 1)
            _run_together(trial, largest)
        except _CoupledError as seen:
            return Independence("coupled", str(seen))
        tried, most = tried + len(trial.items), max(most, trial.largest)
    if not tried:
        return Independence("unknown", reason or "there are no two different items to try")
    return Independence("proven", f"{tried} items, alone and in batches of up to {most}")


def _run_alone(trial: _Trial) -> str:
    """Keep the items that run alone, with their outputs; return the reason why other items do not run."""
    usable, reason = [], ""
    for item in trial.items:
        try:
            outputs = trial.run(item)
        except BuildError as error:
            reason = error.in_a_line()
            continue
        usable.append(item)
        trial.alone.append(outputs)
    if not usable and _only_together(trial):
        raise _CoupledError("no item runs alone, and several of them together do")
    trial.items = usable
    for outputs in trial.alone:
        _hold_shapes(outputs, trial.alone[0])
    if trial.alone:
        _hold_shapes(_of_zeros(trial), trial.alone[0])
        _hold_rows(trial.alone[0], 1)
    return reason


def _only_together(trial: _Trial) -> bool:
    for size in (2, 3, 4, 6, 8):
        try:
            trial.run(join((trial.items * size)[:size]))
        except BuildError:
            continue
        return True
    return False


def _of_zeros(trial: _Trial) -> Batch:
    """Outputs of an item of zeros alone, or of the first item if the network refuses zeros."""
    zeros = neighbor(trial.items[0], ZEROS)
    try:
        return trial.run(zeros) if zeros else trial.alone[0]
    except BuildError:
        return trial.alone[0]


def _hold_shapes(outputs: Batch, others: Batch) -> None:
    """Check that items of one shape have outputs of one shape, as a batch requires."""
    for name, array in outputs.items():
        if array.shape != others[name].shape:
            raise _CoupledError(
                f"the shape of output {name} depends on the data: {list(others[name].shape)} or"
                f" {list(array.shape)} for one input shape"
            )


def _hold_rows(outputs: Batch, size: int) -> None:
    """Check that every output has a row for each item."""
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != size:
            rows = array.shape[0] if array.ndim else "no"
            raise _CoupledError(f"output {name} has {rows} rows for {size} item{'s' * (size > 1)}")


def _changes_alone(trial: _Trial) -> str:
    """A sentence on a single item whose answer changes from run to run; empty if none does."""
    for item, before in list(zip(trial.items, trial.alone, strict=True))[:2]:
        for _ in range(2):
            again = trial.run(item)
            for name, expected in before.items():
                if apart(again[name], expected, trial.tolerance, 0.01) is not None:
                    by = differs_by(again[name], expected)
                    return f"output {name} of the same item alone differs from run to run{by}"
    return ""


def _run_together(trial: _Trial, largest: int) -> None:
    """Try batches of rising cost until the work for them is spent; the smallest are tried in any case."""
    for size in _CORE_SIZES:
        for order in orders(len(trial.items), size):
            _hold_to_alone(trial, order)
    small = 2 if trial.work > 10 * _HEAVY else 4
    _replace(trial, small, trial.kinds if trial.work < _HEAVY else trial.kinds[:4])
    sizes = [size for size in (*_SIZES, DEFAULT_LARGEST, largest) if size <= largest]
    for size in dict.fromkeys(sizes):
        if not _affordable(trial, size):
            continue
        draws = 8 if size == largest else 1
        for order in orders(len(trial.items), size, draws):
            if trial.left > 0:
                trial.left -= size * trial.work
                _hold_to_alone(trial, order)
        if size in (8, DEFAULT_LARGEST, largest) and trial.left > 0:
            trial.left -= size * len(patterns(size)) * trial.work
            _replace(trial, size, trial.kinds if trial.work * size < _LIGHT else ("mixed",))
    _hold_at_edges(trial)
    for name, (differing, compared) in trial.rare.items():
        if differing > rare(compared):
            raise _CoupledError(
                f"{differing} of {compared} values of output {name} differ from those of the same item alone"
            )


def _affordable(trial: _Trial, size: int) -> bool:
    """Whether a few batches of that size fit into the remaining work and into memory."""
    item, outputs = trial.items[0], trial.alone[0]
    memory = sum(array.nbytes for array in (*item.values(), *outputs.values()))
    fits = 3 * size * trial.work <= trial.left and size * memory < _MOST_BYTES
    return fits and time.monotonic() < trial.ends


def _hold_to_alone(trial: _Trial, order: Sequence[int]) -> None:
    """Check that the items of a batch get the same answers as alone."""
    together = _together(trial, [trial.items[place] for place in order])
    for row, place in enumerate(order):
        for name, expected in trial.alone[place].items():
            got = together[name][row : row + 1]
            differing = apart(got, expected, trial.tolerance, 0.01)
            if differing is None:
                _count_rare(trial, name, 0, expected)
                continue
            if got.shape == expected.shape:
                differing = differing & ~_tipped(trial, place)[name]
                if differing.any():
                    differing = differing & ~_rounded(trial, place, name, got)
                if not differing.any():
                    continue
                if may_be_rare(trial.items[0], expected):
                    _count_rare(trial, name, int(differing.sum()), expected)
                    continue
            raise _CoupledError(
                f"output {name} of item {row + 1} in a batch of {len(order)} differs from that of the"
                f" same item alone{differs_by(got, expected)}"
            )


def _together(trial: _Trial, items: Sequence[Batch]) -> Batch:
    """Outputs of a batch, with a row for each item."""
    try:
        outputs = trial.run(join(items))
    except BuildError as error:
        raise _CoupledError(f"each item runs alone, and {len(items)} of them together do not: {error.found}") from error
    _hold_rows(outputs, len(items))
    trial.largest = max(trial.largest, len(items))
    return outputs


def _replace(trial: _Trial, size: int, kinds: Sequence[str]) -> None:
    """Check that the rows of a batch stay the same when other rows are replaced."""
    items = [trial.items[row % len(trial.items)] for row in range(size)]
    before = _together(trial, items)
    more = () if has_floats(items[0]) else (*({WHOLE} & set(trial.kinds)), OTHERS)
    for kind in dict.fromkeys((*kinds, *more)):
        others = list(_neighbors(trial, items, kind))
        if not others:
            continue
        for replaced in patterns(size):
            rows = zip(items, others, replaced, strict=True)
            mixed = [other if new else item for item, other, new in rows]
            after = _together(trial, mixed)
            for row in (row for row in range(size) if not replaced[row]):
                _hold_still(trial, before, after, row, kind)


def _hold_at_edges(trial: _Trial) -> None:
    """Check that items near an edge keep their answers when others are replaced, unless rounding alone may tip them
    over."""
    rounds = int(_EDGES * trial.left / (ROWS * RUNS * max(trial.work, 1)))
    if rounds < 1 or WHOLE not in trial.kinds:
        return
    grows = "fiu" if any(_neighbors(trial, trial.items, WHOLE)) else "f"
    for seed in range(min(rounds, _EDGE_ROUNDS)):
        if time.monotonic() > trial.ends:
            return
        # The network may not take all mixtures of items.
        with suppress(BuildError):
            run = partial(_rows, trial)
            for batch, others, places in pairs_at_edges(run, trial.items, seed, grows):
                before, after = run(batch), run(others)
                for row in places:
                    item = {name: array[row : row + 1] for name, array in batch.items()}
                    _hold_still(trial, before, after, row, "mixed", partial(_edge, trial, item))


def _rows(trial: _Trial, batch: Batch) -> Batch:
    """Outputs of a batch, with a row of the same shape for each item."""
    outputs = trial.run(batch)
    _hold_rows(outputs, ROWS)
    _hold_shapes({name: array[:1] for name, array in outputs.items()}, trial.alone[0])
    return outputs


def _edge(trial: _Trial, item: Batch, name: str, got: Any, expected: Any) -> Any:
    """Mask of the values that rounding alone may change, because the item is near an edge."""
    alone = trial.run(item)
    moves = spread([moved[name] for moved in _shaken_answers(trial, item)], alone[name])
    return tipped(trial.run, item, alone, trial.tolerance)[name] | explains(moves, got, expected)


def _hold_still(
    trial: _Trial,
    before: Batch,
    after: Batch,
    row: int,
    kind: str,
    excused: Callable[[str, Any, Any], Any] | None = None,
) -> None:
    for name, outputs in after.items():
        got, expected = outputs[row : row + 1], before[name][row : row + 1]
        differing = apart(got, expected, trial.tolerance, 0.0)
        if differing is not None and excused is not None:
            differing = differing & ~excused(name, got, expected)
        if differing is not None and differing.any():
            became = "take other values" if kind in ("mixed", OTHERS) else f"become {kind}"
            raise _CoupledError(
                f"output {name} of item {row + 1} in a batch of {len(outputs)} changes"
                f"{differs_by(got, expected)} when other items {became}"
            )


def _neighbors(trial: _Trial, items: Sequence[Batch], kind: str) -> Iterator[Batch]:
    """The replacement of each item; none if the network does not accept such an item alone."""
    if kind == OTHERS:
        yield from (*items[1:], items[0])
        return
    others = []
    kinds = [one for one in trial.kinds if one != WHOLE] if kind == "mixed" else [kind]
    for row, item in enumerate(items):
        one = kinds[row % len(kinds)]
        other = neighbor(item, one)
        if kind != "mixed" and other is None:
            return
        others.append(other or items[row - 1])
    try:
        # A table may have some of these numbers and not others.
        for other in others[: len(trial.items) if kind == WHOLE else len(kinds)]:
            trial.run(other)
    except BuildError:
        return
    yield from others


def _tipped(trial: _Trial, place: int) -> dict[str, Any]:
    """Output -> mask of the values of a single item that rounding may change."""
    if place not in trial.tipped:
        item, alone = trial.items[place], trial.alone[place]
        trial.tipped[place] = tipped(trial.run, item, alone, trial.tolerance)
    return trial.tipped[place]


def _rounded(trial: _Trial, place: int, name: str, got: Any) -> Any:
    """Mask of the values of a single item that move as far when the weights move by no more than rounding does.

    An ill-conditioned network (with a variance near zero, for example) differs by batch size without any coupling, and
    ids cannot be moved a little. At one batch size, changes by other items are judged by this only near an edge.
    """
    if place not in trial.moved:
        trial.moved[place] = _shaken_answers(trial, trial.items[place])
    expected = trial.alone[place][name]
    moves = spread([moved[name] for moved in trial.moved[place]], expected)
    return explains(moves, got, expected)


def _shaken_answers(trial: _Trial, item: Batch) -> list[Batch]:
    runs = [trial.shaken(seed) for seed in range(_SHAKES)]
    return [run(item) for run in runs if run is not None]


def _count_rare(trial: _Trial, name: str, differing: int, expected: Any) -> None:
    counts = trial.rare.setdefault(name, [0, 0])
    counts[0] += differing
    counts[1] += expected.size
