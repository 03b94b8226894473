"""Results of doctor."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tritonkit.serve import doctor as diagnose
from tritonkit.serve import install
from tritonkit.serve.install import VENV_VARIABLE


def test_every_finding_says_what_to_do(tmp_path: Path) -> None:
    """All checks are there once; whatever is not well comes with a remedy, what is well with none."""
    checks = diagnose(tmp_path)
    names = [check.name for check in checks]
    assert len(set(names)) == len(names) == 15
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
