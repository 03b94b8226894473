"""Version numbers of candidates are known afterwards, whatever became of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonkit.errors import UsageError
from tritonkit.repository.publish.numbers import FOLDER, remember, used


def test_the_highest_number_of_each_model_is_known(root: Path) -> None:
    """Each spec has its own; a lower number changes nothing, and a removed model is not forgotten."""
    assert used(root, "net") == {}
    remember(root, "net", {"net": 3, "net_step": 1})
    remember(root, "net", {"net": 2, "net_other": 4})
    assert used(root, "net") == {"net": 3, "net_step": 1, "net_other": 4}
    assert used(root, "other") == {}


def test_the_file_is_its_owner_s(root: Path) -> None:
    """Nothing unfinished is left next to it."""
    remember(root, "net", {"net": 1})
    (file,) = (root / FOLDER / "net").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("numbers.json", 0o600)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"net": 3',
        b"\xff\xfe",
        b"[3]",
        b"null",
        b'{"net": "3"}',
        b'{"net": true}',
        b'{"net": 2.5}',
        b'{"net": 0}',
        b'{"net": -1}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_an_empty_one(root: Path, content: bytes) -> None:
    """No release fails for it, and the next one writes it again."""
    remember(root, "net", {"net": 3})
    (root / FOLDER / "net" / "numbers.json").write_bytes(content)
    assert used(root, "net") == {}
    remember(root, "net", {"net": 1})
    assert used(root, "net") == {"net": 1}


def test_what_cannot_be_written_is_said(root: Path) -> None:
    """A folder is in its place: the error says where and why, and nothing is left next to it."""
    file = root / FOLDER / "net" / "numbers.json"
    file.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"numbers\.json"):
        remember(root, "net", {"net": 1})
    assert list(file.parent.iterdir()) == [file]
