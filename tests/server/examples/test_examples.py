"""The example scripts, run as their first lines say, against real servers."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.parts import program
from tests.ports import free_port
from tests.waiting import PATIENCE_S, eventually
from tritonkit.errors import ServerError
from tritonkit.serve import Endpoint, serve

Run = Callable[..., subprocess.CompletedProcess[str]]

NOTHING: Mapping[str, str | Path] = {}
SEVEN = Path("models/digits/examples/seven.png")


def listens(host: str, port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@contextmanager
def running(command: list[str], port: int, folder: Path, cwd: Path | None = None, **environment: str) -> Iterator[None]:
    """A program that listens on a port, ended with the block."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=output, env=os.environ | environment)
    try:

        def is_there() -> bool:
            assert process.poll() is None, log.read_text()
            return listens("127.0.0.1", port)

        eventually(is_there, f"the program listens: {log}")
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()


@contextmanager
def server(repository: Path, project: Path, *models: str) -> Iterator[Endpoint]:
    """A Triton that may be killed in the block, and stays dead."""
    with (
        suppress(ServerError),
        serve(
            repository, models=models or None, grpc_port=0, http_port=0, metrics_port=0, root=project, restarts=0
        ) as endpoint,
    ):
        yield endpoint


def kill(triton: Endpoint) -> None:
    """Kill a server, and wait until nobody listens there any more."""
    os.kill(triton.pid, signal.SIGKILL)
    host, _, port = triton.grpc.rpartition(":")
    eventually(lambda: not listens(host, int(port)), "nobody listens")


@pytest.fixture
def run(project: Path) -> Run:
    """Run the command in a script's first lines, with some of its words replaced, others added."""

    def running(
        script: str, *more: str, instead: Mapping[str, str | Path] = NOTHING
    ) -> subprocess.CompletedProcess[str]:
        text = (project / "examples" / script).read_text()
        (line,) = re.findall(rf"^python (examples/{script} .*)$", text, re.MULTILINE)
        words = [str(instead.get(word, word)) for word in shlex.split(line)]
        return subprocess.run([sys.executable, *words, *more], cwd=project, capture_output=True, text=True, timeout=120)

    return running


def test_images_are_labelled_in_order_and_bad_ones_told_apart(
    run: Run, digits_server: Endpoint, project: Path, tmp_path: Path
) -> None:
    """One line for each file; a broken one, joined with others, fails alone and makes the exit code 1."""
    address = ("--address", digits_server.grpc)
    fine = run("images.py", *address)
    assert (fine.returncode, fine.stderr) == (0, "")
    assert re.fullmatch(r"seven\.png: 7 \(\d\.\d\d\)\n", fine.stdout)

    for number in range(20):
        shutil.copy(project / SEVEN, tmp_path / f"{number:02}.png")
    (tmp_path / "07.png").write_text("no picture")
    mixed = run("images.py", *address, instead={str(SEVEN.parent): tmp_path})
    assert (mixed.returncode, mixed.stderr) == (1, "")
    lines = mixed.stdout.splitlines()
    assert [line[:6] for line in lines] == [f"{number:02}.png" for number in range(20)]
    assert "digits" in lines[7]
    assert [number for number, line in enumerate(lines) if ": 7 (" not in line] == [7]


def test_a_folder_that_is_not_there_is_told_in_a_line(run: Run, tmp_path: Path) -> None:
    """A wrong folder is a wrong use, not a traceback."""
    done = run("images.py", instead={str(SEVEN.parent): tmp_path / "none"})
    assert done.returncode == 2
    assert "is not a folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_calls_go_to_both_servers(run: Run, digits_server: Endpoint, shipped_repository: Path, project: Path) -> None:
    """Two servers share the calls; with one killed the other answers them all."""
    with server(shipped_repository, project, "digits") as second:
        both = {"127.0.0.1:8001": digits_server.grpc, "127.0.0.1:9001": second.grpc}
        shared = run("replicas.py", "--calls", "400", instead=both)
        kill(second)
        alone = run("replicas.py", "--calls", "100", instead=both)
    assert (shared.returncode, shared.stderr) == (0, "")
    *counts, again = [line.rpartition(": ") for line in shared.stdout.splitlines()]
    assert {address for address, _, _ in counts} == {digits_server.grpc, second.grpc}
    assert sum(int(count) for _, _, count in counts) == 400
    assert again[0] == "sent again"
    assert (alone.returncode, alone.stderr) == (0, "")
    assert f"{digits_server.grpc}: 100" in alone.stdout.splitlines()


@pytest.mark.needs("redis")
def test_answers_come_from_the_server_then_memory_then_redis(run: Run, digits_server: Endpoint, tmp_path: Path) -> None:
    """The first answer is computed, the second is kept here, the third is found in Redis."""
    redis = program("redis-server")
    assert redis is not None
    port = free_port()
    command = [redis, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    addresses = ("--address", digits_server.grpc, "--redis", f"redis://127.0.0.1:{port}")
    with running([*command, str(tmp_path)], port, tmp_path):
        numbers = itertools.count()

        def third() -> bool:
            text = {"How far is the moon?": f"How far is star {next(numbers)}?"}
            done = run("cache.py", *addresses, instead=text)
            assert (done.returncode, done.stderr) == (0, "")
            origins = [line.split()[0] for line in done.stdout.splitlines()]
            assert origins[:2] == ["server", "l1"]
            return origins[2] == "l2"

        # A Redis that a busy machine keeps from answering in 50 ms is passed by.
        eventually(third, "an answer of Redis")


@pytest.fixture(scope="module")
def words_server(project: Path) -> Iterator[Endpoint]:
    """The examples' decoupled model, served."""
    with server(project / "examples" / "model_repository", project) as endpoint:
        yield endpoint


def test_words_come_one_by_one(run: Run, words_server: Endpoint) -> None:
    """Each word is a line of its own, in order."""
    done = run("streaming.py", "--address", words_server.grpc)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["the", "words", "come", "one", "by", "one", ""]


def test_a_stream_may_be_left_early(run: Run, words_server: Endpoint) -> None:
    """The server stops with the reader: it does not go on for the minutes that all words would take."""
    many = {"the words come one by one": "again " * 3000}
    done = run("streaming.py", "--address", words_server.grpc, "--most", "3", instead=many)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["again"] * 3
    # The model takes one request at a time: this one would wait for the other's end.
    after = run("streaming.py", "--address", words_server.grpc)
    assert after.stdout.split() == ["the", "words", "come", "one", "by", "one"]


def post(url: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """The status and the JSON of an answer."""
    try:
        with urllib.request.urlopen(url, body, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@contextmanager
def web(address: str, project: Path, folder: Path) -> Iterator[str]:
    """examples/web.py under uvicorn, started as it says itself; the address of its page."""
    text = (project / "examples" / "web.py").read_text()
    (line,) = re.findall(r"^TRITON=\S+ (uvicorn .*)$", text, re.MULTILINE)
    port = free_port()
    command = [sys.executable, "-m", *line.split(), "--port", str(port)]
    with running(command, port, folder, cwd=project, TRITON=address):
        yield f"http://127.0.0.1:{port}/digits"


def test_the_handler_answers_and_says_what_is_wrong(digits_server: Endpoint, project: Path, tmp_path: Path) -> None:
    """A picture gets its label; what is none gets a 400 that says where and what."""
    with web(digits_server.grpc, project, tmp_path) as url:
        status, answer = post(url, (project / SEVEN).read_bytes())
        assert (status, answer["labels"][0]) == (200, "7")
        assert len(answer["labels"]) == len(answer["scores"]) == 3
        status, answer = post(url, b"no picture")
        assert (status, answer["error"]) == (400, "InferenceError")
        assert "digits" in answer["where"]
        assert answer["found"]


def test_requests_at_the_same_time_travel_together(digits_server: Endpoint, project: Path, tmp_path: Path) -> None:
    """Many concurrent clients are all answered, and some share a request."""
    image = (project / SEVEN).read_bytes()
    with web(digits_server.grpc, project, tmp_path) as url, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: post(url, image), range(160)))
    assert {(status, answer["labels"][0]) for status, answer in answers} == {(200, "7")}
    assert max(answer["batch_size"] for _, answer in answers) > 1


def test_a_killed_server_is_a_503(shipped_repository: Path, project: Path, tmp_path: Path) -> None:
    """When Triton is gone the handler says so, at its first request and afterwards."""
    image = (project / SEVEN).read_bytes()
    with server(shipped_repository, project, "digits") as triton:
        with web(triton.grpc, project, tmp_path) as url:
            assert post(url, image)[0] == 200
            kill(triton)
            for _ in range(3):
                status, answer = post(url, image)
                assert (status, answer["where"]) == (503, triton.grpc)
        with web(triton.grpc, project, tmp_path) as url:
            assert post(url, image)[0] == 503
