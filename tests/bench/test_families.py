"""The table of the cookbook's pages: comparison, callers, requests. Figures are not tested."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from bench.families import fastapi, measure, shares, triton
from bench.families.callers import Request, written
from bench.families.kitchen import PAGES
from bench.families.recipes import Answer, compared, recipes
from bench.families.table import HEAD, table
from bench.setting import Setting
from tests.conftest import PROJECT
from tritonkit.errors import ServerNotFound
from tritonkit.serve.install import VENV_VARIABLE

ROW = {
    "page": "yolo",
    "lines": 21,
    "minutes": 0.5,
    "equal": 1.0,
    "difference": 1.5e-6,
    "per_s": {},
    "batch": {"mean": 3.21, "largest": 16},
    "ratios": [2.0, 1.0, 3.0],
}


def test_names_count_one_by_one_and_numbers_where_the_names_are_equal() -> None:
    """An answer that is too short has unequal names; its numbers are not compared."""
    right, other = Answer([0.5, 0.25], ["a", "b"]), Answer([0.9], ["a"])
    assert compared([right], [right]) == (1.0, 0.0)
    assert compared([right, other], [right, right]) == (0.75, 0.0)
    assert compared([Answer([1.0, 2.0])], [Answer([1.0, 2.5])]) == (1.0, 0.5)
    assert compared([Answer([1.0])], [Answer([1.0, 2.0])])[1] == float("inf")
    pixels = np.array([1, 2, 3, 4], np.uint8)
    assert compared([Answer((), pixels)], [Answer((), pixels.astype(np.int64))]) == (1.0, 0.0)


def test_names_that_are_missing_do_not_make_the_others_wrong() -> None:
    """Names that are compared in their order count as unequal only where they are missing or another."""
    found, expected = Answer((), list("lne 1")), Answer((), list("line 1"))
    assert compared([found], [expected])[0] < 0.5
    assert compared([found], [expected], aligned=True)[0] == pytest.approx(5 / 6)
    assert compared([expected], [expected], aligned=True) == (1.0, 0.0)


def test_shares_of_time() -> None:
    """The time between two looks, by model, largest first; a model without a first look began at 0."""
    found = shares.shares({"a": 1.0}, {"a": 2.0, "b": 3.0})
    assert found == {"b": 0.75, "a": 0.25}
    assert shares.lines("ocr", found)[-2:] == ["| b | 75.0% |", "| a | 25.0% |"]


def test_every_recipe_has_its_page_and_its_app() -> None:
    """The app's module defines the class that the recipe names."""
    assert set(recipes()) <= set(PAGES)
    for recipe in recipes().values():
        module, _, name = recipe.app.partition(":")
        assert f"\nclass {name}" in (fastapi.HERE / f"{module}.py").read_text()


def test_without_a_server_nothing_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the server's, once, before an environment is made or a page is run."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(VENV_VARIABLE, str(tmp_path))
    monkeypatch.setattr(measure, "HOME", tmp_path / "families")
    setting = Setting(tmp_path, address=None, rounds=1, seconds=1.0, engine_python=tmp_path / "python")
    with pytest.raises(ServerNotFound, match=r"(?s)nvidia-pytriton is not installed there.*do: remove it, and run: "):
        measure.run(setting)
    assert not list(tmp_path.iterdir())


def test_the_table_has_a_line_for_each_page() -> None:
    """A page without a recipe has its lines alone; minutes are left out of tables for readers elsewhere."""
    lines = table([ROW, {"page": "voice", "lines": 28}, {"page": "bad", "lines": 3, "problem": "it ended"}])
    assert lines[2] == "| yolo | 21 | 0.5 | 100.0% | 2e-06 | 3.2 | 16 | 2.00 (1.00 to 3.00) |"
    assert lines[3].startswith("| voice | 28 | - |")
    assert lines[4].startswith("| bad | 3 | failed |")
    assert [line.count("|") for line in lines] == [len(HEAD) + 1] * 5
    assert "minutes" not in table([ROW], absolute=False)[0]
    assert table([ROW], absolute=False)[2] == "| yolo | 21 | 100.0% | 2e-06 | 3.2 | 16 | 2.00 (1.00 to 3.00) |"


def test_both_get_the_same_item() -> None:
    """Triton as elements with their lengths, FastAPI texts as JSON and a file as it is."""
    pair = {"text": "é", "text_pair": "b"}
    assert json.loads(fastapi.request(pair).body) == pair
    assert fastapi.request({"image": b"\xff"}).body == b"\xff"
    request = triton.request(pair)
    size = int(request.headers[1].rpartition(": ")[2])
    assert [tensor["name"] for tensor in json.loads(request.body[:size])["inputs"]] == ["text", "text_pair"]
    assert request.body[size:] == b"\x02\0\0\0" + "é".encode() + b"\x01\0\0\0b"
    row = {"x": np.float32([1, 2.5]), "pair": ("a", "")}
    assert json.loads(fastapi.request(row).body) == {"x": [1, 2.5], "pair": ["a", ""]}
    request = triton.request(row)
    size = int(request.headers[1].rpartition(": ")[2])
    tensors = json.loads(request.body[:size])["inputs"]
    assert [(tensor["shape"], tensor["datatype"]) for tensor in tensors] == [([1, 2], "FP32"), ([1, 2], "BYTES")]
    assert request.body[size:] == np.float32([1, 2.5]).tobytes() + b"\x01\0\0\0a" + bytes(4)


@pytest.fixture
def echo() -> Iterator[tuple[str, set[bytes]]]:
    """A server that notes bodies and answers 503 to one of them: its address, and the bodies."""
    bodies: set[bytes] = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.add(body)
            self.send_response(503 if body == b"fail" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Callers end without reading their last answers."""

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", bodies
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("bad", [[], [Request(b"fail")]])
def test_callers_send_every_request(bad: list[Request], echo: tuple[str, set[bytes]], tmp_path: Path) -> None:
    """Each request is sent, large ones too, and an answer of another status is a failure."""
    address, bodies = echo
    large = bytes(300_000)
    folder = written([Request(b"one"), Request(large), *bad], "/predict", tmp_path / "requests")
    command = [sys.executable, "-m", "bench.families.callers", address, str(folder), "--callers=4", "--seconds=0.2"]
    figures = json.loads(subprocess.run(command, cwd=PROJECT, capture_output=True, check=True).stdout)
    assert figures["answers"] >= 12
    assert bool(figures["failures"]) == bool(bad)
    assert {b"one", large} <= bodies
