"""The comparison with other servers: load generator, processes, search, tables. Figures are not tested."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import pages
from bench.__main__ import main
from bench.peers import h2load, measure, table, traffic
from bench.peers.contenders import CONTENDERS, choices
from bench.peers.environment import environment
from bench.peers.processes import running
from bench.peers.repository import written_lines
from bench.peers.results import SHARED, Cells, ratios, summary
from bench.report import Report, write_json
from tests.conftest import PROJECT
from tests.tools.loading import load_tool
from tritonkit.errors import ClientError, ServerNotFound, ServerStartError

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def echo() -> Iterator[str]:
    """An HTTP/1.1 server that sends each body back, and 503 for one that asks for it: its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(503 if body == b"fail" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def request_to(address: str, body: bytes = b"\0" * 40) -> traffic.Request:
    """A request for the echo."""
    return traffic.Request(
        "http", f"http://{address}/predict", {}, body, lambda body, _: traffic.Answer(np.frombuffer(body, np.float32))
    )


def test_the_log_is_read_line_by_line() -> None:
    """Start, status and time of each answer; columns that may come later and a cut last line are left."""
    log = h2load.read_log("1000\t200\t50\n2000\t-1\t7\tnew\n30")
    assert log.tolist() == [[1000, 200, 50], [2000, -1, 7]]
    assert h2load.read_log("").shape == (0, 3)


def test_percentiles_are_of_what_was_counted() -> None:
    """The p50 of 1 to 101 ms is 51; an empty list has none."""
    assert h2load.percentiles(np.arange(1.0, 102.0)) == (51.0, 96.0, 100.0)
    assert all(np.isnan(h2load.percentiles(np.array([]))))


def test_the_warm_up_does_not_count() -> None:
    """Answers that end in the first second are in the total alone, those that fail in neither rate."""
    second = 1_000_000
    lines = np.array([[0, 200, 5000], [second, 200, 5000], [second, 503, 10], [3 * second, 200, 1]])
    load = h2load._measured(lines, used_s=0.5, ran_s=3.0)
    assert (load.answers, load.total, load.failures) == (1, 3, 1)
    assert load.per_s == 0.5
    assert load.p99_ms == 5.0


@pytest.mark.needs("h2load")
def test_a_closed_loop_counts_answers(echo: str) -> None:
    """Each answer has its status and time, and the load generator's own time is known."""
    load = h2load.closed(request_to(echo), callers=4, seconds=0.5, cores=CORES)
    assert load.answers > 0
    assert load.failures == 0
    assert 0 < load.p50_ms <= load.p95_ms <= load.p99_ms
    assert load.generator_cores > 0


@pytest.mark.needs("h2load")
def test_a_closed_loop_refuses_failures(echo: str) -> None:
    """An answer of another status is no answer."""
    with pytest.raises(ClientError, match="requests failed"):
        h2load.closed(request_to(echo, b"fail"), callers=1, seconds=0.5, cores=CORES)


@pytest.mark.needs("h2load")
def test_an_open_loop_sends_what_it_is_told(echo: str) -> None:
    """The number of requests follows from the rate, whether or not they could be sent faster."""
    load = h2load.opened(request_to(echo), rate=100.0, seconds=1.0, cores=CORES)
    assert load.offered_per_s == 100.0
    assert 200 <= load.total + load.failures <= 200 + h2load.OPEN_CONNECTIONS


@pytest.mark.parametrize("rate", [1.25**step for step in range(1, 48)])
def test_connections_begin_as_fast_as_requests_are_due(rate: float) -> None:
    """Within 3 % up to 10,000 a second, few at a time, and no connection has to send more often than it can."""
    starts, period_ms = h2load.pace(rate)
    connections = h2load.open_connections(rate)
    assert abs(1000 * starts / period_ms / rate - 1) <= 0.03 or rate > 1000
    assert starts <= 32
    assert rate / connections <= h2load.MOST_EACH
    assert connections >= 8


def loaded(rate: float, p99_ms: float, share: float = 1.0) -> h2load.Load:
    """A load at a rate."""
    return h2load.Load(rate * share, 1.0, 1.0, p99_ms, 10, 0, 10, 0.1, rate)


@pytest.mark.parametrize("begin", [0, 5, 9, 14])
def test_the_highest_rate_is_found_from_both_sides(begin: int) -> None:
    """Upwards from one that keeps the limit, downwards from one that does not."""
    step = measure.sustained(lambda step: loaded(2.0**step, 9.0 if step <= 9 else 11.0), begin, 10, 16)
    assert step == 9


def test_a_rate_that_is_not_answered_is_not_sustained() -> None:
    """Quick answers to half of what was offered are a queue that grows."""
    assert measure.sustained(lambda step: loaded(2.0**step, 1.0, 0.5), 3, 10, 16) is None


def test_the_search_begins_where_the_round_before_ended() -> None:
    """Else at half of the closed loops' highest; a limit that no median keeps is not searched for."""
    loops = {"1": {"per_s": 40.0, "p50_ms": 25.0}, "32": {"per_s": 90.0, "p50_ms": 350.0}}
    assert measure.begin_rates(loops, {}) == {50: 45.0}
    assert measure.begin_rates(loops, {"10": 0.0, "50": 28.4}) == {50: 28.4}
    loops["8"] = {"per_s": 60.0, "p50_ms": 9.0}
    assert measure.begin_rates(loops, {"50": 0.0}) == {10: 45.0, 50: 0.0}


@pytest.mark.parametrize(
    ("expected", "lengths"), [(0.0, [1.0, 4.5]), (80.0, [4.5]), (400.0, [1.0, 4.5]), (1.0, [30.0])]
)
def test_a_load_is_long_enough_for_every_caller(expected: float, lengths: list[float]) -> None:
    """The duration follows the expected rate, otherwise the measured one; half a minute at most."""
    lengths_used = []

    def load_for(length: float) -> dict[str, float]:
        lengths_used.append(length)
        return {"answers": 80 * length, "per_s": 80.0}

    measure.long_enough(load_for, 100, 1.0, expected)
    assert lengths_used == pytest.approx(lengths)


@pytest.mark.parametrize("model", traffic.MODELS)
@pytest.mark.parametrize("form", ["v2", "grpc", "raw", "base64"])
def test_requests_are_made_for_every_model(model: str, form: str) -> None:
    """Each format carries the item, whole or as base64."""
    request = traffic.FORMATS[form](model, "127.0.0.1:1")
    item = traffic.content(model)
    assert item in request.body or form == "base64"
    assert request.url.startswith("http://127.0.0.1:1/")


def test_answers_of_the_protocol_are_read() -> None:
    """Binary data behind JSON, and JSON alone, say the same."""
    numbers = np.array([0.5, 0.25], np.float32)
    output = {"name": "score", "datatype": "FP32", "shape": [1, 2]}
    label = {"name": "label", "datatype": "BYTES", "shape": [1, 1], "data": ["cat"]}
    plain = json.dumps({"outputs": [output | {"data": [0.5, 0.25]}, label]}).encode()
    head = json.dumps({"outputs": [label, output | {"parameters": {"binary_data_size": 8}}]}).encode()
    binary = traffic._read_v2(head + numbers.tobytes(), {"inference-header-content-length": str(len(head))})
    expected = traffic.Answer(numbers, ("cat",))
    assert traffic.difference(traffic._read_v2(plain, {}), expected) == 0
    assert traffic.difference(binary, expected) == 0
    assert traffic.difference(traffic.Answer(numbers, ("dog",)), expected) == float("inf")
    assert traffic.difference(traffic.Answer(numbers[:1], ("cat",)), expected) == float("inf")


def test_a_refusal_is_no_answer(echo: str) -> None:
    """A status other than 200 is said with the body's words."""
    with pytest.raises(ValueError, match="status 503: fail"):
        traffic.ask(request_to(echo, b"fail"))
    assert traffic.ask(request_to(echo)).numbers.shape == (10,)


def start(folder: Path, code: str, **options: Any) -> Any:
    """A Python program as a server."""
    return running(
        [sys.executable, "-c", code],
        environment=dict(os.environ),
        folder=folder,
        cores=CORES[:1],
        log=folder / "log",
        **options,
    )


CHILD = "import subprocess, sys, time; c = [sys.executable, '-c', 'import time; sum(range(10**7)); time.sleep(60)']; "


@pytest.mark.parametrize("own_session", [False, True])
def test_a_tree_is_measured_and_ended_whole(tmp_path: Path, own_session: bool) -> None:
    """Processor time and memory are those of children too, and none of them is left, whatever its session."""
    code = CHILD + f"p = subprocess.Popen(c, start_new_session={own_session}); print(p.pid, flush=True); p.wait()"
    with start(tmp_path, code, answers=lambda: bool((tmp_path / "log").read_text())) as (tree, ready_s):
        assert len(tree.members()) == 2
        while tree.processor_s() < 0.05 or tree.memory_bytes() < 2**20:
            assert tree.process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.01)
        assert ready_s > 0
    child = int((tmp_path / "log").read_text())
    assert not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text()


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    """With its exit code and the end of what it printed."""
    with (
        pytest.raises(ServerStartError, match="exit code 3") as raised,
        start(tmp_path, "print('no port'); raise SystemExit(3)", answers=lambda: False),
    ):
        pass
    assert "no port" in raised.value.details


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    """And ended."""
    with (
        pytest.raises(ServerStartError, match="no right answer"),
        start(tmp_path, "import time; time.sleep(60)", answers=lambda: False, timeout_s=0.1),
    ):
        pass


def test_lines_are_those_that_are_written(tmp_path: Path) -> None:
    """Neither blank ones nor comments."""
    (tmp_path / "app.py").write_text("import a\n\n# why\n  # why\nb = 1  # unit\n")
    assert written_lines(tmp_path / "app.py") == 2


def test_every_peer_has_its_folder() -> None:
    """Requirements, and a program where it is not started by its own."""
    for contender in CONTENDERS.values():
        if contender.ours or contender.name == "ceiling":
            continue
        folder = PROJECT / "bench" / "peers" / contender.name
        assert (folder / "requirements.txt").is_file(), folder
        assert (folder / "app.py").is_file() or contender.name == "infinity", folder
        assert contender.name in (PROJECT / "docs" / "benchmarks.md").read_text().lower()


@pytest.mark.parametrize("cores", [1, 2])
def test_settings_use_all_cores(cores: int) -> None:
    """Workers times threads are the cores, in every way that is tried."""
    for contender in CONTENDERS.values():
        tried = choices(contender, cores)
        assert tried
        for settings in tried:
            if settings:
                assert int(settings["WORKERS"]) * int(settings["THREADS"]) == cores


@pytest.mark.slow
def test_a_package_that_is_not_there_is_an_error_with_words(tmp_path: Path) -> None:
    """Not a traceback of pip."""
    (tmp_path / "requirements.txt").write_text("./there-is-no-such-folder\n")
    with pytest.raises(ServerNotFound, match="cannot be installed here"):
        environment("absent", tmp_path / "requirements.txt", tmp_path, Path(sys.executable))


@pytest.mark.parametrize(("option", "words"), [(["--peers", "nginx"], "--peers"), (["--models", "digits"], "--models")])
def test_an_unknown_name_is_refused(option: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the names that there are."""
    assert main(["peers", *option]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert option[1] in printed


def cells() -> Cells:
    """Two rounds of four servers."""
    results = Cells(absent={"ray": "no such package"})
    rates = {"tritonkit": (900.0, 1100.0), "fastapi": (300.0, 220.0), "mosec": (600.0, 550.0)}
    for name, rounds in rates.items():
        key = (SHARED, "digits_network", name)
        results.settle(key, {"WORKERS": "2"} if name == "mosec" else {}, 10, [])
        for number, rate in enumerate(rounds):
            loops = {
                str(callers): {
                    "per_s": rate,
                    "p50_ms": 1.0,
                    "p95_ms": 2.0,
                    "p99_ms": 3.0,
                    "server_us": 80.0,
                    "generator_cores": 0.1,
                }
                for callers in measure.CALLERS
            }
            results.add(number, key, "http", loops, {"10": 500.0, "50": 800.0})
            results.took(number, key, 2.5, 100 * 2**20)
    return results


def test_ratios_are_of_the_same_round() -> None:
    """Over each peer, and over the best of each round."""
    by_name = {ratio.name: ratio for ratio in ratios(cells())}
    assert by_name["digits_network, 32 callers: tritonkit (http) / fastapi (http)"].rounds == [3.0, 5.0]
    best = by_name["digits_network, 32 callers: tritonkit (http) / the best peer"]
    assert best.rounds == [1.5, 2.0]
    assert best.at_least == 1.5
    assert best.holds


def test_an_interrupt_keeps_whole_rounds() -> None:
    """Results of the broken round are dropped."""
    results = cells()
    results.cut(1)
    assert [len(ratio.rounds) for ratio in ratios(results)] == [1] * len(ratios(results))
    assert summary(cells(), 1.0)["rounds"] == 2
    assert summary(results, 1.0)["rounds"] == 1


def report(folder: Path) -> dict[str, Any]:
    """Results as they are read back from JSON."""
    file = folder / "peers.json"
    write_json(Report("peers", "about", ratios(cells()), {"peers": summary(cells(), 1.0)}), file)
    facts: dict[str, Any] = json.loads(file.read_text())
    return facts


def test_the_tables_hold_what_was_found(tmp_path: Path) -> None:
    """The short one the ratios, the full one the figures, the settings and who was not there."""
    facts = report(tmp_path)
    short, full = table.short([facts]), table.full([facts])
    assert "| FastAPI + ONNX Runtime | 4.00 (3.00 to 5.00) |" in short
    assert "| the best of them | 1.75 (1.50 to 2.00) |" in short
    assert "1,000 (900 to 1,100)" in full
    assert "- mosec, digits_network, server and load on the same cores: workers 2" in full
    assert "- ray is not here: no such package" in full


def test_a_page_keeps_all_but_its_table(tmp_path: Path) -> None:
    """Text between the markers is replaced; a page without them is refused."""
    begin, end = "<!-- python -m bench tune: begin -->", "<!-- python -m bench tune: end -->"
    text = pages.placed(f"before\n{begin}\nold\n{end}\nafter", "new", "tune")
    assert text == pages.placed(text, "new", "tune")
    assert text.startswith("before\n")
    assert text.endswith("\nafter")
    assert "old" not in text
    with pytest.raises(ValueError, match="once each"):
        pages.placed("no markers", "new", "tune")


def test_a_table_of_ratios_says_what_was_kept() -> None:
    """Median, least and most, the limit, and yes or no."""
    report = {
        "about": "ours over theirs: of a request",
        "machine": {"cores": 2, "machine": "x86_64"},
        "ratios": [
            {"name": "rate", "rounds": [1.0, 1.2], "median": 1.1, "at_least": 0.9, "at_most": 1.15, "holds": True},
            {"name": "tail", "rounds": [2.0], "median": 2.0, "at_least": None, "at_most": 1.0, "holds": False},
            {"name": "mean", "rounds": [3.0], "median": 3.0, "at_least": None, "at_most": None, "holds": True},
        ],
    }
    text = pages.ratios([report])
    assert "Medians of 2 rounds" in text
    assert "| ours over theirs | ratio | limit | kept |" in text
    assert "| rate | 1.10 (1.00 to 1.20) | 0.90 to 1.15 | yes |" in text
    assert "| tail | 2.00 (2.00 to 2.00) | at most 1.00 | **no** |" in text
    assert "| mean | 3.00 (3.00 to 3.00) |  |  |" in text


def test_the_pages_have_the_tables_of_the_results() -> None:
    """README.md and docs/benchmarks.md are what `python tools/benchmarks_page.py` would write."""
    for page, text in load_tool("benchmarks_page").texts().items():
        assert page.read_text() == text, f"{page.name}: run python tools/benchmarks_page.py"
