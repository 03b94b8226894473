"""A short run of the chaos bench: parts of a stack are killed and stopped under checked load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from tritonkit.repository.pipeline import build_repository


@pytest.mark.needs("envoy")
@pytest.mark.needs("redis")
@pytest.mark.needs("prometheus")
@pytest.mark.slow
def test_no_answer_is_wrong_and_every_failure_has_its_fault(project: Path, tmp_path: Path) -> None:
    """Three faults: all parts answer right again, and nothing is left of the stack."""
    repository = build_repository(project, ("digits", "sentences"), out=tmp_path / "models").path
    file, picture = tmp_path / "chaos.json", tmp_path / "chaos.svg"
    arguments = ["--minutes", "0.2", "--kills", "15", "--json", str(file), "--svg", str(picture)]
    code = main(["chaos", "--repository", str(repository), *arguments])
    report = json.loads(file.read_text())
    assert len(report["faults"]) == 3
    assert {name: report[name] for name in ("wrong", "unexplained")} == {"wrong": [], "unexplained": []}
    assert {ratio["name"]: ratio["rounds"] for ratio in report["ratios"] if not ratio["holds"]} == {}
    assert code == 0
    assert sum(report["answers"].values()) > 100
    assert picture.read_text().startswith("<svg")
