"""Requests with known answers, because a load that counts wrong answers as right measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LEAST_COSINE",
    "Check",
    "Outputs",
    "Request",
    "Workload",
    "expect_each",
    "expect_embedding",
    "expect_label",
    "expect_like",
]

Outputs: TypeAlias = Mapping[str, NDArray[Any]]
Check: TypeAlias = Callable[[Outputs], str]
"""Takes an answer's outputs, batch axis first; gives its fault, or an empty text.

The texts are few, and the same for the same mistake: they are counted.
"""

LEAST_COSINE = 0.999
"""Cosine to the known embedding: batches and paddings of other sizes move an embedding by less than 1e-4."""

_LENGTH_OFF = 1e-3


@dataclass(frozen=True)
class Request:
    """One item to send, by input name, and the check of its answer."""

    inputs: Mapping[str, Any]
    check: Check


@dataclass(frozen=True)
class Workload:
    """The requests to a model, sent in any order and as often as needed."""

    model: str
    requests: tuple[Request, ...]


def expect_label(label: str, output: str = "label") -> Check:
    """The best label, the first of bytes [1, k], is this one."""
    expected = label.encode()

    def check(outputs: Outputs) -> str:
        label_found = outputs[output].ravel()[0]
        return "" if label_found == expected else f"label {_text(label_found)}, expected {label}"

    return check


def expect_embedding(expected: NDArray[Any], output: str = "embedding") -> Check:
    """float32 [1, width] has length 1 and the direction of `expected` [width], which has length 1."""

    def check(outputs: Outputs) -> str:
        values = outputs[output].ravel()
        if values.shape != expected.shape:
            return f"{output} has {values.size} numbers, expected {expected.size}"
        # Written so that NaN, which compares with nothing, is wrong too.
        if not abs(float(np.linalg.norm(values)) - 1.0) <= _LENGTH_OFF:
            return f"{output} is not of length 1"
        if not float(values @ expected) >= LEAST_COSINE:
            return f"{output} has a cosine below {LEAST_COSINE} to the known one"
        return ""

    return check


def expect_like(first: Outputs) -> Check:
    """The outputs have the names, types and shapes of a first answer, and no NaN or infinity."""
    expected = {name: (array.dtype, array.shape) for name, array in first.items()}

    def check(outputs: Outputs) -> str:
        for name, (dtype, shape) in expected.items():
            values = outputs.get(name)
            if values is None or (values.dtype, values.shape) != (dtype, shape):
                return f"{name} is not {dtype} {list(shape)}, as it was at first"
            if dtype.kind == "f" and not np.isfinite(values).all():
                return f"{name} holds NaN or infinity"
        return ""

    return check


def expect_each(first: Sequence[Outputs]) -> Check:
    """Check that a reply's outputs occur in the first stream, with their type and rank, and without NaN or infinity."""
    kinds = {name: (array.dtype, array.ndim) for outputs in first for name, array in outputs.items()}

    def check(outputs: Outputs) -> str:
        for name, array in outputs.items():
            if kinds.get(name) != (array.dtype, array.ndim):
                return f"{name} is not of the type and rank that it had at first"
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return f"{name} holds NaN or infinity"
        return ""

    return check


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
