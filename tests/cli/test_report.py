"""`tritonkit report` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import evaluate


@pytest.fixture
def built(root: Path, write_model: WriteModel) -> Path:
    """A project whose one model is built."""
    file = onnx_file(RELU, ["batch", 4])
    spec = write_model("name: relu\nnetwork: {onnx: relu.onnx}\n", "relu", relu__onnx=file)
    evaluate(spec, ("onnx-fp32",), BuildCache(root / ".tritonkit" / "cache"))
    return root


def test_a_report_is_one_file_where_the_person_stands(built: Path, tmp_path: Path) -> None:
    """report.html by default; what was not timed is said not to be, with the command that does."""
    stand = tmp_path / "here"
    stand.mkdir()
    done = tritonkit("report", "--root", str(built), cwd=stand)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert f"1 variant of 1 model: {stand}/report.html" in done.stderr
    assert [path.name for path in stand.iterdir()] == ["report.html"]
    page = (stand / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "tritonkit build relu --variants all" in page


def test_a_report_for_programs(built: Path, tmp_path: Path) -> None:
    """The same figures as JSON on standard output alone, and where the page lies."""
    file = tmp_path / "r.html"
    done = tritonkit("report", "relu", "--json", "--out", str(file), "--root", str(built))
    facts = json.loads(done.stdout)
    assert facts["report"] == str(file)
    assert file.is_file()
    assert facts["machine"]["cores"] >= 1
    (model,) = facts["models"]
    assert (model["model"], model["served"]) == ("relu", "onnx-fp32")
    assert model["variants"][0]["passed"] is True
    assert model["variants"][0]["quality"]["max_difference"] == 0


def test_a_report_on_nothing_names_the_command(built: Path, write_model: WriteModel) -> None:
    """Exit code 2, and nothing is written."""
    file = onnx_file(RELU, ["batch", 4])
    write_model("name: twin\nnetwork: {onnx: relu.onnx}\n", "twin", relu__onnx=file)
    message = failed(tritonkit("report", "twin", "--root", str(built), cwd=built), 2)
    assert "do: tritonkit build twin --variants all" in message
    assert not (built / "report.html").exists()


@pytest.mark.parametrize("out", ["models", "no/such/folder/report.html"])
def test_a_place_that_cannot_be_written_is_refused(built: Path, out: str) -> None:
    """Before anything is read or profiled."""
    message = failed(tritonkit("report", "--out", out, cwd=built), 2)
    assert f"--out {out}" in message
    assert "reading" not in message
