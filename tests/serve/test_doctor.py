"""Results of doctor."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.fakedriver import FakeDriver, write_cuda_packages
from tests.serve.test_install import write_venv
from tritonkit.resources import shipped
from tritonkit.serve import Check, install
from tritonkit.serve import doctor as diagnose
from tritonkit.serve.core import devices
from tritonkit.serve.install import VENV_VARIABLE
from tritonkit.serve.managed import environment_script, managed_place


def test_every_finding_says_what_to_do(tmp_path: Path) -> None:
    """All checks are there once; whatever is not well comes with a remedy, what is well with none."""
    checks = diagnose(tmp_path)
    names = [check.name for check in checks]
    assert len(set(names)) == len(names) == 17
    for check in checks:
        assert check.found
        assert bool(check.todo) == (check.status != "ok")


def test_a_missing_server_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says how to install it; what needs it is not looked at, the others go on."""
    monkeypatch.setenv(VENV_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(install, "clone", lambda: None)
    checks = {check.name: check for check in diagnose(tmp_path)}
    assert checks["server"].status == "fail"
    assert "server install" in checks["server"].todo
    assert len(checks) == 9
    assert not [name for name in checks if "of the server" in name or name in ("guard", "REST")]
    assert checks["python"].status == "ok"
    assert checks["GPU"].status == "ok"


def test_a_taken_port_is_a_warning(tmp_path: Path) -> None:
    """It names the port, and the process that has it, if that can be seen."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", 8002))
            listener.listen()
        except OSError:
            pass  # Someone else has it: the finding is the same.
        (ports,) = [check for check in diagnose(tmp_path) if check.name == "ports"]
    assert ports.status == "warn"
    assert "8002" in ports.found


def test_the_driver_and_its_gpus_are_listed(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Version, CUDA, and each GPU with its memory; an environment for CUDA is offered, by the command that makes it."""
    fake_driver.answer(monkeypatch, devices=2, free=40 << 30)
    checks = {check.name: check for check in diagnose(tmp_path)}
    each = "NVIDIA H100 80GB HBM3, 80.0 GiB (40.0 free), compute capability 9.0"
    assert checks["GPU"].found == f"driver 580.159.04 (CUDA 13.0); GPU 0: {each}; GPU 1: {each}"
    assert checks["GPU"].status == "ok"
    assert checks["CUDA"].found == "the server environment is for CPUs"
    assert checks["CUDA"].todo.endswith(".venv-server --gpu, then tritonkit build --target gpu")


def test_a_driver_that_is_too_old_or_sees_nothing_is_a_warning(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The remedy names the driver that is needed, or how a container gets its GPU; CUDA is not offered on either."""
    for facts, remedy in (
        ({"cuda": 12080}, "install driver 580 or newer: the server environment for GPUs needs it"),
        ({"cuda": 13000, "error": 100}, "in a container pass the GPU on (docker run --gpus all)"),
    ):
        fake_driver.answer(monkeypatch, **facts)
        checks = {check.name: check for check in diagnose(tmp_path)}
        assert checks["GPU"].status == "warn"
        assert remedy in checks["GPU"].todo
        assert checks["CUDA"].status == "ok"


def test_a_driver_that_hangs_is_named(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other checks go on, and nothing else is tried on the GPU; the kernel's log has the reason."""
    fake_driver.answer(monkeypatch, hangs=1)
    monkeypatch.setattr(devices, "_ASK_S", 0.5)
    folder = write_venv(tmp_path / "venv")
    write_cuda_packages(folder / "lib" / "python3.11" / "site-packages", fake_driver)
    monkeypatch.setenv(VENV_VARIABLE, str(folder))
    checks = {check.name: check for check in diagnose(tmp_path)}
    assert checks["GPU"].found == "the NVIDIA driver hangs: no answer within 0.5 s"
    assert "dmesg" in checks["GPU"].todo
    assert checks["CUDA"].found.endswith("models run on the CPU alone: the NVIDIA driver hangs: no answer within 0.5 s")
    assert checks["disk"].found


def test_a_provider_that_cannot_be_used_says_why(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An environment for GPUs is tried: with everything there it is well, without a library or a driver it is not."""
    fake_driver.answer(monkeypatch)
    folder = write_venv(tmp_path / "venv")
    write_cuda_packages(folder / "lib" / "python3.11" / "site-packages", fake_driver)
    monkeypatch.setenv(VENV_VARIABLE, str(folder))

    def cuda() -> Check:
        return next(check for check in diagnose(tmp_path) if check.name == "CUDA")

    assert (cuda().status, cuda().todo) == ("ok", "")
    next(folder.rglob("libcurand.so.10")).unlink()
    assert "CUDA's libraries are incomplete: libcurand.so.10" in cuda().found
    command = f"python3 {shipped('python_backends/environment.py')} {folder} --gpu"
    assert cuda().todo == f"make it again: {command}"
    monkeypatch.setenv("FAKE_DRIVER_DEVICES", "0")
    assert cuda().todo == "see GPU, or serve what was built with --target cpu"


def test_an_environment_that_seems_complete_is_removed_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`server install` makes one again that lacks a library, and keeps one that its marker calls complete."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place, script = managed_place(), environment_script()
    facts = {"made_from": script.fingerprint(script.GPU), "gpu": script.GPU.gpu, "libraries": ["libcublas.so.13"]}
    place.mkdir(parents=True)
    (place / script.MARKER).write_text(json.dumps(facts))
    managed = install.ServerInstallation(place / "t", "1", place, place, native=False, python_bin=place / "bin")
    assert install.how_to_remake(managed) == "tritonkit server install --gpu"
    (place / "libcublas.so.13").touch()
    assert install.how_to_remake(managed) == "tritonkit server remove && tritonkit server install --gpu"
