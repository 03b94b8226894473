"""Decrypted into memory only: a folder that lies on a disk is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonkit.errors import UsageError
from tritonkit.operate.store import memory
from tritonkit.operate.store.memory import require_memory


def test_a_folder_in_memory(small_disk: Path) -> None:
    """On a tmpfs, whether it is there yet or not, and through a link."""
    require_memory(small_disk)
    require_memory(small_disk / "a" / "b")
    (small_disk.parent / "link").symlink_to(small_disk)
    require_memory(small_disk.parent / "link" / "a")


def test_shared_memory_is_memory() -> None:
    """Linux keeps it in a tmpfs."""
    if Path("/dev/shm").is_mount():  # noqa: S108
        require_memory(Path("/dev/shm/models"))  # noqa: S108


def test_a_folder_elsewhere_is_refused(small_disk: Path) -> None:
    """It says what it is; a link on a tmpfs that leads off it does not help."""
    with pytest.raises(UsageError, match="of the kind proc, not in memory"):
        require_memory(Path("/proc/no/such"))
    (small_disk / "link").symlink_to("/proc")
    with pytest.raises(UsageError, match="not in memory"):
        require_memory(small_disk / "link" / "models")


def test_what_is_not_known_is_refused(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is in no line of the table of mounts."""
    (tmp_path / "mountinfo").write_text("")
    monkeypatch.setattr(memory, "_MOUNTS", tmp_path / "mountinfo")
    with pytest.raises(UsageError, match="of the kind unknown"):
        require_memory(small_disk)
