"""`tritonkit plan` with what was measured elsewhere, and options that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit_here
from tests.perf.plan.test_run import MEASURED


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The file of measurements."""
    MEASURED.save(tmp_path / "net.json")
    return str(tmp_path / "net.json")


@pytest.mark.slow
def test_a_plan_without_a_project(file: str, tmp_path: Path) -> None:
    """In any folder: figures, tables and both files of the report."""
    out = tmp_path / "out"
    command = ["plan", "--measured", file, "--rate", "300", "--slo", "p99=100ms"]
    done = tritonkit_here(
        *command,
        "--price",
        "$0.526/h",
        "--traffic",
        "steady",
        "--report",
        str(out),
        "--lambda-price-gb-s",
        "0.0001",
        "--lambda-price-million",
        "0.2",
        "--lambda-call",
        "30ms",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    for words in (
        "replicas",
        "for a million requests",
        "one goes down",
        "what would save",
        "flaps",
        "million calls of 30 ms, 1769 MiB; cheaper up to",
    ):
        assert words in done.stdout
    facts = json.loads((out / "report.json").read_text())
    assert facts["traffic"] == "steady"
    assert "<svg" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "0", "--slo", "p99=9s"], "--rate: 0"),
        (["--rate", "inf", "--slo", "p99=9s"], "--rate: inf"),
        (["--rate", "9", "--slo", "p99"], "--slo"),
        (["--rate", "9", "--slo", "p99=9s", "--price", "cheap"], "such as 0.526/h"),
        (["--rate", "9", "--slo", "p99=9s", "--traffic", "wavy"], "or a CSV file"),
        (["--rate", "9", "--slo", "p99=9s", "--traffic", "no.csv"], "no.csv"),
        (["--rate", "9", "--slo", "p99=9s", "--start-up", "soon"], "--start-up"),
        (["--rate", "9", "--slo", "p99=1ms"], "even alone, requests take"),
        (["--rate", "9", "--slo", "p99=9s", "--lambda-call", "9ms"], "--lambda-price-gb-s too"),
        (["--rate", "9", "--slo", "p99=9s", "--lambda-price-gb-s", "1"], "--lambda-price-million: none"),
        (
            ["--rate", "9", "--slo", "p99=9s", "--lambda-price-gb-s", "1", "--lambda-price-million", "1"],
            "--price: none",
        ),
        (["other", "--rate", "9", "--slo", "p99=9s"], "model other"),
    ],
)
def test_one_message_and_exit_code_2(file: str, options: list[str], message: str) -> None:
    """No traceback."""
    assert message in failed(tritonkit_here("plan", "--measured", file, *options), 2)


def test_a_model_or_a_file_is_wanted() -> None:
    """The command needs a model of a project, or a file of measurements."""
    done = tritonkit_here("plan", "--rate", "9", "--slo", "p99=9s")
    assert "--measured FILE" in failed(done, 2)
