"""Thread counts that libraries get."""

from __future__ import annotations

import os

import pytest

from tritonkit.serve.core.threads import CORES_VARIABLE, thread_variables


def test_only_a_quota_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries respect an affinity by themselves; the user's variables stay."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert thread_variables(64, {}) == {}
    variables = thread_variables(2, {"OMP_NUM_THREADS": "8"})
    assert (variables[CORES_VARIABLE], variables["OPENBLAS_NUM_THREADS"]) == ("2", "2")
    assert "OMP_NUM_THREADS" not in variables
