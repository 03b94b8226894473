"""Fixtures of the rooms that make a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonkit.repository.export import BuildCache


@pytest.fixture
def cache(root: Path) -> BuildCache:
    """An empty cache in the test's project."""
    return BuildCache(root / "cache")
