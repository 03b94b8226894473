"""Errors of a batch, given to its callers."""

from __future__ import annotations

import pytest

from tritonkit.client.batching.blame import again, may_be_one_items
from tritonkit.errors import (
    CircuitOpen,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
    UsageError,
)


@pytest.mark.parametrize("kind", [InferenceError, InvalidInput])
def test_one_item_may_have_caused_it(kind: type[InferenceError]) -> None:
    """The model's own errors and refused inputs are looked into."""
    assert may_be_one_items(kind("m", found="bad"))


@pytest.mark.parametrize(
    "kind",
    [Overloaded, ServerUnavailable, CircuitOpen, DeadlineExceeded, ModelNotFound, UsageError],
)
def test_no_item_is_to_blame(kind: type[InferenceError]) -> None:
    """What concerns the server concerns every item: nothing is sent again."""
    assert not may_be_one_items(kind("m", found="bad"))


@pytest.mark.parametrize(
    "error", [InferenceError("m", found="bad", todo="x", details="y"), ValueError("a", 1)]
)
def test_a_twin_says_the_same(error: Exception) -> None:
    """Type, text and cause are kept in an object of its own."""
    error.__cause__ = OSError(1, "below")
    twin = again(error)
    assert twin is not error
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert twin.__cause__ is error.__cause__


class Particular(Exception):
    """Needs a word that its `args` do not hold."""

    def __new__(cls, *args: object, word: str) -> Particular:
        """Made with the word only."""
        return super().__new__(cls, *args)

    def __init__(self, *args: object, word: str) -> None:
        super().__init__(*args)


@pytest.mark.parametrize(
    "error",
    [Particular("a", word="b"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")],
)
def test_an_error_that_has_no_twin_is_given_itself(error: Exception) -> None:
    """Rather one object for all than an error about an error, or one that says less."""
    assert again(error) is error
