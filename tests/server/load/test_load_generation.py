"""Loads of language models on a real Triton: both loops, recorded requests, refusals, mixed-up answers, a search."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import failed, tritonkit
from tests.conftest import PROJECT
from tests.perf.load.gpu import gpu_text, metrics_server
from tests.repository.optimize.checkpoints import write_checkpoint
from tests.server.language.test_llm import write_served
from tests.waiting import PATIENCE_S
from tritonkit.client import Client
from tritonkit.errors import ModelNotFound, UsageError
from tritonkit.perf.load.generation import ClosedLoad, TextGenerator, TextTraffic, parse_lengths, read_token_trace
from tritonkit.perf.load.generation.target import look_at
from tritonkit.perf.load.openloop import OpenLoad, Slo, find_rate, parse_slo
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import Endpoint, serve

CONTEXT = 512


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A Triton with a model of eight places, one whose single place has no queue, and one with little cache."""
    repository = tmp_path_factory.mktemp("load") / "repository"
    settings: dict[str, Any] = {"threads": "1", "context": str(CONTEXT)}
    write_served(repository / "tiny", cache_mib="4", max_sequences="8", **settings)
    write_served(repository / "narrow", cache_mib="1", max_sequences="1", max_waiting="0", **settings)
    write_served(repository / "short", cache_mib="1", threads="1", context="8192", cache_precision="u8")
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0) as endpoint:
        yield endpoint


def traffic(prompt: str, output: str, prefix: int = 0) -> TextTraffic:
    """The options of a command line."""
    lengths = parse_lengths("--prompt-tokens", prompt), parse_lengths("--output-tokens", output)
    return TextTraffic(*lengths, prefix)


def test_a_mix_of_lengths_at_a_rate(server: Endpoint) -> None:
    """All answers are right and as long as asked, prompts too; some are requested twice, and say the same."""
    slo = parse_slo(["ttft_p99=1min,itl_p99=1min,p99=5min"], language=True)
    with TextGenerator("tiny", (server.grpc,), traffic("5-150", "lognormal:20,1")) as generator:
        report = generator.run(OpenLoad(10.0, 4.0, warm_s=0.5, slo=slo))
    assert report.failures == 0, report.words
    assert report.missed == ()
    assert not report.ended
    assert report.requests == report.right > 10
    assert report.prompt_found == report.prompt_asked  # its tokenizer cuts at spaces
    assert report.output_asked
    assert report.ttft
    assert report.itl
    assert report.latency
    assert report.ttft.count == report.latency.count == report.right
    assert report.itl.count <= report.right * report.output_asked.mean
    assert 0 < report.ttft.mean <= report.latency.mean
    assert (report.compared, report.differing) == (8, 0)
    assert report.window == CONTEXT
    assert report.tokens_per_s > 0
    assert len(report.seconds) == 4
    assert sum(second.due for second in report.seconds) == report.requests


def test_a_shared_prefix_and_a_closed_loop(server: Endpoint) -> None:
    """A fixed number of streams, each followed by the next; prompts have the prefix as well."""
    energy = itertools.count(300, 300)
    with (
        metrics_server(lambda: gpu_text(next(energy))) as metrics,
        TextGenerator("tiny", (server.grpc,), traffic("10", "5-30", prefix=70), metrics=[metrics]) as generator,
    ):
        report = generator.run_closed(ClosedLoad(6, 2.0, 0.0, slo=Slo({})))
    assert report.failures == 0, report.words
    assert report.missed == ()
    assert report.loop == "closed"
    assert report.requests >= 6
    assert report.prompt_found
    assert (report.prompt_found.smallest, report.prompt_found.largest) == (80, 80)
    assert report.differing == 0 < report.compared
    assert report.lag is None
    assert report.gpu
    assert report.to_dict()["gpu"]["energy_per_request_j"] == report.gpu.energy_per_request_j is not None


def test_requests_that_are_too_long_are_shortened(server: Endpoint) -> None:
    """To what the server has room for, which may be its cache."""
    with Client(server.grpc, timeout_s=PATIENCE_S) as client:
        assert look_at(client, "tiny").window == CONTEXT
        short = look_at(client, "short")
        model = client.model("short")
        with model.stream(text="a", max_tokens=short.window - 1) as replies:
            assert next(replies)
        with pytest.raises(Exception, match="INVALID_ARGUMENT: max_tokens"):
            list(model.stream(text="a", max_tokens=short.window))
    assert short.window < 8192
    assert not short.repeatable
    with TextGenerator("tiny", (server.grpc,), traffic("sharegpt", "sharegpt")) as generator:
        report = generator.run(OpenLoad(4.0, 3.0, warm_s=0.0))
    assert report.failures == 0, report.words
    assert 0 < report.clipped <= report.requests


def test_a_trace(server: Endpoint, tmp_path: Path) -> None:
    """Its lengths, at its moments."""
    file = tmp_path / "trace.csv"
    rows = [(k / 10, 5 + 3 * k, 1 + k) for k in range(12)]
    file.write_text("seconds,prompt_tokens,output_tokens\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    trace = read_token_trace(file)
    assert trace.seconds is not None
    recorded = TextTraffic(parse_lengths("", "5"), parse_lengths("", "5"), 0, trace)
    with TextGenerator("tiny", (server.grpc,), recorded) as generator:
        report = generator.run(OpenLoad(1.0, 1.2, 0.0, trace=trace.seconds))
    assert report.right == report.requests == 12, report.words
    assert report.prompt_found
    assert report.prompt_found.mean == np.mean([row[1] for row in rows])
    assert report.output_asked
    assert (report.output_asked.smallest, report.output_asked.largest) == (1, 12)


def test_a_server_that_refuses(server: Endpoint) -> None:
    """Its refusals are counted by their words and have no time; requests that had a place are right."""
    with TextGenerator("narrow", (server.grpc,), traffic("5", "200-400")) as generator:
        report = generator.run(OpenLoad(200.0, 1.0, warm_s=0.0))
    assert report.failures > 0
    assert report.right + report.failures == report.requests
    assert any("UNAVAILABLE: 0 requests wait already" in words for words in report.words)
    assert sum(report.words.values()) == report.failures
    assert report.latency is None or report.latency.count == report.right
    assert "of the requests failed" in report.missed[0]


def test_no_answer_in_time(server: Endpoint) -> None:
    """A failure that says so."""
    with TextGenerator("tiny", (server.grpc,), traffic("5", "5"), timeout_s=1e-6) as generator:
        report = generator.run(OpenLoad(20.0, 1.0, warm_s=0.0))
    assert dict(report.words) == {"DeadlineExceeded: no end of the answer within 1e-06 s": report.requests}


def test_targets_decide_the_exit_code(server: Endpoint, tmp_path: Path) -> None:
    """Table, JSON, page and CSV; a target that nothing meets is exit code 1 with a line."""
    folder = tmp_path / "out"
    command = [
        "load",
        "tiny",
        "--address",
        server.grpc,
        "--prompt-tokens",
        "8-40",
        "--output-tokens",
        "2-9",
        "--duration",
        "2s",
        "--warm-up",
        "0s",
        "--rate",
        "8",
    ]
    done = tritonkit(*command, "--slo", "ttft_p99=0.001ms", "--json", "--report", str(folder))
    assert done.returncode == 1
    assert "missed: tiny: ttft_p99" in done.stderr
    facts = json.loads(done.stdout)
    assert json.loads((folder / "report.json").read_text()).items() <= facts.items()
    assert facts["failures"] == 0
    page = (folder / "report.html").read_text()
    assert "Missed: tiny: ttft_p99" in page
    assert "--slo ttft_p99=0.001ms" in page
    rows = list(csv.DictReader((folder / "seconds.csv").read_text().splitlines()))
    assert sum(int(row["due"]) for row in rows) == facts["requests"]
    done = tritonkit(*command, "--slo", "ttft_p99=1min,itl_p99=1min,p99=1min")
    assert "missed" not in done.stderr
    assert done.stdout.splitlines()[2].startswith("first token")


def test_limits_of_the_thresholds_file(server: Endpoint, tmp_path: Path) -> None:
    """They hold if no target is given, in a closed loop too."""
    file = tmp_path / "thresholds.yaml"
    file.write_text("models: {tiny: {itl_p50_ms: 0.000001, min_rate: 1000000}}\n")
    done = tritonkit(
        "load",
        "tiny",
        "--address",
        server.grpc,
        "--prompt-tokens",
        "8",
        "--output-tokens",
        "40",
        "--duration",
        "1s",
        "--users",
        "2",
        "--thresholds",
        str(file),
    )
    assert done.returncode == 1
    assert "missed: tiny: itl_p50" in done.stderr
    assert "right answers/s, at least 1e+06" in done.stderr


@pytest.mark.slow
def test_the_highest_rate(server: Endpoint) -> None:
    """A target that nothing meets is met at no rate; refusals end another search, which has a report of what held."""
    with TextGenerator("narrow", (server.grpc,), traffic("8", "4")) as generator:
        nothing = find_rate(generator, parse_slo(["ttft_p50=1us"], language=True), start_per_s=2, trial_s=1, repeats=1)
        easy = find_rate(
            generator,
            parse_slo(["ttft_p50=1min,errors=50%"], language=True),
            start_per_s=4,
            trial_s=1,
            repeats=1,
            precision=3.0,
        )
    assert nothing.rate_per_s == 0
    assert nothing.trials
    held = [trial.rate_per_s for trial in easy.trials if trial.holds]
    if held:  # on a busy machine hardly anything is
        assert easy.rate_per_s in held
        assert easy.report
        assert not easy.report.missed


def test_models_that_cannot_be_loaded(server: Endpoint, digits_server: Endpoint) -> None:
    """One is not served, and one is not a language model."""
    with pytest.raises(ModelNotFound), TextGenerator("none", (server.grpc,), traffic("5", "5")):
        pass
    with (
        pytest.raises(UsageError, match="it is not a language model"),
        TextGenerator("digits", (digits_server.grpc,), traffic("5", "5")),
    ):
        pass


def test_a_server_that_is_not_there() -> None:
    """One message, and the exit code of the network."""
    done = tritonkit("load", "tiny", "--rate", "10", "--address", "127.0.0.1:9")
    assert "127.0.0.1:9" in failed(done, 5)


def test_an_interrupt_reports_what_had_ended(server: Endpoint) -> None:
    """Ctrl-C once answers have come: the figures so far, and the exit code of an interrupt."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tritonkit.cli",
            "load",
            "tiny",
            "--users",
            "2",
            "--duration",
            "300s",
            "--warm-up",
            "0s",
            "--address",
            server.grpc,
            "--prompt-tokens",
            "5",
            "--output-tokens",
            "5",
            "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        start_new_session=True,
    )
    with process, Client(server.grpc, timeout_s=PATIENCE_S) as client:
        assert process.stderr
        while "streams at the same time" not in (line := process.stderr.readline()):
            assert line, "it ended"
        wait_for_requests(client, 20)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    facts = json.loads(out)
    assert facts["ended"] == "interrupted"
    assert facts["right"] == facts["requests"] > 0


def wait_for_requests(client: Client, more: int) -> None:
    """Wait until the server has taken this number more."""
    from tests.waiting import eventually

    def count() -> int:
        return sum(version.execution_count for version in client.statistics("tiny"))

    before = count()
    eventually(lambda: count() >= before + more, "requests come")


@pytest.mark.slow
def test_one_command_starts_a_server_for_a_checkpoint(root: Path) -> None:
    """From its spec it is known as a language model; byte pairs are met nearly, and reported as they were."""
    folder = root / "models" / "chat"
    write_checkpoint(folder / "checkpoint")
    (folder / "model.yaml").write_text(
        "name: chat\nnetwork: {llm: {checkpoint: checkpoint}}\nserving: {generation: {cache_mib: 16}}\n"
    )
    build_repository(root, cores=2)
    done = tritonkit(
        "load",
        "chat",
        "--rate",
        "4",
        "--duration",
        "3s",
        "--prompt-tokens",
        "30-50",
        "--output-tokens",
        "5-30",
        "--slo",
        "ttft_p99=1min",
        "--json",
        cwd=root,
    )
    assert "missed" not in done.stderr, done.stderr
    facts = json.loads(done.stdout)
    assert facts["failures"] == 0
    assert facts["right"] == facts["requests"] > 0
    assert facts["window"] == 128
    expected, measured = facts["prompt_asked"]["mean"], facts["prompt_found"]["mean"]
    assert measured == pytest.approx(expected, rel=0.3)
