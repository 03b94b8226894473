"""The wheel in an empty folder: light for callers, complete for those who build and serve."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import signal
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.packaging.conftest import Environment, make_environment, without_compilers
from tests.repository.optimize.small_specs import RELU, onnx_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LIGHT_BYTES = 60_000_000
PREBUILT = "python_backends/native/prebuilt/"
TOP_LEVEL = (
    "python_backends/",
    "loadtest/",
    "deploy/alertmanager/",
    "deploy/collector/",
    "deploy/docker/",
    "deploy/grafana/",
    "deploy/lambda/",
    "deploy/prometheus/",
)


def test_the_wheel_carries_the_top_level_folders(project: Path, wheel: Path) -> None:
    """Every tracked file of them, and nothing that belongs to one machine."""
    tracked = subprocess.run(
        ["git", "ls-files", *TOP_LEVEL],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        cwd=project,
    ).stdout.split()
    carried = {
        name.removeprefix("tritonkit/_data/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("tritonkit/_data/")
    }
    wanted = {name for name in tracked if (project / name).is_file()}
    assert wanted - carried == {"deploy/docker/resources.yml"}
    assert not [name for name in carried if name.endswith((".pyc", "admin-key"))]
    libraries = {name for name in carried if name.endswith((".so", ".xz"))}
    for_any = wheel.name.endswith("-py3-none-any.whl")
    assert libraries == (set() if for_any else {f"{PREBUILT}{platform.machine()}/libraries.tar.xz"})


@pytest.mark.needs("c++")
def test_what_runs_inside_the_server_is_compiled_into_it(wheel: Path) -> None:
    """For any Python 3 on machines with the glibc that the server itself needs; the libraries need no newer one."""
    assert wheel.name.endswith(f"-py3-none-manylinux_2_35_{platform.machine()}.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = archive.read(f"tritonkit/_data/{PREBUILT}{platform.machine()}/libraries.tar.xz")
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as libraries:
        needed = {
            name: max(
                tuple(map(int, version.split(b".")))
                for version in re.findall(rb"\0GLIBC_([\d.]+)", libraries.extractfile(name).read())
            )
            for name in ("guard.so", "libtriton_onnxruntime.so", "libtriton_openvino.so", "libtriton_python.so")
        }
    assert max(needed.values()) <= (2, 35), needed


def test_without_a_compiler_there_is_a_wheel_for_any_machine(dist: Path, tmp_path: Path) -> None:
    """From the source distribution; it carries no library."""
    tools = make_environment(tmp_path / "venv", tmp_path, "build")
    tools = replace(tools, path=without_compilers(tmp_path / "programs"))
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        assert not [name for name in archive.getnames() if name.endswith((".so", ".xz", ".made-from"))]
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    tools.run("python", "-m", "build", "--wheel", "--outdir", str(tmp_path / "out"), str(source))
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".xz"))]


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
    # Python 3.11 puts setuptools into a new environment beside pip.
    given = ("numpy", "pip", "setuptools")
    beside = {part: size for part, size in sizes.items() if part not in given}
    assert sum(beside.values()) < LIGHT_BYTES, sorted(beside.items(), key=lambda item: -item[1])


@pytest.fixture(scope="module")
def project_of_ones_own(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An empty folder with an ONNX file, and the wheel installed for ONNX models and load tests, on a machine
    without a compiler."""
    place = tmp_path_factory.mktemp("user")
    (place / "project").mkdir()
    (place / "project" / "model.onnx").write_bytes(onnx_file(RELU, ["batch", 4]))
    extras = f"{wheel}[onnx,loadtest]"
    made = make_environment(place / "venv", place / "project", extras)
    return replace(made, path=without_compilers(place / "programs"))


def test_the_whole_way_to_an_answer(project_of_ones_own: Environment, wheel: Path) -> None:
    """new, build, server install, serve, call, load and compose, each as a person types it; what was compiled
    into the wheel serves."""
    native = not wheel.name.endswith("-py3-none-any.whl")
    user = project_of_ones_own
    user.run("tritonkit", "new", "mymodel", "--onnx", "model.onnx")
    assert "new version 1" in user.run("tritonkit", "build").stderr
    nothing = user.run("tritonkit", "serve", "--grpc-port", "0", "--metrics-port", "0", code=4)
    assert nothing.stderr.count("\n") == 1
    assert "tritonkit server install" in nothing.stderr
    _kill_an_install(user)
    (draft,) = (user.cwd.parent / "cache").rglob("*.draft")
    user.run("tritonkit", "server", "path", code=4)
    installed = user.run("tritonkit", "server", "install").stderr
    assert not draft.exists()
    assert "guard in place" in installed
    assert ("native backends in place" in installed) is native
    assert not native or "nothing to change" in user.run("tritonkit", "server", "install").stderr
    facts = json.loads(user.run("tritonkit", "server", "path", "--json").stdout)
    assert facts["managed"]
    with _served(user) as address:
        call = ("call", "mymodel", "--input", "x=[[1, -2, 3, -4]]", "--address", address)
        answer = json.loads(user.run("tritonkit", *call, "--json").stdout)
        assert answer["outputs"] == {"y": [[1, 0, 3, 0]]}
        load = ("load", "mymodel", "--users", "2", "--duration", "2s", "--address", address)
        assert json.loads(user.run("tritonkit", *load, "--json").stdout)["holds"]
    said = (user.cwd / "said").read_text()
    assert ("native backends: onnxruntime, openvino, python" in said) is native
    assert ("Python stand-ins serve" in said) is not native
    user.run("tritonkit", "compose")
    context = user.cwd / "deploy" / "tritonkit" / PREBUILT / platform.machine()
    assert (context / "libraries.tar.xz").is_file() is native
    assert (user.cwd / "docker-compose.yml").is_file()
    checks = json.loads(user.run("tritonkit", "doctor", "--json").stdout)["checks"]
    assert not [check for check in checks if check["status"] == "fail"]
    (found,) = [check for check in checks if check["name"] == "native backends"]
    assert found["found"].startswith("native: onnxruntime with /") is native
    user.run("tritonkit", "server", "remove")
    user.run("tritonkit", "server", "path", code=4)


def test_a_step_of_the_project_is_found(project_of_ones_own: Environment) -> None:
    """Beside the shipped ones, with the shipped support for steps; a build copies both."""
    user = project_of_ones_own
    step = user.cwd / "python_backends" / "steps" / "double"
    step.mkdir(parents=True)
    tensor = "{dtype: FP32, shape: [4]}"
    (step / "step.yaml").write_text(f"description: twice\ninputs: {{a: {tensor}}}\noutputs: {{b: {tensor}}}\n")
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
        stderr=subprocess.PIPE,
        text=True,
        cwd=user.cwd,
        env=user.variables(),
        process_group=0,
    ) as process:
        assert process.stderr is not None
        assert any(line.startswith("installing") for line in process.stderr)
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _served(user: Environment) -> Iterator[str]:
    """The gRPC address of `tritonkit serve`, which ends well after Ctrl-C; what it says is in the file `said`."""
    with (
        (user.cwd / "said").open("w") as said,
        subprocess.Popen(
            [str(user.folder / "bin" / "tritonkit"), "serve", "--grpc-port", "0", "--metrics-port", "0"],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            cwd=user.cwd,
            env=user.variables(),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("gRPC"), first
            yield first.split()[1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
