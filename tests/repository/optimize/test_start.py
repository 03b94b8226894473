"""The needs of a start, measured on one item; and the input that warms a network up."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Signature, StartNeeds, TensorInfo
from tritonkit.repository.modelspec import FreeAxis, ModelFile, Spec
from tritonkit.repository.optimize.start import measure_start, warm_sizes

MIB = 1 << 20


class Taking:
    """A network that keeps an array of `grows(rows)` bytes while it runs, and refuses what `refuses` says."""

    def __init__(self, grows: Any, refuses: Any = lambda x: False) -> None:
        self.seen: list[tuple[int, ...]] = []
        self._grows, self._refuses = grows, refuses

    def run(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The sum of x, after memory of the process was touched."""
        x = batch["x"]
        self.seen.append(x.shape)
        if self._refuses(x):
            raise BuildError("x", found="refused")
        kept = np.ones(self._grows(x.shape[1]), np.uint8)
        return {"y": x.sum() + kept[:1]}


def spec_of(**axes: FreeAxis) -> Spec:
    """A spec with free axes; nothing of it is read."""
    network = {"onnx": "n.onnx", "free_axes": {n: axis.model_dump() for n, axis in axes.items()}}
    return Spec(Path("net"), ModelFile.model_validate({"name": "net", "network": network}))


X = Signature((TensorInfo("x", "FP32", (-1, 2), ("t", "")),), (), batched=True)
SAMPLES = [{"x": np.full((2, 30, 2), 7, np.float32)}, {"x": np.full((3, 9, 2), 5, np.float32)}]


def test_the_largest_warm_size_is_measured_first() -> None:
    """Memory is the largest growth of the process, whatever it had taken before."""
    before = np.ones(200 * MIB, np.uint8)
    del before
    network = Taking(lambda rows: rows * MIB)
    needs = measure_start(spec_of(t=FreeAxis(min=4, max=64, warm=(8, 64))), X, SAMPLES, network)
    assert network.seen == [(1, 64, 2), (1, 8, 2)]
    assert (needs.refuses_zeros, needs.given) == (False, {})
    assert 60 * MIB < needs.memory_bytes < 90 * MIB
    assert needs.processor_s > 0


def test_sizes_stay_allowed() -> None:
    """The ends of an axis are multiples; several axes move together."""
    axes = {"h": FreeAxis(min=32, max=64, multiple_of=32), "w": FreeAxis(max=9, warm=(1, 2, 9))}
    assert warm_sizes({"w": axes["w"]}) == [{"w": 1}, {"w": 2}, {"w": 9}]
    assert warm_sizes(axes) == [{"h": 32, "w": 1}, {"h": 64, "w": 2}, {"h": 64, "w": 9}]


@pytest.mark.parametrize("described", [True, False])
def test_where_zeros_do_not_do_an_item_of_the_samples_is_kept(described: bool) -> None:
    """The network refuses them, or the spec does not say which sizes there are."""
    network = Taking(lambda rows: 1, lambda x: not x.any())
    axes = {"t": FreeAxis(max=64)} if described else {}
    needs = measure_start(spec_of(**axes), X, SAMPLES, network)
    assert needs.refuses_zeros == described
    assert needs.given["x"].shape == (9, 2)
    assert np.frombuffer(b64decode(needs.given["x"].data), np.float32).tolist() == [5.0] * 18
    assert network.seen[-1] == (1, 9, 2)


def test_samples_that_fail_are_not_this_rooms_to_report() -> None:
    """The comparison with the reference says why."""
    needs = measure_start(spec_of(), X, SAMPLES, Taking(lambda rows: 1, lambda x: True))
    assert needs == StartNeeds(0, needs.processor_s, False, needs.given)
