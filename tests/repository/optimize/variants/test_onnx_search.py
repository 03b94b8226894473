"""The choice of layers that stay in full precision."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from tritonkit.repository.optimize.variants import onnx_search
from tritonkit.repository.optimize.variants.onnx_search import layers_to_exclude


def additive(costs: dict[str, float]) -> Callable[[Collection[str]], float]:
    """Closeness where each layer that loses precision costs what it costs."""
    return lambda kept: 1 - sum(cost for name, cost in costs.items() if name not in kept)


COSTS = {"a": 0.001, "b": 0.05, "c": 0.002, "d": 0.03, "e": 0.001, "f": 0.0}


@pytest.mark.parametrize(("target", "left"), [(0.94, ("b",)), (0.99, ("b", "d")), (0.9975, ("b", "c", "d"))])
def test_the_costliest_layers_are_left_out_and_no_more(target: float, left: tuple[str, ...]) -> None:
    """The fewest layers that reach the requested closeness are left out, in the network's order."""
    assert layers_to_exclude(list(COSTS), additive(COSTS), additive(COSTS), target) == left


@pytest.mark.parametrize(("target", "left"), [(0.985, 3), (0.999, 4)])
def test_as_many_are_left_out_as_it_takes(target: float, left: int) -> None:
    """Three of four layers of equal cost are left out, or all."""
    costs = dict.fromkeys("abcd", 0.01)
    layers = layers_to_exclude("abcd", additive(costs), additive(costs), target)
    assert layers is not None
    assert len(layers) == left


def test_no_layers_are_searched_for_if_none_helps() -> None:
    """Nothing is tried if even all layers in full precision are not close."""
    tried: list[int] = []

    def probe(kept: Collection[str]) -> float:
        tried.append(len(kept))
        return 1.0

    assert layers_to_exclude("abcd", probe, lambda _: 0.9, 0.99) is None
    assert not tried


def test_a_deep_network_is_tried_in_groups() -> None:
    """A thousand layers are no more than `MOST_TRIALS` attempts to rank, and every layer is in one."""
    names = [f"layer{place}" for place in range(1000)]
    costs = dict.fromkeys(names, 0.0) | {"layer417": 0.5}
    tried = []

    def probe(kept: Collection[str]) -> float:
        tried.append(kept)
        return additive(costs)(kept)

    left = layers_to_exclude(names, probe, additive(costs), 0.99)
    assert left is not None
    assert "layer417" in left
    assert len(left) == 1000 // onnx_search.MOST_TRIALS
    assert len(tried) == onnx_search.MOST_TRIALS
    assert set().union(*(set(names) - set(kept) for kept in tried)) == set(names)
