"""`tritonkit compose`: a project anywhere in containers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.conftest import PROJECT
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.serve.compose import CONTEXT

COMPOSE = [shutil.which("docker-compose")] if shutil.which("docker-compose") else ["docker", "compose"]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A project outside of a clone, built."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx_file(RELU, ["batch", 4]))
    for words in (("new", "relu", "--onnx", str(file), "--root", str(tmp_path)), ("build",)):
        done = tritonkit(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    return tmp_path


def test_the_stack_is_complete(built: Path) -> None:
    """Every file that the compose file and the Dockerfile take from the project is there."""
    assert tritonkit("compose", cwd=built).returncode == 0
    stack = yaml.safe_load((built / "docker-compose.yml").read_text())
    contexts = {s["build"]["context"] for s in stack["services"].values() if "build" in s}
    assert contexts == {f"./{CONTEXT}"}
    context = built / CONTEXT
    for line in (context / "deploy" / "docker" / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (context / source).exists(), line
    for name, needed in {
        "prometheus": ["prometheus.yml", "alerts.yml"],
        "alertmanager": ["alertmanager.yml"],
        "grafana": ["provisioning", "dashboards"],
        "collector": ["collector.yml"],
    }.items():
        mounted = [re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", v) for v in stack["services"][name]["volumes"]]
        files = [source for source, *_ in (volume.split(":") for volume in mounted) if "/" in source]
        assert [Path(file).name for file in files] == needed
        assert all((built / file).exists() for file in files)
    assert (built / "docker-compose.direct.yml").is_file()
    assert "gateway.yaml" in (built / "deploy" / "gateway" / ".gitignore").read_text()
    limits = yaml.safe_load((built / "deploy" / "docker" / "resources.yml").read_text())
    assert limits["services"]["triton"]["mem_limit"].endswith("m")


def test_the_context_runs_by_itself(built: Path) -> None:
    """The command works as in the builder: its sources on the path, the project as the working folder."""
    tritonkit("compose", cwd=built)
    code = (
        "import tritonkit, tritonkit.resources as r; from tritonkit.cli import main;"
        " print(tritonkit.__file__, r.shipped('loadtest')); main(['build', '--json'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=built,
        env={"PYTHONPATH": str(built / CONTEXT / "src"), "PATH": "/usr/bin:/bin"},
    )
    first, _, rest = done.stdout.partition("\n")
    assert all(word.startswith(str(built / CONTEXT)) for word in first.split())
    assert json.loads(rest)["changes"][0]["action"] == "unchanged"


def test_a_compose_file_of_ones_own_stays(built: Path) -> None:
    """Files that tritonkit owns are replaced; the compose file is written once."""
    tritonkit("compose", cwd=built)
    (built / "docker-compose.yml").write_text("services: {}\n")
    receivers = built / "deploy" / "alertmanager" / "alertmanager.yml"
    receivers.write_text("mine")
    (built / CONTEXT / "old.py").touch()
    facts = json.loads(tritonkit("compose", "--json", cwd=built).stdout)
    assert str(built / "docker-compose.yml") not in facts["written"]
    assert (built / "docker-compose.yml").read_text() == "services: {}\n"
    assert receivers.read_text() == "mine"
    assert not (built / CONTEXT / "old.py").exists()


def test_a_machine_without_docker_is_told(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is written, for this machine or another one; a line says what this one lacks."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    done = tritonkit("compose", cwd=built)
    assert done.returncode == 0
    assert "docker: it is not installed here" in done.stderr
    assert (built / "docker-compose.yml").is_file()


def test_a_clone_has_its_stack() -> None:
    """Nothing is written into it."""
    assert "has its docker-compose.yml" in failed(tritonkit("compose", cwd=PROJECT), 2)
    assert not (PROJECT / CONTEXT).exists()


@pytest.mark.needs("docker")
def test_compose_reads_the_file(built: Path) -> None:
    """With all profiles and the limits of the project."""
    tritonkit("compose", cwd=built)
    for folder in (built, PROJECT):
        done = subprocess.run(
            [
                *COMPOSE,
                "--profile",
                "load",
                "--profile",
                "gpu",
                "--profile",
                "nvidia",
                "--profile",
                "tracing",
                "config",
                "-q",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr
