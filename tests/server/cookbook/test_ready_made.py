"""The page about networks of Keras."""

from __future__ import annotations

import pytest

from bench.families.kitchen import Kitchen, Page
from tests.server.cookbook.conftest import Answer, assert_equal


@pytest.mark.needs("keras")
def test_a_keras_model(place: Kitchen, answers: Answer) -> None:
    """Labels and scores are those of Keras's own network, for 16 callers at the same time."""
    assert_equal(place, answers, Page.read("keras"))
