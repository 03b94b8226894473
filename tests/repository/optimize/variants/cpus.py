"""INT8 weights as each kind of CPU gets them, on any machine."""

from __future__ import annotations

import pytest

from tritonkit.repository.optimize.variants.int8_cpu import BITS_VARIABLE

__all__ = ["each_cpu"]


@pytest.fixture(params=["", "7"], ids=["this-cpu", "without-vnni"])
def each_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights for this CPU, then the 7-bit ones of CPUs without VNNI, which compute the same everywhere."""
    monkeypatch.setenv(BITS_VARIABLE, request.param)
