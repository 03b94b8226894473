"""`tritonkit up` and `down`: two replicas behind a gateway, through TLS and key."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.running import failed, tritonkit
from tests.conftest import PROJECT
from tritonkit.operate.store import back_up, open_store
from tritonkit.serve.repository import read_models

pytestmark = pytest.mark.needs("envoy")


def test_up_and_down_by_command(shipped_repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the background until it is ended, from a backup; a second one is refused; nothing is left."""
    root = tmp_path / "project"
    (root / "models").mkdir(parents=True)
    (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
    shutil.copytree(shipped_repository, root / "model_repository")
    up = ("up", "--replicas", "2", "--model", "digits", "--no-prometheus", "--no-redis", "--root", str(root))
    assert "tritonkit certs" in failed(tritonkit(*up), 2)
    assert tritonkit("certs", "--root", str(root)).returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (root / "deploy" / "gateway" / "gateway.yaml").write_text(f"port: {taken.getsockname()[1]}\n")
        message = failed(tritonkit(*up), 4)
        assert "it is in use by" in message
        assert "gateway.yaml" in message
    (root / "deploy" / "gateway" / "gateway.yaml").write_text("port: 0\n")
    key = tritonkit("keys", "add", "me", "--root", str(root)).stdout.strip()
    store = open_store(str(tmp_path / "store"))
    back_up(shipped_repository, store, [model.name for model in read_models(shipped_repository, ["digits"])])
    with TemporaryDirectory(dir="/dev/shm") as memory:
        from_backup = ("--from-backup", store.url, "--memory", memory)
        _run_by_command(root, (*up, *from_backup), key, monkeypatch)
        assert list(Path(memory).iterdir()) == []


def _run_by_command(root: Path, up: tuple[str, ...], key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up, called, and down; no model lies in the project meanwhile, so none is released."""
    done = tritonkit(*up, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    names = ("replica-0", "replica-1", "gateway")
    assert {part["name"]: part["state"] for part in facts["parts"]} == dict.fromkeys(names, "ready")
    try:
        assert "it runs already" in failed(tritonkit(*up), 4)
        assert not list((root / ".tritonkit").rglob("config.pbtxt"))
        assert "from memory" in failed(tritonkit("release", "digits", "--root", str(root)), 2)
        call = (
            "call",
            "digits",
            "--input",
            f"image=@{PROJECT / 'models/digits/examples/seven.png'}",
            "--json",
            "--address",
            f"grpcs://{facts['gateway']}",
            "--ca",
            str(root / "deploy/gateway/tls/ca.crt"),
        )
        (root / "me.key").write_text(key)
        called = tritonkit(*call, "--api-key-file", str(root / "me.key"))
        assert json.loads(called.stdout)["outputs"]["label"][0][0] == "7", called.stderr
        assert "no key" in failed(tritonkit(*call), 5)
        replica = next(part["address"] for part in facts["parts"] if part["name"] == "replica-0")
        message = failed(tritonkit("reload", "--address", replica, cwd=root), 2)
        assert "tritonkit release" in message
        monkeypatch.setenv("TRITONKIT_API_KEY", key)
        assert tritonkit(*call).returncode == 0
    finally:
        assert tritonkit("down", "--root", str(root)).returncode == 0
    assert "none runs" in failed(tritonkit("down", "--root", str(root)), 2)
    for part in facts["parts"]:
        with pytest.raises(ProcessLookupError):
            os.kill(part["pid"], 0)
