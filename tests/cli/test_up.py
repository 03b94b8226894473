"""`tritonkit up --detach` starts the same command in the background."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from tritonkit.operate.commands.up import up


def test_detach_from_python_starts_up_with_the_same_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The arguments of the process that calls do not matter; what the child says is passed on with its code."""
    monkeypatch.setattr(sys, "argv", ["pytest", "down"])
    with pytest.raises(typer.Exit) as end:
        up(root=tmp_path, models=["no-such"], replicas=3, detach=True, as_json=True)
    assert end.value.exit_code == 2
    message = capfd.readouterr().err
    assert f"{tmp_path}/model_repository: there is no such folder" in message  # as `up` says it, not `down`
