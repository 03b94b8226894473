"""Tuning on a Triton that runs already: it is served as before at the end, and its repository stays as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from tests.cli.running import failed, tritonkit, tritonkit_here
from tests.conftest import PROJECT
from tests.ports import free_port
from tests.server.conftest import WriteServerModels
from tests.server.models import ModelText
from tests.server.projects import share_cache
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.errors import InferenceError, ServerError
from tritonkit.perf.load.openloop import parse_slo
from tritonkit.perf.tune import Evaluation, Listener, remote
from tritonkit.perf.tune.run import TunePlan, prepared, tune
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import Endpoint, Server, serve

FREE = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}
MODELS = ("digits", "digits_decode_image", "digits_network", "digits_top_k")
TUNE = ("tune", "digits", "--slo", "p50=100ms")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with digits and its repository."""
    root = tmp_path_factory.mktemp("served")
    (root / "python_backends").symlink_to(PROJECT / "python_backends")
    shutil.copytree(PROJECT / "models" / "digits", root / "models" / "digits")
    (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
    share_cache(root)
    build_repository(root, ("digits",))
    return root


@pytest.fixture(scope="module")
def server(served: Path) -> Iterator[Endpoint]:
    """It is served, as `tritonkit serve` does."""
    with serve(served / "model_repository", **FREE, root=served, finalize_timeout_s=0) as endpoint:
        yield endpoint


@pytest.fixture
def as_before(served: Path, server: Endpoint) -> Iterator[Callable[[], bool]]:
    """Compares at the end of a test, and when it is called: configurations, and all files of the repository."""

    def files() -> dict[Path, tuple[int, bytes]]:
        places = (served / "model_repository").rglob("*")
        return {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in places if f.is_file()}

    kept, configs = files(), configurations(server)
    yield lambda: configurations(server) == configs
    assert configurations(server) == configs
    assert files() == kept


def configurations(server: Endpoint) -> dict[str, Any]:
    """With which the models are served now."""
    with Client(server.grpc) as client:
        return {name: client.config(name) for name in MODELS}


def test_a_model_is_loaded_with_another_configuration(write_server_models: WriteServerModels, tmp_path: Path) -> None:
    """A configuration is a message or JSON, and can be undone. One that Triton refuses changes nothing; nor does
    a load without one, unless the repository's is newer."""
    repository = write_server_models(echo=ModelText())
    with (
        serve(repository, **FREE, root=tmp_path) as endpoint,
        Client(endpoint.grpc, admin_key=endpoint.admin_key) as client,
    ):
        file = repository / "echo" / "config.pbtxt"
        text = file.read_bytes()
        before = client.config("echo")
        other = client.config("echo")
        other.instance_group[0].count = 2
        client.load("echo", config=other)
        assert client.config("echo").instance_group[0].count == 2
        with pytest.raises(InferenceError, match="echo"):
            client.load("echo", config="{")
        assert client.config("echo").instance_group[0].count == 2
        client.load("echo")
        assert client.config("echo").instance_group[0].count == 2
        client.load("echo", config=before)
        assert client.config("echo") == before
        client.load("echo", config=json_format.MessageToJson(other))
        assert client.config("echo").instance_group[0].count == 2
        assert file.read_bytes() == text
        os.utime(file)
        client.load("echo")
        assert client.config("echo") == before


def test_a_search_at_an_address_leaves_the_server_as_it_was(
    served: Path, server: Endpoint, as_before: Callable[[], bool], tmp_path: Path
) -> None:
    """It finds a way that holds the target, having tried others; JSON, a page and what is known are written."""
    done = tritonkit(
        *TUNE,
        "--budget",
        "150s",
        "--trial",
        "1s",
        "--json",
        "--address",
        server.grpc,
        "--report",
        str(tmp_path / "out"),
        cwd=served,
    )
    assert done.returncode == 0, done.stderr
    assert as_before()
    facts = json.loads(done.stdout)
    assert facts["best"]["rate_per_s"] > 0
    assert len({json.dumps(evaluation["point"]) for evaluation in facts["evaluations"]}) > 1
    assert not any(evaluation["problem"] for evaluation in facts["evaluations"])
    assert f"The server at {server.grpc}" in (tmp_path / "out" / "report.html").read_text()
    state = json.loads((served / ".tritonkit" / "tune" / "digits.json").read_text())
    assert len(state["evaluations"]) == len(facts["evaluations"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_restores_too(
    served: Path, server: Endpoint, as_before: Callable[[], bool], number: signal.Signals
) -> None:
    """While another way is served: exit code 130, JSON, and the server as before."""
    with subprocess.Popen(
        [sys.executable, "-m", "tritonkit.cli", *TUNE, "--fresh", "--json", "--address", server.grpc],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd=served,
    ) as process:
        eventually(lambda: not as_before() or process.poll() is not None, "another way")
        # A terminal interrupts all processes, a service manager one of them.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert json.loads(out)["ended"] == "interrupted"
    assert as_before()


def test_a_server_that_comes_back_is_tuned_on(served: Path, server: Endpoint, as_before: Callable[[], bool]) -> None:
    """It is killed after the first run under load, and `serve` starts it again; a run later the search is ended."""

    class Killing(Listener):
        killed = after = 0

        def trial(self, point: object, trial: object) -> None:
            if not self.killed:
                self.killed = server.pid
                os.kill(self.killed, signal.SIGKILL)

        def evaluated(self, evaluation: Evaluation, best: object) -> None:
            if self.killed and any(trial.tail_ms is not None for trial in evaluation.trials[1:]):
                self.after += 1
                raise KeyboardInterrupt

    listener = Killing()
    _, outcome = tune(plan(served, server), listener)
    assert listener.after
    assert outcome.ended == "interrupted"
    assert as_before()


def test_a_server_that_is_lost_ends_the_search(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results until then are given, and the reason why there are no more."""
    monkeypatch.setattr(remote, "_BACK_S", 1.0)
    lost = Server(served / "model_repository", **FREE, root=served, finalize_timeout_s=0, restarts=0)
    endpoint = lost.start()
    bests: list[object] = []

    class Killing(Listener):
        def evaluated(self, evaluation: object, best: object) -> None:
            bests.append(best)
            if len(bests) == 1:
                os.kill(endpoint.pid, signal.SIGKILL)

    try:
        _, outcome = tune(plan(served, endpoint), Killing())
    finally:
        lost.kill()
    assert outcome.ended == f"digits at {endpoint.grpc} no longer answers"
    assert outcome.best == bests[0]


def test_a_server_that_cannot_serve_as_before_is_named(served: Path, tmp_path: Path) -> None:
    """Its repository was taken away meanwhile: neither another way nor the former one can be loaded."""
    repository = tmp_path / "model_repository"
    shutil.copytree(served / "model_repository", repository)
    versions = repository / "digits_network"
    with serve(repository, **FREE, root=served, finalize_timeout_s=0) as endpoint:

        def search() -> None:
            with prepared(plan(served, endpoint)) as ready:
                ready.server.serve(replace(ready.now, max_batch_size=2))
                (versions / "1").rename(tmp_path / "1")
                with pytest.raises(InferenceError, match="digits_network"):
                    ready.server.serve(replace(ready.now, max_batch_size=4))

        with pytest.raises(ServerError, match="not served as before") as caught:
            search()
        assert configurations(endpoint)["digits_network"].max_batch_size == 2
        with Client(endpoint.grpc) as client:
            assert client.is_ready("digits")
    assert "restart the server" in caught.value.todo


def plan(root: Path, server: Endpoint) -> TunePlan:
    """A short search at an address."""
    return TunePlan(
        root,
        "digits",
        parse_slo(["p50=100ms"]),
        budget_s=180.0,
        trial_s=1.0,
        fresh=True,
        address=server.grpc,
        admin_key=server.admin_key,
    )


def test_a_server_that_cannot_be_tuned_is_left_alone(
    served: Path, server: Endpoint, as_before: Callable[[], bool], tmp_path: Path
) -> None:
    """No answer, a wrong key, other cores: one message each, and nothing is loaded."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{probe.getsockname()[1]}"
    key = tmp_path / "key"
    key.write_text("another\n")
    there = ("--address", server.grpc)
    assert nobody in failed(tritonkit_here(*TUNE, "--address", nobody, cwd=served), 5)
    message = failed(tritonkit_here(*TUNE, *there, "--key-file", str(key), cwd=served), 5)
    assert "--key-file FILE" in message
    message = failed(tritonkit_here(*TUNE, *there, "--cores", "61", cwd=served), 2)
    assert "model digits_network" in message
    assert "on a machine with 61 cores" in message


def test_a_server_without_the_model(served: Path, write_server_models: WriteServerModels, tmp_path: Path) -> None:
    """It says what is served there."""
    repository = write_server_models(echo=ModelText())
    with serve(repository, **FREE, root=tmp_path) as endpoint:
        key = tmp_path / "key"
        key.write_text(endpoint.admin_key)
        options = ("--address", endpoint.grpc, "--key-file", str(key))
        message = failed(tritonkit_here(*TUNE, *options, cwd=served), 5)
    assert "does not serve it" in message
    assert "one of echo" in message


def test_a_server_without_explicit_model_control(served: Path, tmp_path: Path) -> None:
    """The same server, started by hand with all models and without a key."""
    port = free_port()
    with serve(served / "model_repository", **FREE, root=served, finalize_timeout_s=0) as endpoint:
        command, environment = _by_hand(endpoint, port)
        with subprocess.Popen(
            command,
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                address = f"127.0.0.1:{port}"
                with Client(address) as client:
                    eventually(lambda: client.is_ready("digits") or process.poll() is not None, "a server")
                message = failed(tritonkit_here(*TUNE, "--address", address, cwd=served), 5)
            finally:
                process.terminate()
                process.wait(PATIENCE_S)
    assert "refuses to load digits" in message
    assert "--model-control-mode=explicit" in message


def _by_hand(endpoint: Endpoint, port: int) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a server as `serve` started it, without keys and control of its models."""
    about = Path(f"/proc/{endpoint.pid}")
    changed = {
        "--model-control-mode=explicit": "--model-control-mode=none",
        f"--grpc-port={endpoint.grpc.rpartition(':')[2]}": f"--grpc-port={port}",
    }
    command = [
        changed.get(argument, argument)
        for argument in (about / "cmdline").read_text().split("\0")
        if argument and "restricted" not in argument and "--load-model" not in argument
    ]
    environment = dict(entry.split("=", 1) for entry in (about / "environ").read_text().split("\0") if "=" in entry)
    environment.pop("LD_PRELOAD", None)  # the guard
    return command, environment
