"""Networks that look at what fills an item up are seen, and those that leave it out are not taken for such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError
from tritonkit.repository.export.padded import Padding, judge_padded, prove_padded
from tritonkit.repository.modelspec import FreeAxis
from tritonkit.repository.modelspec.quality import Tolerance

Batch = dict[str, Any]
Run = Callable[[Batch], Batch]
WEIGHTS = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def samples(*sizes: int) -> list[Batch]:
    """Three items of each size, and masks that show everything."""
    random = np.random.default_rng(1)
    return [
        {"x": random.standard_normal((3, size, 4)).astype(np.float32), "mask": np.ones((3, size), np.int64)}
        for size in sizes
    ]


def padding(x: float = 0, mask: int = 0, outputs: dict[str, int] | None = None, **sizes: Any) -> Padding:
    """An axis `length` of both inputs; `y` has it too unless `outputs` says otherwise."""
    free = FreeAxis(**{"max": 64, **sizes}, pad={"x": x, "mask": mask})
    return Padding("length", free, {"x": 1, "mask": 1}, {"y": 1} if outputs is None else outputs)


def verdict(run: Run, how: Padding | None = None, *sizes: int) -> Any:
    """The proof's verdict on a network, with samples of some sizes."""
    return prove_padded(run, samples(*(sizes or (4, 6, 9))), how or padding(), Tolerance())


def attention(hidden: float, *, masked: bool = True) -> Run:
    """Self-attention; scores of hidden places have a large negative number added, as transformers do."""

    def run(batch: Batch) -> Batch:
        x, hides = batch["x"], np.float32(hidden) * (1 - batch["mask"][:, None, :])
        scores = (x @ WEIGHTS @ x.transpose(0, 2, 1) + masked * hides).astype(np.float32)
        powers = np.exp(scores - scores.max(axis=2, keepdims=True))
        return {"y": powers / powers.sum(axis=2, keepdims=True) @ x}

    return run


def masked_mean(batch: Batch) -> Batch:
    """The mean over what the mask shows."""
    shown = batch["mask"][:, :, None]
    return {"y": (batch["x"] * shown).sum(axis=1) / shown.sum(axis=1)}


POOLED = padding(outputs={})
NEUTRAL: dict[str, tuple[Run, Padding]] = {
    "place by place": (lambda batch: {"y": batch["x"] @ WEIGHTS}, padding()),
    "attention with a mask": (attention(-3e38), padding()),
    "attention with a mask of -1e4": (attention(-1e4), padding()),
    "a mean with a mask": (masked_mean, POOLED),
    "a sum of zeros": (lambda batch: {"y": batch["x"].sum(axis=1)}, POOLED),
    "the largest, with -1e30": (lambda batch: {"y": batch["x"].max(axis=1)}, padding(-1e30, outputs={})),
    "from left to right": (lambda batch: {"y": np.cumsum(batch["x"], axis=1)}, padding(7)),
    "the place of the largest": (lambda batch: {"y": batch["x"].max(axis=2).argmax(axis=1)}, padding(-9, outputs={})),
}
CHANGED: dict[str, tuple[Run, Padding]] = {
    "a mean without a mask": (lambda batch: {"y": batch["x"].mean(axis=1)}, POOLED),
    "attention without a mask": (attention(0, masked=False), padding()),
    "a mask that is filled with 1": (attention(-1e4), padding(mask=1)),
    "a mask that hides too little": (attention(-2), padding()),
    "the largest of negative numbers, with 0": (lambda batch: {"y": (-np.abs(batch["x"])).max(axis=1)}, POOLED),
    "from right to left": (lambda batch: {"y": np.cumsum(batch["x"][:, ::-1], axis=1)[:, ::-1]}, padding(1)),
    "turned around": (lambda batch: {"y": batch["x"][:, ::-1]}, padding()),
    "the size": (lambda batch: {"y": batch["x"].sum(axis=1) + batch["x"].shape[1]}, POOLED),
    "an output that is not cut": (lambda batch: {"y": batch["x"] @ WEIGHTS}, POOLED),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_changes_nothing_is_proven(name: str) -> None:
    """The sizes that were tried are named."""
    run, how = NEUTRAL[name]
    result = verdict(run, how)
    assert result.state == "proven", result.seen
    assert result.seen.startswith("filled up along length from 4 to 8, 6 to 12, 9 to 18, 4 to 64")


@pytest.mark.parametrize("name", CHANGED)
def test_what_changes_an_answer_is_seen(name: str) -> None:
    """The output and both sizes are named."""
    run, how = CHANGED[name]
    result = verdict(run, how)
    assert (result.state, result.holds) == ("coupled", False)
    assert result.seen.startswith("output y of an item of length 4 differs from that of the same")
    assert "when it is filled up to" in result.seen


def test_only_sizes_that_the_spec_allows_are_tried() -> None:
    """Multiples within its bounds; an item of the largest size is cut to a shorter one first."""
    sizes = set()

    def run(batch: Batch) -> Batch:
        sizes.add(batch["x"].shape[1])
        return {"y": batch["x"]}

    assert verdict(run, padding(max=24, multiple_of=8), 24).state == "proven"
    assert sizes == {8, 16, 24}


def test_a_network_that_refuses_what_is_filled_up_is_coupled() -> None:
    """An item that runs alone has no answer next to a longer one."""

    def run(batch: Batch) -> Batch:
        if (batch["mask"] == 0).any():
            raise BuildError("net", found="no zeros")
        return {"y": batch["x"]}

    assert verdict(run).seen == ("an item of length 4 runs alone, and filled up to 8 it does not: no zeros")


def test_nothing_is_proven_without_an_item_that_runs() -> None:
    """A network that takes one size alone."""

    def run(batch: Batch) -> Batch:
        if batch["x"].shape[1] != 64:
            raise BuildError("net", found="a size")
        return {"y": batch["x"]}

    assert verdict(run, None, 64).state == "unknown"


@pytest.mark.parametrize(("weight", "state"), [(0.01, "proven"), (1.0, "coupled")])
def test_rounded_networks_are_held_to_the_gate(write_model: WriteModel, weight: float, state: str) -> None:
    """A change beyond the tolerance counts as much as the metric falls."""

    def run(batch: Batch) -> Batch:
        return {"y": batch["x"].max(axis=1) + weight * batch["x"].mean(axis=1)}

    spec = write_model("name: net\nnetwork: {onnx: net.onnx}\n", net__onnx=b"")
    result = judge_padded(spec, run, samples(8, 16), padding(-9 if state == "coupled" else 0, outputs={}))
    assert result.state == state, result.seen
    assert "filled up to twice the length, R2 falls from 1.0000 alone to " in result.seen
