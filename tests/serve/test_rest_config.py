"""The REST proxy's configuration: Envoy takes it, and what cannot be is refused before."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import SERVER
from tritonkit.serve.core import rest
from tritonkit.serve.core.rest import RestLimits, envoy_command, envoy_config, find_envoy


@pytest.mark.needs("envoy")
@pytest.mark.parametrize(
    ("host", "hosts", "origins", "shared_memory"),
    [
        ("127.0.0.1", (), (), False),
        ("localhost", (), (), False),
        ("::1", (), (), False),
        ("0.0.0.0", ("triton", "*"), (), False),
        ("::", [f"host{number}.example.org" for number in range(200)], (), False),
        ("127.0.0.1", ("fd00::1", "10.0.0.1"), ("https://a.example", "http://[::1]:80"), True),
    ],
)
def test_envoy_takes_the_configuration(
    tmp_path: Path, host: str, hosts: list[str], origins: list[str], shared_memory: bool
) -> None:
    """Envoy itself validates it, with every option."""
    config = envoy_config(host, 18000, "http.sock", RestLimits(), hosts, origins, shared_memory=shared_memory)
    (tmp_path / "rest.json").write_text(json.dumps(config))
    binary = find_envoy(SERVER)
    assert binary is not None
    command = [*envoy_command(binary, "rest.json"), "--mode", "validate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_there_is_no_administration_interface() -> None:
    """Nobody can ask Envoy for its state, or to end."""
    assert "admin" not in envoy_config("127.0.0.1", 1, "http.sock", RestLimits())


def test_no_two_processes_listen_on_the_port() -> None:
    """A second listener on the same port, which would take half of the connections, is not possible."""
    config = envoy_config("127.0.0.1", 1, "http.sock", RestLimits())
    assert config["static_resources"]["listeners"][0]["enable_reuse_port"] is False


@pytest.mark.parametrize("host", ["example.org", "", "127.0.0.1:80", "1.2.3", "/run/x.sock"])
def test_where_nobody_can_listen_is_refused(host: str) -> None:
    """The address is one of numbers, or localhost."""
    with pytest.raises(ValueError, match="address"):
        envoy_config(host, 1, "http.sock", RestLimits())


@pytest.mark.parametrize("host", ["a b", "a:80", "http://a", "", "a|b", ".*", "a\n"])
def test_what_cannot_be_a_host_is_refused(host: str) -> None:
    """A name that would act as a pattern, or holds a port, is no host."""
    with pytest.raises(ValueError, match="no host"):
        envoy_config("127.0.0.1", 1, "http.sock", RestLimits(), hosts=[host])


@pytest.mark.parametrize("origin", ["*", "null", "example.org", "https://a/", "https://a b", "", "https://.*"])
def test_what_cannot_be_an_origin_is_refused(origin: str) -> None:
    """An origin is scheme, name and port; any page of all is not offered."""
    with pytest.raises(ValueError, match="no origin"):
        envoy_config("127.0.0.1", 1, "http.sock", RestLimits(), origins=[origin])


def test_envoy_is_found_in_the_environment_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's binary, else the one on PATH, else none."""
    packaged = tmp_path / "venv/lib/python3.11/site-packages/envoy/_bin/envoy"
    on_path = tmp_path / "bin" / "envoy"
    for file in (packaged, on_path):
        file.parent.mkdir(parents=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_envoy(tmp_path / "venv") == packaged
    assert find_envoy(tmp_path) == on_path
    assert find_envoy(None) == on_path
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_envoy(None) is None


def test_the_module_runs_without_tritonkit(tmp_path: Path) -> None:
    """The container has a copy of the folder and nothing else of the package."""
    shutil.copytree(Path(rest.__file__).parent, tmp_path / "core")
    code = "from core.rest import *; envoy_config('127.0.0.1', 1, 's', RestLimits())"
    subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("request_bytes", "body_bytes", "heap_bytes"),
    [(1 << 10, 4 << 20, 768 << 20), (64 << 20, 64 << 20, 768 << 20), (1 << 30, 1 << 30, 3 << 30)],
)
def test_bounds_fit_each_other(request_bytes: int, body_bytes: int, heap_bytes: int) -> None:
    """Small tensors may still come as JSON, and the largest request has room in Envoy's memory."""
    limits = RestLimits(max_request_bytes=request_bytes)
    config = envoy_config("127.0.0.1", 1, "http.sock", limits)
    monitors = config["overload_manager"]["resource_monitors"]
    assert limits.body_bytes == body_bytes
    assert monitors[0]["typed_config"]["max_heap_size_bytes"] == heap_bytes
    assert f"wanted {body_bytes} bytes at most" in json.dumps(config)
