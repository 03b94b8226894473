"""`tritonkit server`, and what every command line has: a version, completion, `python -m`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.serve.test_install import write_venv
from tritonkit import __version__
from tritonkit.serve import install
from tritonkit.serve.managed import cache_folder, environment_script, managed_place


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No clone, no server, and a cache folder of the test's own."""
    monkeypatch.setattr(install, "clone", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(install.VENV_VARIABLE, raising=False)


def test_no_server_is_one_line_and_exit_code_4(tmp_path: Path) -> None:
    """It says which command installs one, and how large it is."""
    message = failed(tritonkit("server", "path", cwd=tmp_path), 4)
    assert "tritonkit server install" in message
    assert "GB" in message
    assert len(message.splitlines()) == 1


def test_serving_without_a_server_says_the_same(tmp_path: Path) -> None:
    """Before anything else is looked at that a server would need."""
    model = tmp_path / "model_repository" / "net"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").touch()
    (model / "config.pbtxt").write_text('name: "net"\nbackend: "python"\n')
    (tmp_path / "models").mkdir()
    ports = ["--grpc-port", "0", "--metrics-port", "0"]
    message = failed(tritonkit("serve", *ports, cwd=tmp_path), 4)
    assert message.splitlines()[-1].startswith("error: Triton: no server is installed")


def test_a_python_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Nothing is left of the attempt."""
    message = failed(tritonkit("server", "install", "--python", "/bin/true", cwd=tmp_path), 4)
    assert "/bin/true is not a Python 3.11 or 3.12" in message
    assert not managed_place().exists()


def test_an_environment_that_goes_before_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment below the cache folder does not serve where another one comes first."""
    place, own = managed_place(), tmp_path / ".venv-server"
    for folder in (write_venv(place), write_venv(own)):
        facts = {"made_from": environment_script().fingerprint()}
        (folder / "tritonkit.json").write_text(json.dumps(facts))
    for library in (environment_script().GUARD, *environment_script().BACKENDS):
        (place / library).parent.mkdir(parents=True, exist_ok=True)
        (place / library).touch()
    done = tritonkit("server", "install", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{place}: nothing to change" in done.stderr.replace("\n", "")
    assert f"commands in this folder take {own} instead" in done.stderr.replace("\n", " ")
    facts = json.loads(tritonkit("server", "install", "--json", cwd=tmp_path).stdout)
    assert facts == {"path": str(place), "changed": False, "gpu": False}


def test_one_kind_of_environment_at_a_time(tmp_path: Path) -> None:
    """`--gpu` and `--cpu` in one command line contradict each other, in the order of the line or another."""
    for words in (("--gpu", "--cpu"), ("--cpu", "--gpu")):
        message = failed(tritonkit("server", "install", *words, cwd=tmp_path), 2)
        assert "--gpu and --cpu" in message
        assert "one of them" in message


def test_an_upgrade_keeps_the_kind_of_the_environment(tmp_path: Path) -> None:
    """The newest environment of earlier tritonkits decides, and is named; `--cpu` changes it."""
    for age, gpu in enumerate(("cuda13", "")):
        marker = cache_folder() / f"of_before_{age}" / environment_script().MARKER
        marker.parent.mkdir(parents=True)
        marker.write_text(json.dumps({"made_from": "earlier", "gpu": gpu}))
        os.utime(marker, (1e9 - age, 1e9 - age))
    wrong = ["--python", "/bin/true"]
    message = failed(tritonkit("server", "install", *wrong, cwd=tmp_path), 4).replace("\n", " ")
    assert "of_before_0 is for an NVIDIA GPU (CUDA 13), and so will be the new one: --cpu changes that" in message
    assert "the server environment for an NVIDIA GPU (CUDA 13) takes 3 GB" in message
    message = failed(tritonkit("server", "install", "--cpu", *wrong, cwd=tmp_path), 4)
    assert "the server environment for CPUs takes 0.8 GB" in message
    assert "of_before" not in message


def test_removing_says_what_went(tmp_path: Path) -> None:
    """Also for programs; and that there was nothing."""
    managed_place().mkdir(parents=True)
    facts = json.loads(tritonkit("server", "remove", "--json", cwd=tmp_path).stdout)
    assert facts == {"removed": [str(managed_place())]}
    done = tritonkit("server", "remove", cwd=tmp_path)
    assert f"{cache_folder()}: nothing to remove" in done.stderr.replace("\n", "")


def test_the_version_is_printed() -> None:
    """And nothing else."""
    done = tritonkit("--version")
    assert (done.returncode, done.stdout) == (0, f"tritonkit {__version__}\n")


def test_the_package_is_a_program(tmp_path: Path) -> None:
    """`python -m tritonkit` is the command line."""
    done = subprocess.run(
        [sys.executable, "-m", "tritonkit", "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == f"tritonkit {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str, tmp_path: Path) -> None:
    """The lines that `--install-completion` writes into a shell's configuration ask the program itself."""
    home = {"HOME": str(tmp_path), "SHELL": f"/bin/{shell}", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    program = [sys.executable, "-m", "tritonkit"]
    done = subprocess.run(
        [*program, "--install-completion", shell], capture_output=True, text=True, check=True, env=os.environ | home
    )
    assert f"{shell} completion installed" in done.stdout
    words = {"COMP_WORDS": "tritonkit ser", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "tritonkit ser"}
    words |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TRITONKIT_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=os.environ | words)
    assert "serve" in done.stdout
    assert "build" not in done.stdout
