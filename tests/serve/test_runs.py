"""Details of a run that other programs of its owner can read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.rooms import no_room
from tritonkit.cli.options import read_key
from tritonkit.serve.runs import clear, find_own_key_file, new_run_dir, write_owner, write_run
from tritonkit.serve.values import Endpoint


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def begun(root: Path, address: str, key: str) -> Path:
    """The folder of a run of this process."""
    run_dir = new_run_dir(root)
    (run_dir / "owner").write_text(str(os.getpid()))
    log = run_dir / "server.log"
    write_run(run_dir, Endpoint(address, "", "", os.getpid(), log, (), 1.0, "2.51.0", key))
    return run_dir


def test_a_command_elsewhere_finds_the_key_of_the_users_server(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key belongs to the running server at that address of this machine, and to no other address."""
    run_dir = begun(tmp_path / "project", "127.0.0.1:8001", "secret")
    other = begun(tmp_path / "other", "127.0.0.1:9001", "another")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_key(None, "127.0.0.1:8001") == "secret"
    assert read_key(None, "grpc://localhost:9001") == "another"
    assert read_key(None, "127.0.0.1:7001") is None
    assert read_key(None, "10.0.0.1:8001") is None
    assert all(file.stat().st_mode & 0o077 == 0 for file in (cache / "tritonkit" / "runs").iterdir())
    clear(run_dir)
    assert read_key(None, "127.0.0.1:8001") is None
    (other / "owner").write_text("999999999")  # killed
    assert find_own_key_file("127.0.0.1:9001") is None


def test_runs_that_are_gone_are_forgotten(tmp_path: Path, cache: Path) -> None:
    """The next server removes what killed ones left; a cache folder that cannot be written changes nothing."""
    noted = cache / "tritonkit" / "runs"
    noted.mkdir(parents=True)
    (noted / "old").write_text(str(tmp_path / "gone"))
    (noted / "odd").write_bytes(b"\xff")
    run_dir = begun(tmp_path / "project", "127.0.0.1:8001", "secret")
    assert [file.name for file in noted.iterdir()] == [run_dir.name]
    clear(run_dir)
    noted.rmdir()
    noted.write_text("a file")
    clear(begun(tmp_path / "project", "127.0.0.1:8001", "secret"))
    assert find_own_key_file("127.0.0.1:8001") is None


def test_a_run_that_another_server_has_removed_is_cleared(tmp_path: Path, cache: Path) -> None:
    """Two servers of a project end and start together: the folder of the first may go before it is cleared."""
    run_dir = begun(tmp_path / "project", "127.0.0.1:8001", "secret")
    shutil.rmtree(run_dir)
    clear(run_dir)
    assert find_own_key_file("127.0.0.1:8001") is None


def test_a_server_is_started_again_where_the_disk_has_become_full(tmp_path: Path, cache: Path) -> None:
    """Nothing that the second start writes needs more room than the first."""
    run_dir = begun(tmp_path, "127.0.0.1:8001", "secret")
    write_owner(run_dir, 1)
    room = (run_dir / "owner").stat().st_size
    log = run_dir / "server.log"
    with no_room(room):
        write_owner(run_dir, os.getpid())
        write_run(run_dir, Endpoint("127.0.0.1:8001", "", "", os.getpid(), log, (), 2.0, "2.51.0", "secret"))
    assert int((run_dir / "owner").read_text()) == os.getpid()
    assert read_key(None, "127.0.0.1:8001") == "secret"
