"""`tritonkit verify` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.repository.publish.damaging import flip
from tests.repository.publish.test_publish import rendered
from tritonkit.repository.publish.publish import publish


@pytest.fixture
def project_root(root: Path, tmp_path: Path) -> Path:
    """A project with two published models and one of somebody else's."""
    out = root / "model_repository"
    publish(out, [rendered(tmp_path / n, b"weights", n) for n in ("net", "other")])
    (out / "mine").mkdir()
    (out / "mine" / "config.pbtxt").write_text('name: "mine"\n')
    return root


def test_a_whole_repository(project_root: Path) -> None:
    """It says what was looked at, and what was not; --repository needs no project."""
    done = tritonkit("verify", "--root", str(project_root))
    assert done.returncode == 0, done.stderr
    assert "6 files of 2 models" in done.stderr
    assert "tritonkit did not write them: mine" in done.stderr.replace("\n", " ")
    out = project_root / "model_repository"
    assert tritonkit("verify", "net", "--repository", str(out), cwd=Path("/")).returncode == 0


def test_a_damaged_repository(project_root: Path) -> None:
    """Exit code 4 with the file, what was found, what was wanted and what to do."""
    file = project_root / "model_repository" / "net" / "1" / "model.onnx"
    flip(file)
    message = failed(tritonkit("verify", "--root", str(project_root)), 4)
    assert f"{file}: sha256" in message
    assert "wanted:" in message
    assert "do: build the models again: tritonkit build" in message
    assert tritonkit("verify", "other", "--root", str(project_root)).returncode == 0
    done = tritonkit("verify", "--json", "--root", str(project_root))
    assert done.returncode == 4
    facts = json.loads(done.stdout)
    assert [finding["file"] for finding in facts["findings"]] == [str(file)]
    assert facts["not_checked"] == ["mine"]


def test_what_is_not_there(project_root: Path, tmp_path: Path) -> None:
    """An unknown model and a folder without models are a person's mistake: exit code 2."""
    assert "nt" in failed(tritonkit("verify", "nt", "--root", str(project_root)), 2)
    message = failed(tritonkit("verify", "--repository", str(tmp_path / "no")), 2)
    assert "there is no model in it" in message
