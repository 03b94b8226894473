"""Networks that couple the items of a batch are seen, and those that do not are not taken for such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tritonkit.errors import BuildError
from tritonkit.repository.export.independence import prove
from tritonkit.repository.export.neighbors import KINDS, WHOLE, groups_of, neighbor, patterns
from tritonkit.repository.modelspec.quality import Tolerance

Function = Callable[[Any], Any]
WEIGHTS = np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32)


def items(count: int = 4, dtype: Any = np.float32) -> list[dict[str, Any]]:
    """Samples of different values."""
    random = np.random.default_rng(0)
    if np.issubdtype(dtype, np.floating):
        return [{"x": random.standard_normal((count, 6)).astype(dtype)}]
    return [{"x": random.integers(0, 2, (count, 6)).astype(dtype)}]


def verdict(function: Function, samples: Any = None, **how: Any) -> Any:
    """The proof's verdict on a function of one array."""

    def run(batch: dict[str, Any]) -> dict[str, Any]:
        try:
            with np.errstate(all="ignore"):
                return {"y": function(batch["x"])}
        except ValueError as error:
            raise BuildError("net", found=str(error)) from error

    return prove(run, groups_of(samples or items()), Tolerance(), **how)


def softmax(x: Any, axis: int) -> Any:
    """Softmax along an axis."""
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def above(size: int) -> Function:
    """Coupled only in batches of more than `size` items."""
    return lambda x: x if len(x) <= size else x + x.mean(axis=0)


COUPLED: dict[str, Function] = {
    "mean over the batch": lambda x: x - x.mean(axis=0),
    "a mean whose weight is tiny": lambda x: x - 1e-7 * x.mean(axis=0),
    "cumulative sum": lambda x: np.cumsum(x, axis=0),
    "softmax over the batch": lambda x: softmax(x, 0),
    "small outputs": lambda x: softmax(x, 0) * np.float32(1e-5),
    "attention over the batch": lambda x: softmax(x @ x.T, 1) @ x,
    "batch normalization in training mode": lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5),
    "sorted": lambda x: np.sort(x, axis=0),
    "turned around": lambda x: x[::-1],
    "rolled": lambda x: np.roll(x, 1, axis=0),
    "the row before": lambda x: x + x[np.maximum(np.arange(len(x)) - 1, 0)],
    "the number of the row": lambda x: x + np.arange(len(x), dtype=np.float32)[:, None],
    "the number of rows": lambda x: x * np.float32(len(x)),
    "the number of rows, as an integer": lambda x: np.full((len(x), 1), len(x)),
    "the largest value of all": lambda x: x / np.abs(x).max(),
    "a maximum that few reach": lambda x: x / max(np.abs(x).max(), np.float32(100)),
    "not a number": lambda x: x + 0 * x.sum(),
    "a branch on all": lambda x: x if (x.min(axis=1) < -100).any() else x * 2,
    "zeros in another item": lambda x: x * (2 if (x == 0).all(axis=1).any() else 1),
    "only above 3 items": above(3),
    "only above 32 items": above(32),
    "a threshold over all": lambda x: x > x.mean(),
    "rows taken together": lambda x: x.reshape(-1, 12),
    "rows taken apart": lambda x: x.reshape(-1, 3),
    "one row for all": lambda x: x.sum(axis=0, keepdims=True),
    "unique rows": lambda x: np.unique(np.sign(x[:, :1]), axis=0),
    "one scale for all, as dynamic INT8": lambda x: np.round(x * 127 / np.abs(x).max()),
}
INDEPENDENT: dict[str, Function] = {
    "linear": lambda x: x @ WEIGHTS,
    "softmax over features": lambda x: softmax(x, 1),
    "the largest": lambda x: (x @ WEIGHTS).argmax(axis=1),
    "NaN of its own": lambda x: np.log(x),
    "steps": lambda x: np.round(x @ WEIGHTS * 4),
    "constant": lambda x: np.ones((len(x), 3), np.float32),
    "text": lambda x: np.array([[str(round(float(row[0]), 2))] for row in x], object),
}


@pytest.mark.parametrize("name", COUPLED)
def test_a_coupling_is_seen(name: str) -> None:
    """However weak, late or rare it is, the proof names the output."""
    result = verdict(COUPLED[name])
    assert (result.state, result.holds) == ("coupled", False)
    assert "output y" in result.seen or "together" in result.seen


@pytest.mark.parametrize("name", INDEPENDENT)
def test_no_coupling_is_made_up(name: str) -> None:
    """Ties, thresholds, NaN and text of an item's own are no coupling."""
    assert verdict(INDEPENDENT[name]).state == "proven"


def noisy(x: Any) -> Any:
    """The same for each item, but for rounding that depends on the size of the batch, as with real kernels."""
    return x @ WEIGHTS * np.float32(1 + 2e-7 * (len(x) % 5))


@pytest.mark.parametrize(
    "last",
    [
        lambda y: y,
        lambda y: y.argmax(axis=1),
        lambda y: y > 0,
        lambda y: np.argsort(y, axis=1),
        lambda y: np.round(y * 1e4),
        lambda y: np.floor(y * 100).astype(np.int64),
    ],
)
def test_kernels_may_round_by_batch_size(last: Function) -> None:
    """A value near a threshold tips over with the rounding: noise on the item alone shows that it would."""
    samples = items(12)
    samples[0]["x"][:6, 1:] = samples[0]["x"][:6, :1]  # exact ties, before the weights
    assert verdict(lambda x: last(noisy(x)), samples).state == "proven"


def test_a_random_network_is_named_as_that() -> None:
    """The same item alone gets another answer each time: batching is not the cause."""
    random = np.random.default_rng(0)
    result = verdict(lambda x: x + random.standard_normal(x.shape))
    assert (result.state, result.holds) == ("random", False)
    assert "from run to run" in result.seen


def test_whole_numbers_reveal_a_coupling_and_ties_do_not_make_one() -> None:
    """Ids and classes: neither can be made larger or a little different."""
    ids = items(6, np.int64)
    assert verdict(lambda x: x - x.min(axis=0), ids).state == "coupled"
    assert verdict(lambda x: (x @ WEIGHTS).argmax(axis=1), ids).state == "proven"


def test_one_sample_is_filled_up() -> None:
    """Variants of the only item there is show what equal items cannot."""
    assert verdict(lambda x: x - x.mean(axis=0), items(1)).state == "coupled"
    assert verdict(lambda x: x @ WEIGHTS, items(1)).state == "proven"


def test_what_cannot_be_tried_is_not_proven() -> None:
    """Equal items, or none that runs: nothing is known."""
    same = [{"x": np.zeros((3, 6), np.int64)}]
    assert verdict(lambda x: x, same).state == "unknown"

    def fail(_: Any) -> Any:
        raise BuildError("net", found="it does not run")

    result = verdict(fail)
    assert (result.state, "it does not run" in result.seen) == ("unknown", True)


def test_a_network_that_needs_several_rows_is_coupled() -> None:
    """Not a single row runs alone, and that says enough."""

    def run(x: Any) -> Any:
        if len(x) < 2:
            raise BuildError("net", found="too short")
        return x

    assert "no item runs alone" in verdict(run).seen


def test_an_item_that_the_network_refuses_is_left_out() -> None:
    """Neither zeros nor large values need to be valid input."""

    def run(x: Any) -> Any:
        if not np.isfinite(x).all() or np.abs(x).max() > 100 or (x == 0).all(axis=1).any():
            raise BuildError("net", found="not such input")
        return x @ WEIGHTS

    assert verdict(run).state == "proven"


def test_items_of_different_lengths_are_tried_apart() -> None:
    """Only those of one shape share a batch; each layout is tried."""
    long = [{"x": np.random.default_rng(2).standard_normal((3, 9)).astype(np.float32)}]
    groups = groups_of(items(3) + long)
    assert [group[0]["x"].shape[1] for group in groups] == [6, 9]
    result = verdict(lambda x: x if x.shape[1] == 6 else x - x.mean(axis=0), items(3) + long)
    assert result.state == "coupled"


def test_patterns_replace_each_row_beside_each_other_one() -> None:
    """For any two rows, one stays and the other goes."""
    for size in (2, 3, 4, 7, 8, 64):
        for kept in range(size):
            for gone in set(range(size)) - {kept}:
                assert any(p[gone] and not p[kept] for p in patterns(size))


def test_neighbors_keep_their_type() -> None:
    """Half precision stays that, and whole numbers become zeros or larger ones that their type has."""
    half = {"x": np.ones((1, 2), np.float16)}
    assert neighbor(half, WHOLE) is None
    assert {neighbor(half, kind)["x"].dtype for kind in KINDS if kind != WHOLE} == {  # type: ignore[index]
        np.dtype(np.float16)
    }
    ids = {"x": np.ones((1, 2), np.int64)}
    assert [kind for kind in KINDS if neighbor(ids, kind) is not None] == ["zeros", WHOLE]
    for dtype, largest in ((np.uint8, 255), (np.int16, 16383), (np.int64, 1_000_001)):
        neighbors = neighbor({"x": np.ones((1, 2), dtype)}, WHOLE)
        assert neighbors is not None
        assert neighbors["x"].dtype == dtype
        assert neighbors["x"].max() == largest


def ids_of(count: int = 6) -> list[dict[str, Any]]:
    """Whole numbers that no table bounds."""
    return [{"x": np.random.default_rng(0).integers(0, 256, (count, 6)).astype(np.int32)}]


def ill(x: Any, moved: float = 0.0) -> Any:
    """An answer that a millionth of its weights, or rounding by batch size, moves by a hundredth."""
    return x @ (WEIGHTS * 0.01) + np.float32(0.01 * (len(x) % 5) / 5 + moved)


@pytest.mark.parametrize(
    ("coupling", "state"),
    [
        (lambda _: np.float32(0), "proven"),
        (lambda x: x.mean(0) * np.float32(1e-4), "coupled"),
        (lambda x: np.float32(len(x)), "coupled"),
        (lambda x: np.arange(len(x), dtype=np.float32)[:, None], "coupled"),
    ],
)
def test_an_ill_conditioned_network_is_not_taken_for_coupled(coupling: Function, state: str) -> None:
    """Weights moved by rounding's size change the answer as much; changes by neighbors count in any case."""

    def moved(seed: int) -> Any:
        return lambda batch: {"y": ill(batch["x"], 0.01 * (seed - 1.5)) + coupling(batch["x"])}

    def run(x: Any) -> Any:
        return ill(x) + coupling(x)

    assert verdict(run, ids_of()).state == "coupled"
    assert verdict(run, ids_of(), shaken=moved).state == state


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + (x.max() > 1000),
        lambda x: np.round(x * np.float32(127) / max(np.abs(x).max(), 300)),
        lambda x: (x - x.mean(0)).argmax(axis=1),
    ],
)
def test_whole_numbers_become_large_and_change_places(function: Function) -> None:
    """Numbers of 0 to 255 hardly ever show these couplings."""
    assert verdict(function, ids_of()).state == "coupled"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x > 100 + (x.max() > 300),
        lambda x: (np.cumsum(x, axis=0)[:, :2] * [1, 8]).argmax(axis=1),
        lambda x: x + ((x[:, :2] == 0) & (x[:, 2:4] > 1000)).any(),
    ],
)
def test_items_near_an_edge_and_mixtures_show_what_whole_items_hide(function: Function) -> None:
    """A threshold at one number of 256, a class that one feature decides, zeros next to large numbers."""
    assert verdict(function, ids_of(12)).state == "coupled"


def tie(x: Any, moved: float) -> Any:
    """The class farthest from the mean; often two are equally far, and rounding decides."""
    far = np.abs(x - x.mean(axis=1, keepdims=True))
    return (far + moved * np.sin(np.arange(6))).argmax(axis=1)


def test_a_tie_that_rounding_decides_is_no_coupling() -> None:
    """Items at the edge are tipped over by the size of a neighbor's numbers, and as well by their own weights' last
    bits."""

    def run(x: Any) -> Any:
        return tie(x, 1e-9 * (x.max() > 300))

    def moved(seed: int) -> Any:
        return lambda batch: {"y": tie(batch["x"], 1e-9 * (seed + 1))}

    assert verdict(run, ids_of(), shaken=moved).state == "proven"
    assert verdict(run, ids_of()).state == "coupled"


def test_a_table_refuses_large_numbers() -> None:
    """One item of zeros has neighbors within any table, others do not: that is not a coupling."""
    table = np.random.default_rng(1).standard_normal((256, 3)).astype(np.float32)

    def look_up(x: Any) -> Any:
        if x.max() > 255:
            raise ValueError("out of range")
        return table[x].sum(axis=1)

    samples = ids_of()
    samples[0]["x"][0] = 0
    assert verdict(look_up, samples).state == "proven"


@pytest.mark.parametrize(
    ("work", "largest", "tried"),
    [(10**5, 64, 64), (10**5, 200, 200), (10**9, 64, 8), (4 * 10**9, 64, 4), (10**12, 64, 3)],
)
def test_the_verdict_says_the_largest_batch_that_ran(work: int, largest: int, tried: int) -> None:
    """The sizes to try follow from an item's counted work, never from a clock."""
    result = verdict(lambda x: x @ WEIGHTS, items(12), work=lambda _: work, largest=largest)
    assert result.seen.endswith(f"in batches of up to {tried}")
