"""`tritonkit diagnose` on a real Triton: each cause is provoked, and is the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit
from tests.conftest import PROJECT
from tests.server.diagnose.cases import CASES, Bench, Case, model, slept
from tests.server.diagnose.language import Speaker, language_model, speakers
from tests.server.diagnose.verdict import hold_to_verdict
from tests.server.models import ModelText
from tests.waiting import eventually
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import Endpoint

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.cause}: {case.how}")
def test_the_verdict_is_what_was_provoked(case: Case, tmp_path: Path, project: Path) -> None:
    """And every finding says with what evidence, what to change and what that brings."""
    hold_to_verdict(case, Bench(tmp_path, project))


@pytest.fixture(scope="module")
def quick_server(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A model that takes 2 ms, and one that takes a text."""
    quick = model(slept(0.002))
    words = ModelText(quick.config.replace("FP32", "STRING"), quick.code)
    folder = tmp_path_factory.mktemp("quick")
    with Bench(folder, project).serve(quick=quick, words=words) as endpoint:
        yield endpoint


def said_healthy(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The first look that finds the server healthy: on a busy machine the way to it may really be slow."""

    def look() -> subprocess.CompletedProcess[str] | None:
        done = tritonkit("diagnose", *arguments)
        assert done.returncode == 0, done.stderr
        json_says = "--json" in arguments and json.loads(done.stdout)["verdict"] == "healthy"
        return done if json_says or "verdict: healthy" in done.stdout else None

    done: subprocess.CompletedProcess[str] = eventually(look, "a healthy server")
    return done


def test_a_server_is_diagnosed_by_its_address(quick_server: Endpoint, root: Path) -> None:
    """With a model that no project knows, or none: a table, the verdict, and that nobody else called."""
    for arguments in (("quick",), ("words",), ()):
        done = said_healthy(
            *arguments,
            "--address",
            quick_server.grpc,
            "--metrics",
            quick_server.metrics,
            "--duration",
            "2s",
            "--root",
            str(root),
        )
        assert "verdict: healthy" in done.stdout
        assert "no requests but our own came" in done.stderr
        assert ("no example of words" in done.stderr) == (arguments == ("words",))


def test_a_language_model_has_figures_of_its_own(tmp_path: Path, project: Path, root: Path) -> None:
    """Sequences, tokens and times in a table of their own, and in a line of --watch; JSON has all of it."""
    with language_model(tmp_path / "language", project) as endpoint, speakers(endpoint.grpc, *[Speaker(200)] * 2):
        where = ("--address", endpoint.grpc, "--metrics", endpoint.metrics, "--root", str(root))
        done = tritonkit("diagnose", "m", *where, "--duration", "3s", "--target", "10s")
        assert done.returncode == 0, done.stderr
        assert "language models" in done.stdout
        assert "first token ms" in done.stdout
        assert "requests a run" not in done.stdout
        assert "no requests but our own" not in done.stderr
        facts = json.loads(tritonkit("diagnose", "m", *where, "--duration", "3s", "--json").stdout)
        blind = tritonkit("diagnose", "m", *where[:2], *where[4:], "--duration", "2s")
    (part,) = facts["servers"][0]["parts"]
    assert part["facts"]["language"]["max_sequences"] == 32
    assert part["language"]["tokens_per_s"] > 0
    assert part["language"]["running"] > 0
    assert "nothing is seen of it without its server's metrics" in blind.stderr


def test_an_unknown_model_is_exit_code_5(quick_server: Endpoint, root: Path) -> None:
    """One message, with the model and the server."""
    arguments = ("diagnose", "nosuch", "--address", quick_server.grpc, "--root", str(root))
    message = failed(tritonkit(*arguments), 5)
    assert "nosuch" in message
    assert quick_server.grpc in message


def test_metrics_that_are_not_there_are_noted(quick_server: Endpoint, root: Path) -> None:
    """The rest is looked at without them."""
    done = said_healthy(
        "quick",
        "--address",
        quick_server.grpc,
        "--metrics",
        "127.0.0.1:1",
        "--duration",
        "2s",
        "--json",
        "--root",
        str(root),
    )
    facts = json.loads(done.stdout)
    assert facts["verdict"] == "healthy"
    assert any("no metrics from 127.0.0.1:1" in note for note in facts["notes"])
    (part,) = facts["servers"][0]["parts"]
    assert part["facts"]["name"] == "quick"
    assert part["pending"] is None
    assert facts["servers"][0]["machine"]["server_cores"] >= 0


def test_watch_gives_a_line_a_second_to_a_file_and_objects_to_a_program(quick_server: Endpoint, root: Path) -> None:
    """Rate, percentiles and verdict; with --json all that was seen."""
    arguments = (
        "diagnose",
        "quick",
        "--address",
        quick_server.grpc,
        "--watch",
        "--duration",
        "3s",
        "--root",
        str(root),
    )
    line = r"[\d.]+ requests/s; \d+ of our own: p50 [\d.]+ ms, p95 .* ms, p99 .* ms: [-a-z]+"

    def look() -> bool:
        lines = tritonkit(*arguments).stdout.splitlines()
        assert len(lines) >= 3
        assert all(re.fullmatch(line, text) for text in lines)
        return lines[-1].endswith(": healthy")

    eventually(look, "a healthy server")
    objects = [json.loads(line) for line in tritonkit(*arguments, "--json").stdout.splitlines()]
    assert set(objects[-1]["percentiles_ms"]) == {"50", "95", "99"}


def test_watch_is_a_view_on_a_terminal_until_it_is_interrupted(quick_server: Endpoint, root: Path) -> None:
    """Columns, the machine and the verdict; Ctrl-C is its usual end."""
    main, other = pty.openpty()
    termios.tcsetwinsize(other, (40, 200))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tritonkit.cli",
            "diagnose",
            "quick",
            "--address",
            quick_server.grpc,
            "--watch",
            "--root",
            str(root),
        ],
        stdout=other,
        stderr=subprocess.PIPE,
        cwd=PROJECT,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(other)
    shown = b""
    while b"verdict: healthy" not in shown:
        shown += os.read(main, 65536)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the terminal's other end is closed
        while data := os.read(main, 65536):
            shown += data
    assert process.wait() == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    os.close(main)
    for word in (b"requests a run", b"in flight", b"% busy", b"cores", b"p99"):
        assert word in shown


def test_one_command_starts_a_server_loads_it_and_says_it_is_healthy(root: Path) -> None:
    """`tritonkit diagnose digits`: half of what a caller alone reaches is nothing that need queue."""
    (root / "models").rmdir()
    for name in ("models", ".venv-server"):
        (root / name).symlink_to(PROJECT / name)
    build_repository(PROJECT, ("digits",), out=root / "model_repository")
    done = said_healthy("digits", "--load", "20", "--json", "--root", str(root))
    facts = json.loads(done.stdout)
    assert facts["verdict"] == "healthy"
    assert not facts["notes"]
    (server,) = facts["servers"]
    assert {part["role"] for part in server["parts"]} == {"before", "network", "after"}
    assert all(part["pending"] is not None for part in server["parts"])
