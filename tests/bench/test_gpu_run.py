"""A run of `make gpu` as a whole: what it prints and writes, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import run as runner
from bench.gpu.places import Place
from bench.gpu.steps import Step, StepError
from tests.bench.test_gpu_goals import EAGER, ENCODER, FP16, TRIAL, engine, served
from tests.conftest import PROJECT

PAGE = "# Page\n\n<!-- make gpu: begin -->\n\nNot run yet.\n\n<!-- make gpu: end -->\n\nAfter.\n"
REACHED = [
    *(row | {"per_s": 16900.0} if row["what"] == "served" and row["model"] == FP16 else row for row in TRIAL),
    engine(ENCODER, 64, 30000),
    served(EAGER, "grpc", 1, 120, (8, 9, 10)),
]
"""Figures that reach every goal."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A machine whose nvidia-smi names a card, and whose server environment is there."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.159.04, 143771 MiB, 9.0'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(smi.parent), prepend=":")
    (tmp_path / "run" / "server" / "bin").mkdir(parents=True)
    (tmp_path / "page.md").write_text(PAGE)
    return Place(tmp_path / "run")


def run(place: Place, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], **steps: str) -> int:
    """Run steps that fail with the given reasons; the second leaves rows."""

    def work(name: str) -> None:
        if name == "serving" and rows:
            (place.folder / "rows.json").write_text(json.dumps({"generator": "perf_analyzer 2.44.0", "rows": rows}))
        if steps.get(name):
            raise StepError(steps[name])

    def fake(_: Place) -> list[Step]:
        return [
            Step(name, "it", 60, lambda _, name=name: work(name))  # type: ignore[misc]
            for name in ("environment", "serving")
        ]

    monkeypatch.setattr(runner, "steps", fake)
    folder = place.folder.parent
    return runner.run(place, resume=False, out=folder / "result.json", page=folder / "page.md")


def test_reached_goals_are_exit_code_0_and_the_page_has_the_tables(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card's name and the date stand above them; the rest of the page stays."""
    assert run(place, monkeypatch, REACHED) == 0
    text = (place.folder.parent / "page.md").read_text()
    assert text.startswith("# Page\n\n<!-- make gpu: begin -->\n\nNVIDIA H200, driver 580.159.04, ")
    assert text.endswith("<!-- make gpu: end -->\n\nAfter.\n")
    assert "Not run yet" not in text
    assert "Every goal is reached." in capsys.readouterr().out
    result = json.loads((place.folder.parent / "result.json").read_text())
    assert result["card"]["compute"] == "9.0"
    assert result["rows"] == REACHED


def test_a_missed_goal_is_exit_code_1(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line names it."""
    assert run(place, monkeypatch, TRIAL) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("Not reached: ResNet-50 FP16 by gRPC / the engine")


def test_a_failed_step_is_exit_code_1_and_keeps_its_figures(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tables have the figures from before its end."""
    assert run(place, monkeypatch, REACHED, serving="its 190 s were over") == 1
    assert "| yes |" in (place.folder.parent / "page.md").read_text()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("serving      its 190 s were over") for line in lines)


def test_a_run_without_figures_leaves_the_page(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier run's tables are not replaced by empty ones."""
    assert run(place, monkeypatch, [], environment="no wheel fits") == 1
    assert (place.folder.parent / "page.md").read_text() == PAGE


def test_tests_of_absent_packages_are_left_out_and_named(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tests of what the tables show come first, since the last may find no time."""
    monkeypatch.setattr(Place, "imports", lambda _, name: True)
    files = [Path(file).stem for file in runner.testable(place)]
    assert files[:3] == ["test_device", "test_serving", "test_judging"]
    assert sorted(files) == sorted(file.stem for file in (PROJECT / "tests" / "gpu").glob("test_*.py"))
    monkeypatch.setattr(Place, "imports", lambda _, name: name != "torch")
    assert set(files) - {Path(file).stem for file in runner.testable(place)} == {
        "test_client_dlpack",
        "test_pytorch_stubs",
    }
    assert "this Python has no torch: test_client_dlpack, test_pytorch_stubs" in capsys.readouterr().out
