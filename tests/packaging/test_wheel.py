"""The wheel in an empty folder: light for callers, complete for those who build and serve."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.optimize.test_make import RELU, onnx_file
from tests.packaging.conftest import Environment, make_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LIGHT_BYTES = 60_000_000
TOP_LEVEL = ("python_backends/", "loadtest/", "deploy/docker/", "deploy/prometheus/")


def test_the_wheel_carries_the_top_level_folders(project: Path, wheel: Path) -> None:
    """Every tracked file of them, and nothing that belongs to one machine."""
    tracked = subprocess.run(
        ["git", "ls-files", *TOP_LEVEL],  # noqa: S607
        capture_output=True, text=True, check=True, cwd=project,
    ).stdout.split()  # fmt: skip
    carried = {
        name.removeprefix("tritonkit/_data/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("tritonkit/_data/")
    }
    wanted = {name for name in tracked if (project / name).is_file()}
    assert wanted - carried == {"deploy/docker/resources.yml"}
    assert not [name for name in carried if name.endswith((".pyc", ".so", "admin-key"))]


def test_a_caller_installs_little(wheel: Path, tmp_path: Path) -> None:
    """Under 60 MB beside numpy (byte code aside), and a client and the command line work."""
    made = make_environment(tmp_path / "venv", tmp_path, str(wheel))
    code = "from tritonkit import AsyncClient, Client; Client('127.0.0.1:1').close()"
    made.run("python", "-W", "error", "-c", code)
    assert made.run("tritonkit", "--version").stdout.startswith("tritonkit ")
    made.run("tritonkit", "models", "--address", "127.0.0.1:1", code=5)
    sizes: dict[str, int] = {}
    for file in made.packages.rglob("*"):
        if file.is_file() and file.suffix != ".pyc":
            part = re.split(r"[.-]", file.relative_to(made.packages).parts[0])[0]
            sizes[part] = sizes.get(part, 0) + file.stat().st_size
    assert not sizes.keys() & {"torch", "onnx", "onnxruntime", "grpc"}
    beside = {part: size for part, size in sizes.items() if part not in ("numpy", "pip")}
    assert sum(beside.values()) < LIGHT_BYTES, sorted(beside.items(), key=lambda item: -item[1])


@pytest.fixture(scope="module")
def project_of_ones_own(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An empty folder with an ONNX file, and the wheel installed for ONNX models and load tests."""
    place = tmp_path_factory.mktemp("user")
    (place / "project").mkdir()
    (place / "project" / "model.onnx").write_bytes(onnx_file(RELU, ["batch", 4]))
    extras = f"{wheel}[onnx,loadtest]"
    return make_environment(place / "venv", place / "project", extras)


def test_the_whole_way_to_an_answer(project_of_ones_own: Environment) -> None:
    """new, build, server install, serve, call, load and compose, each as a person types it."""
    user = project_of_ones_own
    user.run("tritonkit", "new", "mymodel", "--onnx", "model.onnx")
    assert "new version 1" in user.run("tritonkit", "build").stderr
    nothing = user.run("tritonkit", "serve", "--grpc-port", "0", "--metrics-port", "0", code=4)
    assert nothing.stderr.count("\n") == 1
    assert "tritonkit server install" in nothing.stderr
    _kill_an_install(user)
    user.run("tritonkit", "server", "path", code=4)
    installed = user.run("tritonkit", "server", "install").stderr
    assert "it is made again" in installed
    assert "guard compiled" in installed
    facts = json.loads(user.run("tritonkit", "server", "path", "--json").stdout)
    assert facts["managed"]
    with _served(user) as address:
        call = ("call", "mymodel", "--input", "x=[[1, -2, 3, -4]]", "--address", address)
        answer = json.loads(user.run("tritonkit", *call, "--json").stdout)
        assert answer["outputs"] == {"y": [[1, 0, 3, 0]]}
        load = ("load", "mymodel", "--users", "2", "--duration", "2s", "--address", address)
        assert json.loads(user.run("tritonkit", *load, "--json").stdout)["holds"]
    user.run("tritonkit", "compose")
    assert (user.cwd / "docker-compose.yml").is_file()
    checks = json.loads(user.run("tritonkit", "doctor", "--json").stdout)["checks"]
    assert not [check for check in checks if check["status"] == "fail"]
    user.run("tritonkit", "server", "remove")
    user.run("tritonkit", "server", "path", code=4)


def test_a_step_of_the_project_is_found(project_of_ones_own: Environment) -> None:
    """Beside the shipped ones, with the shipped support for steps; a build copies both."""
    user = project_of_ones_own
    step = user.cwd / "python_backends" / "steps" / "double"
    step.mkdir(parents=True)
    tensor = "{dtype: FP32, shape: [4]}"
    (step / "step.yaml").write_text(
        f"description: twice\ninputs: {{a: {tensor}}}\noutputs: {{b: {tensor}}}\n"
    )
    (step / "model.py").write_text("import step_support\n")
    user.run("tritonkit", "new", "other", "--onnx", "model.onnx")
    file = user.cwd / "models" / "other" / "model.yaml"
    file.write_text(file.read_text() + "pipeline: [{step: double, outputs: {b: x}}, network]\n")
    user.run("tritonkit", "build", "other")
    version = user.cwd / "model_repository" / "other_double" / "1"
    assert {"model.py", "step_support.py"} <= {path.name for path in version.iterdir()}


def _kill_an_install(user: Environment) -> None:
    """Kill `server install` while it installs packages: what it leaves must not pass for a server."""
    with subprocess.Popen(
        [str(user.folder / "bin" / "tritonkit"), "server", "install"],
        stderr=subprocess.PIPE, text=True, cwd=user.cwd, env=user.variables(), process_group=0,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert any(line.startswith("installing") for line in process.stderr)
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _served(user: Environment) -> Iterator[str]:
    """The gRPC address of `tritonkit serve`, which ends well after Ctrl-C."""
    with subprocess.Popen(
        [str(user.folder / "bin" / "tritonkit"), "serve", "--grpc-port", "0", "--metrics-port", "0"],
        stdout=subprocess.PIPE, text=True, cwd=user.cwd, env=user.variables(),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("gRPC"), first
            yield first.split()[1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
