"""The network, the inputs and the expected answers of each page of the cookbook."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.families.kitchen import Kitchen
    from tritonkit.client import Reply

__all__ = ["Answer", "Item", "Recipe", "compared", "from_floats", "from_json", "items_of", "recipes"]

Item = Mapping[str, Any]
"""A request by the names of its inputs: a text, a file, a number, a tuple of texts, or a float32 vector."""


@dataclass(frozen=True)
class Answer:
    """An answer to one request, from the server or from a reference.

    Args:
        numbers: scores, or a vector.
        names: labels, words, spans, or the classes of pixels, which are equal or not.
    """

    numbers: Sequence[float] | NDArray[Any]
    names: Sequence[Any] | NDArray[Any] = ()


@dataclass(frozen=True)
class Recipe:
    """A page's stand-ins and references.

    Args:
        model: the name under which the page serves.
        files: the folder of a reader's files, which the app in FastAPI reads too.
        app: its module in `apps`, and its class.
        prepare: puts the files of a reader in place, for a small network or one of the page's own size; gives requests.
        reference: the answers of the library that the network comes from, given the project's folder.
        served: reads the answer from the server's reply to one request.
        peer: reads the answer from the body of the FastAPI app's response.
        at_most: the largest difference of a number that is right.
    """

    model: str
    files: str
    app: str
    prepare: Callable[[Kitchen, bool], list[Item]]
    reference: Callable[[Path, Sequence[Item]], list[Answer]]
    served: Callable[[Reply], Answer]
    peer: Callable[[bytes], Answer]
    at_most: float = 1e-3
    spec: str = ""
    """The spec whose network the app runs, where it is another model's."""

    steps: bool = True
    """Whether the page has steps around the network."""

    aligned: bool = False
    """Whether an answer may lack names of the reference or have more."""

    counted: str = ""
    """The network whose batches count, of a page with several."""

    @property
    def network(self) -> str:
        """The network's name in the repository."""
        return self.counted or (f"{self.spec or self.model}_network" if self.steps else self.model)


def recipes() -> dict[str, Recipe]:
    """Every recipe by the name of its page."""
    from bench.families import faces, images, ocr, ready_made, sounds, tables, texts

    modules = (texts, images, sounds, tables, ocr, faces, ready_made)
    return {name: recipe for module in modules for name, recipe in module.RECIPES.items()}


def compared(answers: Sequence[Answer], references: Sequence[Answer], *, aligned: bool = False) -> tuple[float, float]:
    """The share of equal names over all answers, 1 where there are none, and the largest difference of a number among
    those whose names are equal.

    Args:
        aligned: whether an answer may lack names or have more, so that equal ones stand at other places.
    """
    equal = total = 0
    largest = 0.0
    for answer, reference in zip(answers, references, strict=True):
        names, expected = list(answer.names), list(reference.names)
        if aligned:
            same = sum(
                block.size for block in SequenceMatcher(None, names, expected, autojunk=False).get_matching_blocks()
            )
        else:
            same = sum(one == other for one, other in zip(names, expected, strict=False))
        equal, total = equal + same, total + max(len(names), len(expected))
        if names == expected:
            numbers = np.asarray(answer.numbers, np.float64), np.asarray(reference.numbers, np.float64)
            fit = numbers[0].shape == numbers[1].shape
            largest = max(largest, float(np.abs(numbers[0] - numbers[1]).max(initial=0.0)) if fit else float("inf"))
    return float(equal / total) if total else 1.0, largest


def from_json(body: bytes) -> Answer:
    """The answer of an app that gives names and numbers as JSON."""
    content = json.loads(body)
    names = [tuple(name) if isinstance(name, list) else name for name in content["names"]]
    return Answer(content["numbers"], names)


def from_floats(body: bytes) -> Answer:
    """The answer of an app that gives a vector as bytes."""
    return Answer(np.frombuffer(body, np.float32))


def items_of(name: str, values: Sequence[str | bytes]) -> list[Item]:
    """Requests with one input."""
    return [{name: value} for value in values]
