"""`tritonkit deploy fetch` from real stores, and what `deploy diagnose` makes of its words."""

from __future__ import annotations

import copy
import json
import shutil
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.cli.running import Done, failed, tritonkit_here
from tests.operate.deploy.kubernetes.test_diagnose import only
from tests.operate.store.trees import tree
from tests.repository.publish.test_publish import rendered
from tests.stores import HttpFolder
from tritonkit.errors import StoreError
from tritonkit.operate.deploy.cluster import causes_of
from tritonkit.operate.deploy.fetch import fetch
from tritonkit.operate.store import back_up, open_store
from tritonkit.repository.publish.publish import publish

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Two models; `net` is larger than one read."""
    folder = tmp_path / "published"
    net = rendered(tmp_path / "net", bytes(range(256)) * 5000, "net")
    publish(folder, [net, rendered(tmp_path / "other", b"other weights", "other")])
    return folder


@pytest.fixture
def backup(published: Path, http_folder: HttpFolder) -> str:
    """The ID of a backup of them that is to be had by HTTP."""
    return back_up(published, open_store(str(http_folder.folder))).id


def run_fetch(url: str, target: Path, *more: str) -> Done:
    """The command, as the init container runs it."""
    return tritonkit_here("deploy", "fetch", "--from", url, "--to", str(target), *more)


def diagnosed(log: str) -> str:
    """The cause that `deploy diagnose` finds in a pod whose init container ended with this log."""
    state = only("manifest")
    for key in state.logs:
        if key[1] == "models":
            state.logs[key] = log
    return causes_of(copy.deepcopy(state))[0].cause


def test_a_folder_has_the_models_of_the_backup_and_no_others(
    backup: str, published: Path, http_folder: HttpFolder, tmp_path: Path
) -> None:
    """A fetch over HTTP; a second one downloads no file of a model again."""
    target = tmp_path / "models"
    shutil.copytree(published / "net", target / "old")
    done = run_fetch(http_folder.url, target)
    assert done.returncode == 0, done.stderr
    assert f"backup {backup}: net, other" in done.stdout
    assert "1 MiB: fetched in " in done.stdout
    assert " s, verified in " in done.stdout
    assert tree(target) == tree(published)
    before = {path: n for path, n in http_folder.asked.items() if "/blobs/" in path}
    done = run_fetch(http_folder.url, target, "--json")
    assert json.loads(done.stdout)["models"] == ["net", "other"]
    assert {path: n for path, n in http_folder.asked.items() if "/blobs/" in path} == before


def test_pods_can_be_held_to_a_backup(backup: str, published: Path, http_folder: HttpFolder, tmp_path: Path) -> None:
    """A later one does not change what they serve; one that is not there is named."""
    publish(published, [rendered(tmp_path / "new", b"new weights", "net")])
    back_up(published, open_store(str(http_folder.folder)))
    assert run_fetch(http_folder.url, tmp_path / "models", "--as-of", backup).returncode == 0
    assert not (tmp_path / "models/net/2").exists()
    done = run_fetch(http_folder.url, tmp_path / "models", "--as-of", "1999")
    assert "--as-of 1999" in failed(done, 2)


def test_a_store_that_is_down_is_said(tmp_path: Path) -> None:
    """And diagnose knows the words."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    done = run_fetch(f"http://127.0.0.1:{port}/models", tmp_path / "models")
    message = failed(done, 5)
    assert f"127.0.0.1:{port}" in message
    assert diagnosed(message) == "store down"
    assert not (tmp_path / "models").exists()


def test_a_store_that_is_silent_is_waited_for_no_longer(tmp_path: Path) -> None:
    """Its library would try again for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/models"
        with pytest.raises(StoreError, match="the store does not answer") as refusal:
            fetch(url, tmp_path / "models", answer_s=0.5)
    assert diagnosed(str(refusal.value)) == "store down"


@pytest.mark.parametrize("damage", ["changed", "missing", "index"])
def test_a_damaged_file_is_named_and_nothing_is_put_in_place(
    backup: str, published: Path, http_folder: HttpFolder, tmp_path: Path, damage: str
) -> None:
    """Its hash is not the one of the index, it is not there, or the index is not what was written."""
    blob = max((http_folder.folder / "blobs").rglob("*"), key=lambda file: file.stat().st_size)
    if damage == "missing":
        blob.unlink()
    elif damage == "changed":
        blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    else:
        index = http_folder.folder / "backups" / f"{backup}.json"
        index.write_text(index.read_text().replace("other", "othar"))
    done = run_fetch(http_folder.url, tmp_path / "models")
    message = failed(done, 5)
    assert (backup if damage == "index" else blob.name) in message
    cause = "models not fetched" if damage == "index" else "damaged repository"
    assert diagnosed(message) == cause
    assert not (tmp_path / "models" / "net").exists()


def test_from_s3(s3: str, published: Path, tmp_path: Path) -> None:
    """The account is the environment's."""
    back_up(published, open_store(s3))
    done = run_fetch(s3, tmp_path / "models")
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "models") == tree(published)


def test_an_account_that_may_not_read_is_said(s3: str, s3_server: str, published: Path, tmp_path: Path) -> None:
    """The server asks from now on who calls, and does not know this one."""
    back_up(published, open_store(s3))
    _ask_for_accounts(s3_server, b"0")
    try:
        message = failed(run_fetch(s3, tmp_path / "models"), 5)
    finally:
        _ask_for_accounts(s3_server, b"inf")
    assert "access is refused" in message
    assert diagnosed(message) == "store down"


def test_without_an_account_it_is_said(
    s3: str, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Secret is missing."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    message = failed(run_fetch(s3, tmp_path / "models"), 5)
    assert "credentials" in message
    assert diagnosed(message) == "store down"


def _ask_for_accounts(server: str, after: bytes) -> None:
    url = f"{server}/moto-api/reset-auth"
    request = urllib.request.Request(url, data=after, headers={"Content-Type": "text/plain"})
    urllib.request.urlopen(request, timeout=10).read()
