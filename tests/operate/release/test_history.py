"""The versions that were served before a release are kept for a rollback."""

from __future__ import annotations

from pathlib import Path

from tritonkit.operate.release.history import keep, latest
from tritonkit.repository.publish.numbers import remember, used


def test_former_versions_and_numbers_lie_side_by_side(root: Path) -> None:
    """Neither is read as the other."""
    served = root / "served"
    (served / "net" / "1").mkdir(parents=True)
    remember(root, "net", {"net": 2})
    kept = [keep(root, served, "net", ["net 2"]) for _ in range(4)]
    assert latest(root, "net") == kept[-1]
    assert used(root, "net") == {"net": 2}
