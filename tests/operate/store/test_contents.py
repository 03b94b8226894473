"""Contents of a repository, and paths that may come out of a store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tritonkit.errors import UsageError
from tritonkit.operate.store.contents import is_file_of_a_model, read_contents
from tritonkit.repository.export import sha256_file


def test_all_that_a_server_may_read(repository: Path) -> None:
    """Files of every version with hash and size; hidden ones and bytecode are left out; progress ends at the whole."""
    (repository / "net" / "1" / "__pycache__").mkdir()
    (repository / "net" / "1" / "__pycache__" / "model.pyc").touch()
    (repository / "net" / ".hidden").touch()
    (repository / "empty").mkdir()
    (repository / "signature.json").touch()
    reports: list[tuple[int, int]] = []
    contents = read_contents(repository, progress=lambda *figures: reports.append(figures))
    assert list(contents) == ["net", "other"]
    assert [entry.path for entry in contents["net"]] == [
        "1/manifest.json",
        "1/model.onnx",
        "config.pbtxt",
        "manifest.json",
        "warmup/sample",
    ]
    for entry in contents["net"]:
        assert entry.sha256 == sha256_file(repository / "net" / entry.path)
        assert entry.size_bytes == (repository / "net" / entry.path).stat().st_size
    assert reports[-1][0] == reports[-1][1] > 0
    assert read_contents(repository, deep=False) == contents
    assert list(read_contents(repository, ["other"])) == ["other"]


def test_what_cannot_be_copied_is_named(repository: Path, tmp_path: Path) -> None:
    """Links to folders, pipes, names that no model has, and models that are not there."""
    os.mkfifo(repository / "net" / "pipe")
    with pytest.raises(UsageError, match="net/pipe: it is a link to a folder, or no file"):
        read_contents(repository)
    (repository / "net" / "pipe").unlink()
    (repository / "net" / "1" / "linked").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="1/linked: it is a link to a folder"):
        read_contents(repository)
    (repository / "net" / "1" / "linked").unlink()
    (repository / "net" / "1" / "gone").symlink_to(tmp_path / "no")
    with pytest.raises(UsageError, match="cannot be read"):
        read_contents(repository)
    for name in ("no", "../repository/net", "a/b"):
        with pytest.raises(UsageError, match=r"does not hold it|no name of a model"):
            read_contents(repository, [name])
    with pytest.raises(UsageError, match="no such folder"):
        read_contents(tmp_path / "no")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../net/config.pbtxt",
        "1/../../x",
        "1//x",
        "./x",
        "1/.",
        "1/",
        ".hidden",
        ".staging/net",
        "1/.x/y",
        "__pycache__/model.pyc",
        "1/__pycache__/m.pyc",
        "a\\b",
        "a\x00b",
        "a\nb",
        "a\x1bb",
        "a\u202eb",
        "x" * 256,
        "\udcff",
        "x/" * 600 + "x",
    ],
)
def test_a_path_that_leads_elsewhere_is_none(path: str) -> None:
    """Out of the folder, into what is hidden, or into Python's bytecode."""
    assert not is_file_of_a_model(path)


@pytest.mark.parametrize("path", ["config.pbtxt", "1/model.onnx", "a..b", "1/assets/Größe ü.txt", "x" * 255])
def test_a_proper_path_is_one(path: str) -> None:
    """Letters of any script and spaces too."""
    assert is_file_of_a_model(path)
