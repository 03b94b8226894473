"""Locust on the project's file, against made-up models: verdicts, exit codes, and what is refused."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import failed, tritonkit
from tests.conftest import PROJECT
from tests.loadtest.conftest import FakeDigits, lines_of, locust
from tests.waiting import PATIENCE_S, eventually
from tritonkit.testing import FakeModel

SHORT = ("TritonUser", "-u", "4", "-r", "4", "-t", "2s", "--models", "digits")
LOOSE = "models: {digits: {p99_ms: 5000, min_rate: 1}}"


@pytest.fixture
def thresholds(tmp_path: Path) -> Path:
    """Limits that any machine holds."""
    file = tmp_path / "thresholds.yaml"
    file.write_text(LOOSE)
    return file


def test_a_run_that_holds_its_limits_is_exit_code_0(
    serve: Any, fake_digits: FakeDigits, thresholds: Path, tmp_path: Path
) -> None:
    """Reports are written: HTML, CSV, and JSON with times and the verdict."""
    with serve({"digits": fake_digits()}) as address:
        done = locust(
            *SHORT,
            "--host",
            address,
            "--thresholds",
            str(thresholds),
            "--html",
            str(tmp_path / "r.html"),
            "--csv",
            str(tmp_path / "r"),
            "--report-json",
            str(tmp_path / "new" / "r.json"),
        )
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "new" / "r.json").read_text())
    assert facts["holds"]
    (series,) = facts["series"]
    assert (series["protocol"], series["model"], series["failures"]) == ("grpc", "digits", 0)
    assert 0 < series["p50_ms"] <= series["p95_ms"] <= series["p99_ms"] <= series["largest_ms"]
    assert series["mean_bytes"] == 2 + 8
    assert facts["duration_s"] > 1.0
    assert "grpc,digits" in (tmp_path / "r_stats.csv").read_text()
    assert "digits" in (tmp_path / "r.html").read_text()


def test_a_wrong_label_is_a_failure(serve: Any, fake_digits: FakeDigits, thresholds: Path) -> None:
    """A server that answers quickly and wrong misses; one line says how, another nothing."""
    with serve({"digits": fake_digits(right_images=370)}) as address:
        done = locust(*SHORT, "--host", address, "--thresholds", str(thresholds), "--think-time", "10ms")
    assert done.returncode == 1
    (missed,) = lines_of(done, "missed: ")
    assert "error rate" in missed
    assert "label ?, expected" in missed


def test_each_missed_limit_is_one_line(serve: Any, fake_digits: FakeDigits, thresholds: Path) -> None:
    """Exit code 1 and as many lines as limits were missed."""
    thresholds.write_text("models: {digits: {p50_ms: 0.001, p95_ms: 0.001, min_rate: 1000000}}")
    with serve({"digits": fake_digits()}) as address:
        done = locust(*SHORT, "--host", address, "--thresholds", str(thresholds))
    assert done.returncode == 1
    assert len(lines_of(done, "missed: ")) == 3


def test_a_server_that_misreads_from_the_start_is_not_loaded(serve: Any, fake_digits: FakeDigits) -> None:
    """One line says how many it reads right, and nothing is judged."""
    with serve({"digits": fake_digits(right_images=100)}) as address:
        done = locust(*SHORT, "--host", address)
    assert done.returncode == 5
    (error,) = lines_of(done, "error: ")
    assert "100 of 360" in error
    assert not lines_of(done, "missed: ")


def test_a_host_that_does_not_answer_is_one_line() -> None:
    """The exit code is 5, immediately, and nothing else is on standard error."""
    done = locust(*SHORT, "--host", "127.0.0.1:1", "-t", "3600s")
    assert done.returncode == 5
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: 127.0.0.1:1: UNAVAILABLE")


def test_a_server_that_goes_away_ends_the_run_with_one_line(serve: Any, fake_digits: FakeDigits) -> None:
    """After some seconds without any answer, long before the run would have ended."""
    command = [sys.executable, "-m", "locust", "-f", str(PROJECT / "loadtest" / "locustfile.py")]
    quiet = ["--headless", "--only-summary", "--loglevel", "WARNING"]
    pngs: list[bytes] = []
    with serve({"digits": fake_digits(pngs=pngs)}) as address:
        process = subprocess.Popen(
            [*command, *quiet, *SHORT, "--host", address, "-t", "3600s"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )
        # The first look takes 360 images: after it the run itself has begun.
        eventually(lambda: len(pngs) >= 400 or process.poll() is not None, "requests of the run")
    try:
        errors = process.communicate(timeout=PATIENCE_S)[1].strip().splitlines()
    finally:
        process.kill()
    assert process.returncode == 5
    assert errors[0].startswith(f"error: {address}: UNAVAILABLE")
    # What follows is Locust's summary, where all failures of one kind are one row: those that found
    # nobody, and those under way when the server went, if there were any.
    rows = [line for line in errors[1:] if address in line]
    assert sum("refused" in row for row in rows) == 1
    assert len(rows) <= 1 + int(SHORT[2])


def test_a_wrong_option_is_one_line_and_exit_code_2() -> None:
    """Before anything is sent; tests/loadtest/test_settings.py has the many ways to be wrong."""
    done = locust(*SHORT, "--models", "digts")
    assert done.returncode == 2, done.stderr
    assert done.stderr == "error: --models: there is no model 'digts'; wanted: 'digits'\n"


@pytest.fixture
def own_model(root: Path) -> Path:
    """A project with one model that does not ship, and an example for it."""
    (root / "loadtest").symlink_to(PROJECT / "loadtest")
    folder = root / "models" / "shout"
    folder.mkdir()
    (folder / "model.py").touch()
    (folder / "model.yaml").write_text(
        "name: shout\nnetwork:\n  python: model.py\n  inputs: {text: {dtype: BYTES, shape: [1]}}\n"
        "  outputs: {loud: {dtype: BYTES, shape: [1]}}\nexample:\n  text: {text: hello}\n"
    )
    (root / "limits.yaml").write_text("models: {shout: {min_rate: 1}}")
    return root


def test_a_model_of_ones_own_is_loaded_with_its_example(serve: Any, own_model: Path) -> None:
    """The example of model.yaml is sent by all users concurrently: none waits for another's answer, as all would if the
    client did not wait with gevent."""
    heard: list[bytes] = []
    inside: list[int] = [0]
    together: list[int] = []

    def shout(inputs: Any) -> Any:
        inside[0] += 1
        together.append(inside[0])
        time.sleep(0.05)
        inside[0] -= 1
        heard.extend(inputs["text"].ravel())
        return {"loud": [[text.upper()] for text in inputs["text"].ravel()]}

    model = FakeModel({"text": ("BYTES", [1])}, {"loud": ("BYTES", [1])}, shout, max_batch_size=4)
    with serve({"shout": model}) as address:
        done = locust(
            "TritonUser",
            "-u",
            "4",
            "-r",
            "4",
            "-t",
            "2s",
            "--models",
            "shout",
            "--host",
            address,
            "--thresholds",
            "limits.yaml",
            "--think-time",
            "0ms",
            root=own_model,
        )
    assert done.returncode == 0, done.stderr
    assert set(heard) == {b"hello"}
    assert max(together) > 1


def test_options_have_environment_variables() -> None:
    """Each of our options can be set by one, as Locust's own can."""
    code = (
        "import locust, settings; from locust.argument_parser import get_empty_argument_parser\n"
        "parser = get_empty_argument_parser(default_config_files=[])\n"
        "settings.add_options(parser, ['digits']); print(vars(parser.parse_args([])))"
    )
    names = ["http_host", "models", "weights", "think_time", "thresholds", "tier", "report_json"]
    variables = {name: f"the-{name}" for name in names} | {"shape": "spike"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROJECT / "loadtest",
        env=os.environ | {f"LOADTEST_{name.upper()}": value for name, value in variables.items()},
    )
    assert variables.items() <= ast.literal_eval(done.stdout).items()


def test_the_command_judges_and_reports(serve: Any, fake_digits: FakeDigits, thresholds: Path, tmp_path: Path) -> None:
    """`tritonkit load` prints the report as JSON, writes the files, and ends with 1 for a miss."""
    common = ["--users", "3", "--duration", "2s", "--json", "--thresholds", str(thresholds)]
    with serve({"digits": fake_digits()}) as address:
        done = tritonkit("load", "digits", *common, "--address", address, "--report", str(tmp_path / "out"))
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert facts["missed"] == []
        assert facts["series"][0]["requests"] > 10
        written = {path.name for path in (tmp_path / "out").iterdir()}
        assert {"report.html", "report.json", "locust_stats.csv"} <= written
        thresholds.write_text("tiers: {never: {p50_ms: 0.001}}")
        done = tritonkit("load", "digits", *common, "--address", address, "--tier", "never")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("missed: ")] == [
        f"missed: {json.loads(done.stdout)['missed'][0]}"
    ]


def test_the_page_is_on_loopback_and_has_a_host() -> None:
    """Unless an option or an environment variable says otherwise."""
    code = (
        "import locust, settings\n"
        "from locust.argument_parser import get_empty_argument_parser, setup_parser_arguments\n"
        "parser = get_empty_argument_parser(default_config_files=[])\n"
        "setup_parser_arguments(parser)\n"
        "settings.add_options(parser, [])\n"
        "for words in ([], ['--web-host', '*', '--host', 'a:1']):\n"
        "    read = parser.parse_args(words)\n"
        "    print(read.host, read.web_host)\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCUST_")}
    addresses = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=env | more,
            cwd=PROJECT / "loadtest",
        ).stdout.splitlines()
        for more in ({}, {"LOCUST_WEB_HOST": "10.0.0.1"})
    ]
    assert addresses == [["127.0.0.1:8001 127.0.0.1", "a:1 *"], ["127.0.0.1:8001 10.0.0.1", "a:1 *"]]


def test_an_interrupt_keeps_the_figures(serve: Any, own_model: Path) -> None:
    """Ctrl-C ends a closed loop early: what was sent is counted and shown, and the exit code says it."""
    sizes: list[int] = []

    def shout(inputs: Any) -> Any:
        sizes.append(len(inputs["text"]))
        return {"loud": [[text.upper()] for text in inputs["text"].ravel()]}

    model = FakeModel({"text": ("BYTES", [1])}, {"loud": ("BYTES", [1])}, shout, max_batch_size=4)
    with serve({"shout": model}) as address:
        load = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tritonkit.cli",
                "load",
                "shout",
                "--users",
                "2",
                "--duration",
                "60s",
                "--think-time",
                "5ms",
                "--address",
                address,
                "--json",
                "--thresholds",
                "limits.yaml",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=own_model,
        )
        eventually(lambda: len(sizes) > 20, "some requests")
        load.send_signal(signal.SIGINT)
        out, err = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 130, err
    (series,) = json.loads(out)["series"]
    assert 20 <= series["requests"] <= len(sizes)
    assert series["failures"] == 0
    assert "the figures cover the requests that were sent" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["digts"], 2, "'digits'"),
        (["digits", "--duration", "1.5s"], 2, "whole seconds"),
        (["digits", "--duration", "20"], 2, "ms, s, min"),
        (["digits", "--tier", "interactiv"], 2, "'interactive'"),
        (["digits", "--thresholds", "/no/such.yaml"], 2, "no such file"),
        (["digits", "--http-address", "127.0.0.1:1"], 2, "--address"),
        (["digits", "--address", "127.0.0.1:1"], 5, "127.0.0.1:1"),
    ],
)
def test_the_command_refuses_what_cannot_be(arguments: list[str], code: int, words: str) -> None:
    """With the exit codes of every command, and no traceback."""
    assert words in failed(tritonkit("load", *arguments), code)
