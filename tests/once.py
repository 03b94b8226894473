"""Work that tests would repeat is done once in a process.

The garbage collector looks through the objects that tests made, not those that they imported. torch reads its table
of ONNX operators for the first export alone.

Loaded by `conftest.py` as a pytest plugin.
"""

from __future__ import annotations

import copy
import gc
import sys
from functools import cache
from typing import Any

import pytest

LARGE = 300
"""Modules; a library that brings more is worth another look at what was imported."""
_settled = 0


def settle() -> None:
    """Take what was imported out of the garbage collector's sight: that of torch takes longer than most tests."""
    global _settled
    if len(sys.modules) > _settled + LARGE:
        _settled = len(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """All files of tests are imported."""
    settle()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A file's tests are over; they may have imported a library."""
    if nextitem is None or nextitem.path != item.path:
        settle()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Keep the operators of the exporter, if a test has imported it: reading them is much of a small export."""
    exporter = sys.modules.get("torch.onnx._internal.exporter._registration")
    registry = getattr(exporter, "ONNXRegistry", None)
    original = getattr(registry, "from_torchlib", None)
    if registry is None or original is None or hasattr(original, "kept"):
        return
    kept = cache(original)

    def from_torchlib(*args: Any, **options: Any) -> Any:
        """A registry of one's own with the same operators."""
        own = copy.copy(kept(*args, **options))
        own.functions = {name: list(known) for name, known in own.functions.items()}
        return own

    from_torchlib.kept = kept  # type: ignore[attr-defined]
    registry.from_torchlib = staticmethod(from_torchlib)
