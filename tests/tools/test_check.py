"""`make check`: models beyond those that are tracked do not change what is compared."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools.loading import load_tool
from tritonkit.operate.deploy import read_facts, read_values


@pytest.fixture
def tool() -> Any:
    """The tool, which belongs to no package."""
    return load_tool("check")


CONFIG = """backend: "python"
max_batch_size: 1
input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] }
"""


def model(folder: Path) -> None:
    """Write a model with one version."""
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text("")
    (folder / "config.pbtxt").write_text(CONFIG)


@pytest.mark.needs("git")
def test_a_model_that_is_not_tracked_is_left_out(tool: Any, tmp_path: Path) -> None:
    """The facts for a cluster are those of the tracked models alone."""
    repository, alone = tmp_path / "repository", tmp_path / "alone"
    for name in ("shipped", "mine"):
        model(repository / name)
    for words in (["git", "init", "--quiet"], ["git", "add", "shipped/config.pbtxt"]):
        subprocess.run(words, cwd=repository, check=True)
    alone.mkdir()
    tool.link(tool.tracked(repository), alone)
    values = read_values(tmp_path / "values.yaml")
    assert read_facts(alone, values).names == ("shipped",)
    assert read_facts(alone, values).file_bytes == len(CONFIG)
    assert set(read_facts(repository, values).names) >= {"shipped", "mine"}


def test_outside_a_clone_all_models_count(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says which of them are tracked."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ("a", "b"):
        model(tmp_path / name)
    assert [folder.name for folder in tool.tracked(tmp_path)] == ["a", "b"]


def test_without_git_all_models_count(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean machine has none."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    model(tmp_path / "a")
    assert [folder.name for folder in tool.tracked(tmp_path)] == ["a"]
