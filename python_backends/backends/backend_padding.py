"""Requests of different lengths in one batch: shorter ones are padded before the run, and their outputs cut after it.

`padding.cpp` of the native backends does the same. The model's parameter `tritonkit.pad` names the axes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from backend_config import TRITON_TO_NUMPY, ModelError, TensorSpec, is_batched, text_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backend_batch import Arrays

PARAMETER = "tritonkit.pad"
MOST = "tritonkit.max_batch_tokens"
_UNPADDED = {True: ("BYTES", "FP16"), False: ("BYTES",)}
"""Types of inputs that have no value to fill with, and of outputs that cannot be cut."""
RUN_COST, RUN_COST_ON_GPU = 32, 4096
"""Fixed costs of a run, in positions of one row: to start a run takes a GPU as long as to compute thousands."""


@dataclass(frozen=True)
class Padding:
    """Axes whose size is a request's length, by tensor, counted with the batch axis; for inputs also the value that
    fills. `run_cost` is the fixed cost of a run, in positions of one row, and `most` the positions that it may have."""

    inputs: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)
    run_cost: int = RUN_COST
    most: float = math.inf

    def shape_but_length(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        """The request's shape without the batch and the padded axis."""
        axis, _ = self.inputs.get(name, (0, 0))
        return tuple(size for place, size in enumerate(shape) if place not in (0, axis))

    def lengths(self, feed: Arrays) -> dict[str, int]:
        """Length of each padded input of a request."""
        return {name: feed[name].shape[axis] for name, (axis, _) in self.inputs.items() if name in feed}

    def padded(self, feed: Arrays, length: int) -> Arrays:
        """The request, padded to the length of its batch."""
        return {name: self._filled(name, array, length) for name, array in feed.items()}

    def cut(self, outputs: Arrays, length: int) -> Arrays:
        """Views of a request's outputs, cut to its own length."""
        return {
            name: array[(slice(None),) * axis + (slice(length),)] if (axis := self.outputs.get(name, 0)) else array
            for name, array in outputs.items()
        }

    def _filled(self, name: str, array: np.ndarray, length: int) -> np.ndarray:
        axis, value = self.inputs.get(name, (0, 0))
        if not axis or array.shape[axis] == length:
            return array
        missing = [(0, length - array.shape[axis] if place == axis else 0) for place in range(array.ndim)]
        return np.pad(array, missing, constant_values=value)


def read_padding(
    config: Mapping[str, Any],
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    run_cost: int = RUN_COST,
) -> Padding:
    """The padding that the model's parameter requests, with the fixed cost of a run on its device.

    Raises:
        ModelError: it names a tensor that does not exist or cannot be padded.
    """
    text, most = text_parameter(config, PARAMETER), _most(config)
    if not text:
        return Padding()
    axes = _parsed(text)
    if not is_batched(config):
        raise ModelError(f"parameter {PARAMETER} found; wanted max_batch_size above 0")
    ragged = {entry["name"] for entry in config["input"] if entry.get("allow_ragged_batch")}
    if unnamed := sorted(ragged - set(axes)):
        raise ModelError(f"input '{unnamed[0]}': allow_ragged_batch found; wanted it in parameter {PARAMETER} too")
    if not axes or set(axes) - set(inputs) - set(outputs):
        raise ModelError(
            f"parameter {PARAMETER}: found {text}, wanted tensors of the model, which has"
            f" {list(inputs)} and {list(outputs)}"
        )
    return Padding(
        {
            name: (_axis(spec, axes[name], is_input=True), _value(spec, axes[name]))
            for name, spec in inputs.items()
            if name in axes
        },
        {name: _axis(spec, axes[name], is_input=False) for name, spec in outputs.items() if name in axes},
        run_cost,
        most,
    )


def _most(config: Mapping[str, Any]) -> float:
    """The most positions of a run; without the parameter as many as come."""
    text = text_parameter(config, MOST)
    if not text:
        return math.inf
    if not text_parameter(config, PARAMETER):
        raise ModelError(f"parameter {MOST} found; wanted it with {PARAMETER}, which pads requests")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**63:
        raise ModelError(f"parameter {MOST}: found {text}, wanted a whole number above 0")
    return int(text)


def _parsed(text: str) -> dict[str, dict[str, Any]]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(entry, dict) for entry in value.values()):
        raise ModelError(f"parameter {PARAMETER}: found {text}, wanted an object of objects")
    return value


def _value(spec: TensorSpec, entry: Mapping[str, Any]) -> float:
    """The fill value, if it fits the type: it is neither rounded nor wrapped around."""
    value = entry.get("value", "")
    kind = np.dtype(TRITON_TO_NUMPY[spec.dtype])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind.kind == "f":
        expected, fits = "a number", number
    elif kind.kind == "b":
        expected, fits = "0 or 1", isinstance(value, int) and value in (0, 1)
    else:
        limits = np.iinfo(kind)
        expected = f"a whole number of {spec.dtype}"
        fits = isinstance(value, int) and number and limits.min <= value <= limits.max
    if not fits:
        raise ModelError(f"parameter {PARAMETER}, '{spec.name}': found value {value}, wanted {expected}")
    return float(value) if kind.kind == "f" else int(value)


def _axis(spec: TensorSpec, entry: Mapping[str, Any], *, is_input: bool) -> int:
    """The axis as the configuration counts it, without the batch."""
    given = entry.get("axis", "")
    axis = given + 1 if isinstance(given, int) and not isinstance(given, bool) else 0
    where = f"parameter {PARAMETER}, '{spec.name}'"
    if not 1 <= axis < len(spec.dims) or spec.dims[axis] != -1:
        raise ModelError(f"{where}: found axis {given}, wanted one of free size in {list(spec.dims)} after its first")
    if spec.dtype in _UNPADDED[is_input]:
        raise ModelError(f"{where}: of type {spec.dtype} cannot be padded")
    return axis


def split(falling: Sequence[tuple[int, int]], run_cost: int = RUN_COST, most: float = math.inf) -> list[range]:
    """Positions at which to split requests into runs.

    Every row costs as many positions as the longest of its run has, and a run `run_cost` more, so a few much longer
    requests run apart. The result has the lowest total cost of all ways to split.

    Args:
        falling: length and rows of each request, the longest first.
        run_cost: fixed cost of a run.
        most: positions that a run may have, unless one request alone has more.
    """
    costs, begins = [0], [0]
    for end in range(1, len(falling) + 1):
        rows, edges = 0, []
        for first in reversed(range(end)):
            rows += falling[first][1]
            if edges and rows * falling[first][0] > most:
                break
            edges.append((costs[first] + run_cost + rows * falling[first][0], first))
        cost, begin = min(edges)
        costs.append(cost)
        begins.append(begin)
    runs, end = [], len(falling)
    while end:
        runs.append(range(begins[end], end))
        end = begins[end]
    return runs[::-1]
