"""Options of `tritonkit load` that do not go together, or say nothing that can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer

from tests.cli.running import failed, tritonkit_here
from tritonkit.perf.commands.load_open import _end
from tritonkit.perf.load.openloop import OpenReport, Slo, parse_slo
from tritonkit.perf.load.openloop.results import times_of


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slo", "p99=20ms"], "--slo: it does not go with the other options"),
        (["--cv", "2"], "wanted: --rate or --find-rate"),
        (["--timeout", "5s"], "wanted: --rate or --find-rate"),
        (["--rate", "5", "--users", "3"], "--users: it does not go with the other options"),
        (["--rate", "5", "--tier", "batch"], "wanted: a closed loop"),
        (["--rate", "fast"], "wanted: requests a second"),
        (["--rate", "-3"], "wanted: requests a second"),
        (["--rate", "5", "--duration", "5"], "wanted a number and one of us, ms, s, min"),
        (["--rate", "5", "--slo", "p99"], "such as p99=20ms"),
        (["--find-rate"], "--find-rate: no --slo"),
        (["--find-rate", "--slo", "p99=1ms", "--shape", "daily"], "wanted: a steady rate"),
        (["--arrivals", "none.csv"], "--arrivals none.csv: it cannot be read"),
        (["--rate", "1000000", "--duration", "60min"], "at most 50,000,000 in one run"),
        (["--rate", "0.01", "--duration", "1ms"], "no request falls into it"),
    ],
)
def test_one_message_and_exit_code_2(options: list[str], message: str) -> None:
    """Before a server is started or a request made."""
    assert message in failed(tritonkit_here("load", "digits", *options), 2)


def test_a_bad_line_of_a_trace(tmp_path: Path) -> None:
    """File and line."""
    file = tmp_path / "trace.csv"
    file.write_text("0.1\noops\n")
    done = tritonkit_here("load", "digits", "--arrivals", str(file))
    assert f"{file}:2" in failed(done, 2)


def test_a_trace_whose_requests_come_too_late(tmp_path: Path) -> None:
    """After the duration, or at the seconds of a clock."""
    file = tmp_path / "trace.csv"
    file.write_text("2\n3\n")
    done = tritonkit_here("load", "digits", "--arrivals", str(file), "--duration", "1s")
    assert "no request in its first 1 s" in failed(done, 2)
    file.write_text("1764000000\n")
    done = tritonkit_here("load", "digits", "--arrivals", str(file))
    assert "subtract the first time" in failed(done, 2)


def test_options_that_a_trace_has_no_use_for(tmp_path: Path) -> None:
    """Its moments are its own."""
    file = tmp_path / "trace.csv"
    file.write_text("0\n")
    for options in (["--cv", "2"], ["--shape", "daily"], ["--warm-up", "1s"]):
        done = tritonkit_here("load", "digits", "--arrivals", str(file), *options)
        assert "not with a trace" in failed(done, 2)
    done = tritonkit_here("load", "digits", "--rate", "5", "--cv", "2")
    assert "wanted: --arrivals bursty" in failed(done, 2)


def test_a_model_that_is_not_there() -> None:
    """Named, with what is near."""
    assert "digit" in failed(tritonkit_here("load", "digit", "--rate", "5"), 2)


@pytest.mark.parametrize(
    ("slo", "missed", "code", "message"),
    [
        ("p99=20ms", (), 0, "counted in: late"),
        ("p99=20ms", ("net: p99 30.00 ms, at most 20 ms",), 1, "not valid: late"),
        ("", (), 1, "not valid: late"),
    ],
)
def test_a_late_generator_does_not_undo_a_target_that_holds(
    slo: str, missed: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lateness is in the figures; without a target, or where it is missed, the run says nothing."""
    lag = times_of(np.array([5.0]))
    assert lag is not None
    report = OpenReport(1.0, (), lag, (0.5,), ("late",), missed)
    try:
        _end(report, None, parse_slo([slo]) if slo else Slo({}))
        exit_code: object = 0
    except typer.Exit as end:
        exit_code = end.exit_code
    assert exit_code == code
    assert message in capsys.readouterr().err
