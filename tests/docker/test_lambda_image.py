"""The image of a function, run as AWS Lambda runs it: read-only, no /dev/shm, a user without rights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.runtime_api import function
from tests.docker.conftest import docker, run
from tritonkit.operate.deploy.serverless import bundle, write_bundle

pytestmark = pytest.mark.timeout(600)

IMAGE = "tritonkit/lambda-test"
CONFINED = (
    "--rm",
    "--network",
    "host",
    "--read-only",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--user",
    "993:990",
    "--ipc",
    "none",
    "--memory",
    "1769m",
)


@pytest.fixture(scope="module")
def folder(settings: str, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The function of digits, and its image on the base that the other images have."""
    folder = tmp_path_factory.mktemp("lambda") / "digits"
    write_bundle(folder, bundle(project, "digits"))
    variables = dict(line.split("=", 1) for line in settings.splitlines())
    base = ["--build-arg", f"BASE={variables['TRITONKIT_BASE']}"] if variables else []
    network = ["--network", "host"] if variables else []
    docker("build", "--quiet", "--tag", IMAGE, *network, *base, str(folder))
    return folder


def test_the_image_answers(folder: Path) -> None:
    """Started by its own entry point; it writes nothing, and ONNX Runtime's telemetry is off."""
    api = "AWS_LAMBDA_RUNTIME_API=127.0.0.1:{port}"
    words = ["docker", "run", *CONFINED, "--env", api, IMAGE]
    with function(folder, words=words) as running:
        assert running.api.init_error is None
        outcome = running.invoke(json.loads((folder / "example.json").read_text()))
        log = running.stop()
    assert outcome.body["outputs"][0]["data"][0] == "7"
    assert '"function": "digits"' in log
    assert "elemetry" not in log


def test_the_image_has_what_it_needs_and_no_more(folder: Path) -> None:
    """No pip and no compiler, bytecode next to the sources, files that nobody but root may write."""
    python = "/opt/function/bin/python3"
    assert run("docker", "run", *CONFINED, "--entrypoint", python, IMAGE, "-m", "pip").returncode
    code = (
        "import os, pathlib; task = pathlib.Path('/var/task'); files = list(task.rglob('*'));"
        "print(len(list(task.rglob('*.pyc'))), any(os.access(f, os.W_OK) for f in files), os.getuid())"
    )
    done = docker("run", *CONFINED, "--entrypoint", python, IMAGE, "-c", code)
    compiled, writable, user = done.split()
    assert int(compiled) > 10
    assert (writable, user) == ("False", "993")
