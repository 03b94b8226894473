"""Open-loop load on a real Triton: rates that are kept, stalls that show, a search, an interrupt."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit
from tests.conftest import PROJECT
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.errors import ModelNotFound
from tritonkit.perf.load.openloop import Arrivals, Generator, OpenLoad, Slo, find_rate, parse_slo
from tritonkit.serve import Endpoint, serve


@pytest.fixture
def generator(digits_server: Endpoint) -> Iterator[Generator]:
    """For digits and sentences on the session's server."""
    with Generator(PROJECT, ("digits", "sentences"), (digits_server.grpc,)) as made:
        yield made


def test_every_request_that_was_due_is_sent_and_answered_right(generator: Generator) -> None:
    """Two processes send requests of both models; the server counts the same, in batches or not."""
    load = OpenLoad(60.0, 3.0, warm_s=0.5, arrivals=Arrivals("constant"), processes=2)
    report = generator.run(load)
    assert not report.ended
    assert [series.model for series in report.series] == ["digits", "sentences"]
    assert sum(series.requests for series in report.series) == 180
    for series in report.series:
        assert series.failures == 0, series.words
        assert series.latency
        assert series.service
        assert series.latency.mean >= series.service.mean
        assert len(series.histogram) == series.right == series.requests
        assert sum(second.due for second in series.seconds) == series.requests
    assert len(report.cpu_shares) == 2
    counted = {c["model"] for c in report.counters}
    assert {"digits_network", "sentences_tokenize"} <= counted
    ran = sum(c["items"] for c in report.counters if c["model"] == "digits_network")
    assert 0 < ran <= report.series[0].requests + 60


def test_a_stall_shows_in_the_latency_of_all_that_was_due(shipped_repository: Path) -> None:
    """A server stopped for a second under 50 requests/s: some 50 requests wait, half of them over half of it.

    Callers who wait for their answer would have sent a single request meanwhile, and p90 would show nothing.
    """
    with serve(shipped_repository, models=("digits",), grpc_port=0, metrics_port=0, root=PROJECT) as endpoint:

        def stall() -> None:
            with Client(endpoint.grpc) as client:
                eventually(lambda: client.statistics("digits")[0].success_count > 50, "a second of answers")
            os.kill(endpoint.pid, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(endpoint.pid, signal.SIGCONT)

        with Generator(PROJECT, ("digits",), (endpoint.grpc,)) as generator:
            stalling = threading.Thread(target=stall)
            stalling.start()
            report = generator.run(OpenLoad(50.0, 5.0, warm_s=0, arrivals=Arrivals("constant")))
            stalling.join()
    (series,) = report.series
    assert series.failures == 0, series.words
    assert series.latency
    assert series.latency.largest > 900
    slow = sum(count for lower, _, count in series.histogram.edges() if lower > 500)
    assert slow >= 20


def test_the_highest_rate_lies_between_one_that_holds_and_one_that_does_not(generator: Generator) -> None:
    """Any machine holds the target at a few requests a second, and none at a hundred thousand."""
    slo = parse_slo(["p50=400ms"])
    search = find_rate(generator, slo, start_per_s=32, trial_s=1.0, repeats=1, precision=0.5)
    assert search.trials
    if not search.rate_per_s:  # on a busy machine
        assert not any(trial.holds for trial in search.trials if trial.rate_per_s < 1)
        return
    held = [trial.rate_per_s for trial in search.trials if trial.holds]
    missed = [trial.rate_per_s for trial in search.trials if not trial.holds]
    assert search.rate_per_s in held
    assert search.low <= search.rate_per_s
    assert search.high is None or search.high in missed
    assert search.report
    assert not search.report.missed


def test_a_target_that_nothing_meets(generator: Generator) -> None:
    """The search says so, with the latency at the lowest rate."""
    search = find_rate(generator, Slo({50.0: 0.001}), start_per_s=1, trial_s=1.0, repeats=1)
    assert search.rate_per_s == search.low == 0
    assert search.summary.startswith("No rate")
    assert all(not trial.holds for trial in search.trials)
    assert search.trials[-1].tail_ms


def test_a_model_that_is_not_served(digits_server: Endpoint) -> None:
    """Said before a request is sent."""
    with pytest.raises(ModelNotFound), Generator(PROJECT, ("resnet50",), (digits_server.grpc,)):
        pass


def test_the_command_reports_what_it_saw(digits_server: Endpoint, tmp_path: Path) -> None:
    """Table, JSON, a page and two CSV files; a target that nothing meets is exit code 1 with a line."""
    folder = tmp_path / "out"
    rate = [
        "load",
        "digits",
        "--rate",
        "20",
        "--duration",
        "2s",
        "--warm-up",
        "500ms",
        "--address",
        digits_server.grpc,
        "--report",
        str(folder),
    ]
    done = tritonkit(*rate, "--slo", "p50=1us", "--json")
    assert done.returncode == 1
    assert "missed: digits: p50" in done.stderr
    facts = json.loads(done.stdout)
    assert json.loads((folder / "report.json").read_text()).items() <= facts.items()
    (series,) = facts["series"]
    assert series["failures"] == 0
    assert series["requests"] == sum(count for _, count in series["histogram"]["counts"])
    page = (folder / "report.html").read_text()
    assert "Missed: digits: p50" in page
    assert "--slo p50=1us" in page
    rows = list(csv.DictReader((folder / "seconds.csv").read_text().splitlines()))
    assert sum(int(row["due"]) for row in rows) == series["requests"]
    counters = list(csv.DictReader((folder / "counters.csv").read_text().splitlines()))
    assert {"digits_network", "digits_top_k"} <= {row["model"] for row in counters}
    done = tritonkit(*rate, "--slo", "p50=1min", "--arrivals", "bursty", "--shape", "daily")
    assert "missed" not in done.stderr
    assert done.stdout.splitlines()[2].split()[0] == "digits"


def test_a_trace_is_sent_as_it_was_recorded(digits_server: Endpoint, tmp_path: Path) -> None:
    """Each line is a request; at another rate the trace is stretched."""
    file = tmp_path / "trace.csv"
    file.write_text("time_s\n" + "".join(f"{k / 20}\n" for k in range(31)))
    command = ["load", "digits", "--arrivals", str(file), "--address", digits_server.grpc, "--json"]
    facts = json.loads(tritonkit(*command).stdout)
    assert facts["series"][0]["right"] == 31
    assert facts["duration_s"] == pytest.approx(1.501)
    facts = json.loads(tritonkit(*command, "--rate", "10").stdout)
    assert facts["series"][0]["right"] == 31
    assert facts["duration_s"] == pytest.approx(3.1, abs=0.1)


def begun(digits_server: Endpoint, *options: str) -> subprocess.Popen[str]:
    """A load of 300 s whose generator has been told to run, in a process group of its own."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tritonkit.cli",
            "load",
            "digits",
            "--rate",
            "50",
            "--duration",
            "300s",
            "--address",
            digits_server.grpc,
            "--json",
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        start_new_session=True,
    )
    assert process.stderr
    line = " "
    while line and "for 300 s" not in line:
        line = process.stderr.readline()
    assert line, "it ended"
    return process


def test_an_interrupt_reports_what_was_sent(digits_server: Endpoint) -> None:
    """Ctrl-C once: the figures so far, and the exit code of an interrupt."""
    with begun(digits_server, "--warm-up", "0s") as process, Client(digits_server.grpc) as client:

        def answered() -> int:
            return client.statistics("digits")[0].success_count

        before = answered()
        eventually(lambda: answered() > before + 50, "answers")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    facts = json.loads(out)
    assert facts["ended"] == "interrupted"
    assert facts["series"][0]["right"] == facts["series"][0]["requests"] > 0


@pytest.mark.parametrize("wait_s", [0.0, 1.0])
def test_an_interrupt_before_anything_counts(digits_server: Endpoint, wait_s: float) -> None:
    """Immediately, or during the warm-up: the exit code, no figures, no traceback."""
    with begun(digits_server, "--warm-up", "200s") as process:
        time.sleep(wait_s)
        os.kill(process.pid, signal.SIGINT)  # of the command alone
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err


def test_a_command_that_is_killed_leaves_no_sender(digits_server: Endpoint) -> None:
    """Its generator and the generator's processes end with it."""
    with begun(digits_server) as process:
        process.kill()
        process.communicate(timeout=PATIENCE_S)

    def is_gone() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(is_gone, "the processes of its group to end")


def test_a_server_that_is_not_there() -> None:
    """One message, and the exit code of the network."""
    done = tritonkit("load", "digits", "--rate", "10", "--address", "127.0.0.1:9")
    assert "127.0.0.1:9" in failed(done, 5)
