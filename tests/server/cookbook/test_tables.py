"""Pages about tables, with models that are trained on a small one."""

from __future__ import annotations

import numpy as np
import pytest

from bench.families.kitchen import Kitchen, Page
from tests.server.cookbook.conftest import Answer, assert_equal

pytestmark = pytest.mark.needs("trees")


def test_xgboost(place: Kitchen, answers: Answer) -> None:
    """Probabilities are XGBoost's own, with missing values and categories, for 16 callers at the same time."""
    expected = assert_equal(place, answers, Page.read("xgboost"))
    assert np.ptp([answer.numbers[0] for answer in expected]) > 0.5  # the model learned something to get wrong


def test_scikit_learn(place: Kitchen, answers: Answer) -> None:
    """Classes and probabilities are scikit-learn's own, with gaps and unseen texts, for 16 callers at the same time."""
    expected = assert_equal(place, answers, Page.read("scikit-learn"))
    assert len({answer.names[0] for answer in expected}) == 2
