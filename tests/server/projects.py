"""Projects of tests that build what the real project has built before."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import PROJECT

__all__ = ["share_cache"]


def share_cache(root: Path) -> None:
    """Give a project the real one's cache of builds, and the lock that keeps two builds from using it together."""
    (root / ".tritonkit").mkdir()
    (PROJECT / ".tritonkit" / "cache").mkdir(parents=True, exist_ok=True)
    for name in ("cache", "build.lock"):
        (root / ".tritonkit" / name).symlink_to(PROJECT / ".tritonkit" / name)
