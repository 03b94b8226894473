"""When a container of the server's image counts as ready, with a real Triton in it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.conftest import run, serving
from tests.server.models import ModelText, write_repository
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)
HEALTH = ("/opt/tritonkit/venv/bin/python3", "-IS", "/opt/tritonkit/health.py")
BROKEN = "import nothing_of_that_name\n"


@pytest.fixture
def server(server_image: None, tmp_path: Path) -> Iterator[str]:
    """A container as a pod has it, with a model that loads and one that does not."""
    models = {"good": ModelText(), "bad": ModelText(code=BROKEN)}
    repository = write_repository(tmp_path / "models", models)
    with serving(repository, ready=False) as name:
        yield name


def asked(container: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What health.py says inside."""
    return run("docker", "exec", container, *HEALTH, *arguments)


def test_a_model_that_does_not_load_keeps_it_from_traffic(server: str) -> None:
    """Triton itself calls the server ready. It is alive, so that nobody starts it again in vain, and says why."""
    eventually(lambda: "not ready: model bad" in run("docker", "logs", server).stderr)
    assert "nothing_of_that_name" in run("docker", "logs", server).stderr
    code = "import health; print(health.ready())"
    python = ("docker", "exec", "--workdir", "/opt/tritonkit", server, HEALTH[0])
    assert run(*python, "-c", code).stdout == "True\n"
    health = asked(server)
    assert (health.returncode, "a model loads or did not" in health.stdout) == (1, True)
    assert asked(server, "--alive").returncode == 0
