"""A backup that is restored while a server runs, and one that is served from memory."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.running import tritonkit
from tests.server.own.test_reload import Project
from tests.server.steady import steady
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.operate.store import back_up, open_store, restore
from tritonkit.operate.store.keys import new_encryption_key, new_signing_key, read_encryption_key, read_signing_key
from tritonkit.operate.store.signature import sign
from tritonkit.serve import serve

PER_S = 100


@pytest.fixture
def published(root: Path, project: Path) -> Project:
    """A project with its first version published."""
    (root / ".venv-server").symlink_to(project / ".venv-server")
    return Project(root, project)


@pytest.fixture
def other(tmp_path: Path, project: Path) -> Project:
    """Another one of the same model, with a version 2 that answers otherwise."""
    root = tmp_path / "other"
    (root / "models").mkdir(parents=True)
    (root / "python_backends").symlink_to(project / "python_backends")
    made = Project(root, project)
    made.publish(7)
    return made


@pytest.mark.slow
def test_no_request_fails_while_backups_are_restored(published: Project, other: Project, tmp_path: Path) -> None:
    """An earlier version, then another network under a version number that is being served: once `reload` has
    returned, the restored models answer; a signature next to the models is not a model."""
    repository, store = published.root / "model_repository", open_store(str(tmp_path / "store"))
    new_signing_key(tmp_path / "key")
    sign(repository, read_signing_key(tmp_path / "key"))
    first = back_up(repository, store).id
    published.publish(1)
    back_up(other.root / "model_repository", store)
    ports = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}
    with (
        serve(repository, **ports, root=published.root, finalize_timeout_s=0) as endpoint,
        Client(endpoint.grpc, timeout_s=PATIENCE_S) as client,
    ):
        model = client.model("constant")

        def call() -> str:
            return str(model.predict(image=published.image)["label"][0, 0].decode())

        def taken() -> str:
            done = tritonkit("reload", "constant", "--address", endpoint.grpc, cwd=published.root)
            assert done.returncode == 0, done.stderr
            answer = call()
            eventually(lambda: stream.answers[answer] > 0, f"answers {answer}")
            return answer

        with steady(call, PER_S) as stream:
            assert call() == "1"
            restore(store, repository)
            assert taken() == "7"
            restore(store, repository, as_of=first)
            assert taken() == "0"
            published.publish(2)
            assert taken() == "2"
            eventually(lambda: stream.answers["2"] > PER_S, "more answers")
    assert stream.failures == []
    assert set(stream.answers) == {"0", "1", "2", "7"}


def test_served_from_memory(published: Project, tmp_path: Path) -> None:
    """Restored below /dev/shm and nowhere else, it answers."""
    store = open_store(str(tmp_path / "store"))
    back_up(published.root / "model_repository", store)
    with TemporaryDirectory(dir="/dev/shm") as memory:
        place = Path(memory) / "models"
        done = tritonkit("restore", store.url, "--repository", str(place), "--memory-only")
        assert done.returncode == 0, done.stderr
        ports = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}
        with serve(place, **ports, root=published.root) as endpoint, Client(endpoint.grpc) as client:
            answer = client.model("constant").predict(image=published.image)["label"][0, 0]
            assert answer == b"0"


@pytest.mark.parametrize("ended_by", [signal.SIGHUP, signal.SIGKILL])
def test_a_backup_is_served_from_memory(published: Project, tmp_path: Path, ended_by: signal.Signals) -> None:
    """Decrypted there alone, it answers; at the end, whatever ends it, nothing is left there, or not for long."""
    new_encryption_key(tmp_path / "key")
    store = open_store(str(tmp_path / "store"))
    back_up(published.root / "model_repository", store, key=read_encryption_key(tmp_path / "key"))
    with TemporaryDirectory(dir="/dev/shm") as memory, ExitStack() as ended:
        words = (
            "serve",
            "--from-backup",
            store.url,
            "--encryption-key",
            str(tmp_path / "key"),
            "--memory",
            memory,
            "--root",
            str(published.root),
            "--grpc-port",
            "0",
            "--metrics-port",
            "0",
        )

        def start() -> tuple[subprocess.Popen[str], str]:
            server = subprocess.Popen([sys.executable, "-m", "tritonkit", *words], stdout=subprocess.PIPE, text=True)
            ended.callback(server.kill)
            assert server.stdout is not None
            return server, server.stdout.readline().split()[-1]

        server, address = start()
        with server, Client(address) as client:
            answer = client.model("constant").predict(image=published.image)["label"][0, 0]
            assert answer == b"0"
            assert list(Path(memory).glob("*/models/constant/config.pbtxt"))
            server.send_signal(ended_by)
        assert server.returncode == (-ended_by if ended_by == signal.SIGKILL else 0)
        if ended_by == signal.SIGKILL:
            (left,) = Path(memory).iterdir()
            server, _ = start()
            with server:
                assert not left.exists()
                server.send_signal(signal.SIGTERM)
        assert list(Path(memory).iterdir()) == []
