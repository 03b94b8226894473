"""The client's batching, on a machine that is simulated: requests one after the other, and what they cost."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import Generator, Record, parse_slo
from tritonkit.perf.tune import best_client_batching

SLO = parse_slo(["p99=50ms"])


class Machine:
    """A generator, and one server behind it that takes so long for a request and for each of its items."""

    models = ("net",)

    def __init__(self, request_s: float, item_s: float, most_items: int = 64) -> None:
        self.request_s, self.item_s, self.most_items = request_s, item_s, most_items
        self.refused = ""
        self.runs = 0
        self.prepare()

    def prepare(self, batch: Any = (1,)) -> None:
        """Two requests of each size."""
        if self.refused:
            raise UsageError("model net", found=self.refused)
        self.items = np.repeat(list(batch), 2)
        self.layouts = np.zeros(len(self.items), np.int64)

    def send(self, moments: NDArray[np.float64], choice: NDArray[np.int64]) -> Record:
        """Answers like `Generator.send`."""
        self.runs += 1
        free, answered = 0.0, []
        for due, size in zip(moments, self.items[choice], strict=True):
            free = max(free, due) + self.request_s + self.item_s * size
            answered.append(free)
        outcome = np.zeros(len(moments), np.int32)
        return Record(moments, moments, np.array(answered), outcome, (), 0.1)


def best(machine: Machine, rate_per_s: float, budget_s: float = 600.0) -> tuple[Any, list[str]]:
    """The best way, and what was said."""
    lines: list[str] = []
    batching = best_client_batching(cast("Generator", machine), SLO, rate_per_s, budget_s, lines.append)
    return batching, lines


def test_where_requests_cost_much_beside_their_items_groups_hold_more() -> None:
    """2 ms a request and 0.1 ms an item: some 400/s one by one, the limit of items is 10,000/s."""
    machine = Machine(0.002, 0.0001)
    batching, lines = best(machine, 400.0)
    assert batching.items == 16
    assert 2000 < batching.rate_per_s < 16 / (0.002 + 16 * 0.0001)
    assert 0 < batching.tail_ms <= 50
    assert machine.runs == sum("items/s" in line for line in lines)
    assert machine.items.tolist() == [1, 1]  # single ones again
    assert sum(line.startswith(f"{batching}: {batching.rate_per_s:.1f} ") for line in lines) == 3


def test_where_items_are_all_that_costs_nothing_beats_single_ones() -> None:
    """Each way misses its first run."""
    machine = Machine(0.0, 0.01)
    batching, lines = best(machine, 95.0)
    assert batching is None
    assert len(lines) == machine.runs == 2  # 16 and 4; 1 ms would bring no company
    assert all("missed" in line for line in lines)


def test_a_client_waits_for_a_fifth_of_the_target_at_most() -> None:
    """With a target of 2 ms it waits 0.4 ms."""
    lines: list[str] = []
    machine = cast("Generator", Machine(0.0004, 0.0))
    best_client_batching(machine, parse_slo(["p99=2ms"]), 1500.0, 600.0, lines.append)
    assert {line.partition(":")[0] for line in lines} == {"up to 16 items, 0.4 ms", "up to 4 items, 0.4 ms"}


def test_groups_are_no_larger_than_the_model_takes() -> None:
    """A max_batch_size of 6 leaves 6 and 4."""
    machine = Machine(0.002, 0.0001, most_items=6)
    batching, lines = best(machine, 400.0)
    assert batching.items == 6
    assert not any(line.startswith("up to 16") for line in lines)


@pytest.mark.parametrize(
    ("most_items", "rate", "refused", "words"),
    [
        (0, 400.0, "", "single items alone"),
        (1, 400.0, "", "single items alone"),
        (64, 30.0, "", "too few items"),
        (64, 400.0, "3 requests of 3 shapes", "3 requests of 3 shapes"),
    ],
)
def test_why_there_is_no_trial(most_items: int, rate: float, refused: str, words: str) -> None:
    """It is said, in a line."""
    machine = Machine(0.002, 0.0001, most_items)
    machine.refused = refused
    batching, lines = best(machine, rate)
    assert batching is None
    assert machine.runs == 0
    (line,) = lines
    assert words in line


def test_without_time_there_is_no_trial() -> None:
    """A budget below three runs."""
    machine = Machine(0.002, 0.0001)
    batching, _ = best(machine, 400.0, budget_s=10.0)
    assert batching is None
    assert machine.runs == 0
