"""Cores of a container: its quota, not the machine's, decides which configurations and how many threads it has."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.docker.conftest import address_of, docker, run, serving
from tests.server.models import ECHO, VECTOR, ModelText, write_repository
from tests.waiting import eventually
from tritonkit.client import Client

pytestmark = pytest.mark.timeout(600)
HEADER = "# Rendered by tritonkit from models/net/model.yaml (target cpu, cores 64).\n"
BUILT_FOR = 'parameters { key: "built-for" value { string_value: "%s" } }\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A model that was built for 64 cores, with a build's configuration for one core."""
    named = f'name: "net"\nbackend: "python"\n{VECTOR}{BUILT_FOR % 1}'.encode()
    model = ModelText('backend: "python"\n' + VECTOR, ECHO, {"configs/cores-1.pbtxt": named})
    folder = write_repository(tmp_path / "models", {"net": model})
    config = folder / "net" / "config.pbtxt"
    config.write_text(HEADER + config.read_text() + BUILT_FOR % 64)
    return folder


def built_for(name: str) -> str:
    """The cores of the configuration that Triton serves."""
    with Client(address_of(name)) as client:
        return str(client.config("net").parameters["built-for"].string_value)


def test_a_quota_of_one_core_takes_the_configurations_for_one(server_image: None, repository: Path) -> None:
    """Said in one line; libraries that count cores themselves are told, where they would count more."""
    with serving(repository, "--cpus", "1") as name:
        assert built_for(name) == "1"
        line = f"cores: 1 allowed of {os.cpu_count()} seen; configurations for 1\n"
        assert line in run("docker", "logs", name).stderr
        eventually(lambda: "ready after " in run("docker", "logs", name).stderr)
        environment = docker("exec", name, "sh", "-c", "cat /proc/[0-9]*/environ | tr '\\0' '\\n'").splitlines()
        more = len(os.sched_getaffinity(0)) > 1
        for variable in ("OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "TRITONKIT_CORES=1"):
            assert (variable in environment) is more


def test_configurations_that_are_named_are_taken(server_image: None, repository: Path) -> None:
    """Whatever the quota is; where a model has none of that name Triton takes `config.pbtxt`."""
    with serving(repository, "--cpus", "1", words=("--model-config-name=mine",)) as name:
        assert built_for(name) == "64"
        assert "configurations mine, as asked\n" in run("docker", "logs", name).stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a machine with one core")
def test_a_pinned_server_keeps_to_as_many_cores(server_image: None, repository: Path) -> None:
    """Every thread of Triton and of its stubs; the log says which."""
    with serving(repository, "--cpus", "1", "--env", "TRITON_PIN=1") as name:
        assert re.search(r"^pinned to cores \d+ of", run("docker", "logs", name).stderr, re.MULTILINE)
        threads = (
            "cd /proc; for p in [0-9]*; do case $(tr '\\0' ' ' < $p/cmdline) in"
            " /opt/tritonserver/*) grep -h Cpus_allowed_list $p/task/*/status;; esac; done"
        )
        lists = [line.split()[1] for line in docker("exec", name, "sh", "-c", threads).splitlines()]
        assert len(lists) > 2
        assert len(set(lists)) == 1
        assert lists[0].isdecimal()
