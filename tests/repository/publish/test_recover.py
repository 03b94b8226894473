"""A commit record that no publish of ours wrote: refused with nothing moved, wherever it points."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.repository.publish.test_publish import rendered
from tritonkit import disk
from tritonkit.errors import PublishError
from tritonkit.repository.publish import recover, staging
from tritonkit.repository.publish.publish import publish


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A repository with the model `net`, in a home folder of its own."""
    folder = tmp_path / "home" / "project" / "repository"
    folder.parent.mkdir(parents=True)
    (tmp_path / "home" / "precious").mkdir()
    (tmp_path / "home" / "precious" / "file").write_text("mine")
    publish(folder, [rendered(tmp_path / "a", b"one")])
    return folder


@pytest.fixture
def stage(out: Path) -> Callable[[Any], Path]:
    """Write a staging folder with a commit record, as a killed publish leaves it."""

    def write(record: Any) -> Path:
        folder = out.parent / ".repository.staging"
        (folder / "net").mkdir(parents=True)
        (folder / "net" / "config.pbtxt").write_text("new")
        text = record if isinstance(record, str) else json.dumps(record)
        (folder / "commit.json").write_text(text)
        return folder

    return write


def snapshot(folder: Path) -> dict[str, str]:
    """Every file and link below a folder."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text(errors="replace")
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize(
    "record",
    [
        {"net": 1, "../../precious": 1},
        {"net": 1, "../../../home/precious/file": 1},
        {"net": 1, "ABSOLUTE": 1},
        {"net": 1, ".": 1},
        {"net": 1, "..": 1},
        {"net": 1, "": 1},
        {"net": 1, ".hidden": 1},
        {"net": 1, "a/b": 1},
        {"net": 1, "a\x00b": 1},
        {"net": 1, "net\n": 1},
        {"net": "1"},
        {"net": True},
        {"net": 1, "missing": 1},
        ["net"],
        "",
        "{",
        "[" * 100_000,
    ],
    ids=lambda record: repr(record)[:40],
)
def test_names_that_lead_elsewhere_are_refused(
    out: Path, stage: Callable[[Any], Path], tmp_path: Path, record: Any
) -> None:
    """The whole record is read before anything is moved: neither what it points at nor the good name before it."""
    if isinstance(record, dict) and "ABSOLUTE" in record:
        record = {"net": 1, str(tmp_path / "home" / "precious"): 1}
    staged = stage(record)
    # What a name with `..` would be exchanged with: one folder stands at the other end already.
    (staged.parent.parent / "home").mkdir(exist_ok=True)
    before = snapshot(tmp_path)
    for attempt in (recover, lambda out: publish(out, [rendered(tmp_path / "a", b"two")])):
        with pytest.raises(PublishError) as caught:
            attempt(out)
        assert caught.value.exit_code == 3
        assert str(staged) in str(caught.value)
        (tmp_path / "a" / "model.onnx").write_bytes(b"one")
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("place", ["staged", "final", "record", "folder", "huge"])
def test_links_are_not_followed(out: Path, stage: Callable[[Any], Path], tmp_path: Path, place: str) -> None:
    """A link for a staged model, a served one, the record or the staging folder itself is refused."""
    staged = stage({"net": 1, "other": 2})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("mine")
    (staged / "other").mkdir()
    if place == "staged":
        (staged / "other").rmdir()
        (staged / "other").symlink_to(elsewhere)
    elif place == "final":
        (out / "other").symlink_to(elsewhere)
    elif place == "record":
        os.replace(staged / "commit.json", elsewhere / "commit.json")  # noqa: PTH105
        (staged / "commit.json").symlink_to(elsewhere / "commit.json")
    elif place == "folder":
        staged.rename(elsewhere / "staging")
        staged.symlink_to(elsewhere / "staging")
    else:
        (staged / "commit.json").write_text(" " * (2 << 20) + '{"net": 1}')
    before = snapshot(tmp_path)
    with pytest.raises(PublishError, match=r"symbolic link|not a record of a publish"):
        recover(out)
    assert snapshot(tmp_path) == before


def test_a_model_that_is_a_link_is_not_a_place_for_staging(out: Path, tmp_path: Path) -> None:
    """`.staging` in a folder that a model links to belongs to somebody else."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".staging").mkdir(parents=True)
    (elsewhere / ".staging" / "file").write_text("mine")
    (elsewhere / "config.pbtxt").write_text("")
    (out / "linked").symlink_to(elsewhere)
    before = snapshot(elsewhere)
    assert not recover(out)
    assert snapshot(elsewhere) == before


@pytest.mark.needs("root")
def test_another_users_staging_folder_is_refused(out: Path, stage: Callable[[Any], Path]) -> None:
    """In a shared folder anybody can make one: it is not put in place of what is served."""
    staged = stage({"net": 1})
    os.chown(staged, 12345, 12345)
    with pytest.raises(PublishError, match="it belongs to user 12345"):
        recover(out)
    os.chown(staged, os.geteuid(), os.getegid())
    staged.chmod(0o777)
    with pytest.raises(PublishError, match="every user may write into it"):
        recover(out)
    staged.chmod(0o700)
    assert recover(out)
    assert (out / "net" / "config.pbtxt").read_text() == "new"


def test_everything_is_on_the_disk_before_it_is_renamed(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is: files, their folders, the record, then the exchange, then the repository's own folder."""
    calls: list[tuple[str, str]] = []
    fsync, rename, replace, exchange = os.fsync, os.rename, os.replace, staging._exchange

    def name(path: Any) -> str:
        return str(Path(path).relative_to(out.parent))

    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: (calls.append(("sync", name(os.readlink(f"/proc/self/fd/{fd}")))), fsync(fd)),  # noqa: PTH115
    )
    monkeypatch.setattr(os, "rename", lambda a, b: (calls.append(("rename", name(b))), rename(a, b)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append(("rename", name(b))), replace(a, b)))
    monkeypatch.setattr(staging, "_exchange", lambda a, b: (calls.append(("rename", name(b))), exchange(a, b)))
    models = [rendered(tmp_path / "a", b"two"), rendered(tmp_path / "b", b"new", "other")]
    publish(out, models)

    def at(kind: str, path: str) -> int:
        return calls.index((kind, path))

    hidden = ".repository.staging"
    record = at("rename", f"{hidden}/commit.json")
    for model, version in (("net", "2"), ("other", "1")):
        folder = f"{hidden}/{model}"
        file = at("sync", f"{folder}/{version}/model.onnx")
        assert file < at("sync", f"{folder}/{version}") < at("sync", folder) < record
        for part in ("config.pbtxt", "manifest.json", "warmup/sample"):
            assert at("sync", f"{folder}/{part}") < at("sync", folder)
    assert at("sync", f"{hidden}/commit.json.unfinished") < record
    first, second = at("rename", "repository/net"), at("rename", "repository/other")
    assert ("sync", hidden) in calls[record:first]
    assert calls[first + 1] == calls[second + 1] == ("sync", "repository")


def test_a_file_system_that_cannot_sync_folders_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EINVAL of fsync is ignored; an error that the disk is broken is not."""
    import errno

    def fails(number: int) -> Callable[[int], None]:
        def fsync(fd: int) -> None:
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", fails(errno.EINVAL))
    disk.write_whole(tmp_path / "file", b"content")
    monkeypatch.setattr(os, "fsync", fails(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        disk.write_whole(tmp_path / "file", b"other")
    assert (tmp_path / "file").read_bytes() == b"content"
