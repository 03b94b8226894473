"""The source of panels: its queries, and its messages when nothing answers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.operate.observe.views import view
from tests.waiting import eventually
from tritonkit.errors import ClientError, ServerUnavailable, UsageError
from tritonkit.operate.observe import (
    ALERTS,
    Chosen,
    Pace,
    PageServer,
    Prometheus,
    look,
    page,
    recording,
    rules_text,
    web,
)
from tritonkit.operate.observe.source import _points, _seconds

NOBODY = "127.0.0.1:1"


def test_variables_are_replaced() -> None:
    """Without a choice they match everything; a dot is a dot."""
    query = 'x{model=~"$model",instance=~"$instance"}[$window]'
    assert Chosen().filled(query, 20) == 'x{model=~".*",instance=~".*"}[20s]'
    chosen = Chosen(60, ("a.b", "c"), ("h:1",))
    assert chosen.filled(query, 20) == 'x{model=~"a[.]b|c",instance=~"h:1"}[20s]'
    with pytest.raises(UsageError, match="name of a model"):
        Chosen(models=('a"} or vector(1) #',))


def test_missing_steps_and_no_numbers_are_gaps() -> None:
    """NaN, infinities, and the time in which a series was not there."""
    values = [[0, "1"], [5, "NaN"], [10, "+Inf"], [30, "2"]]
    points = ((0, 1), (5, None), (10, None), (15, None), (30, 2))
    assert _points(values, 5, 30) == _points(values, 5, 34) == points
    assert _points(values, 5, 60) == (*points, (35, None))
    assert _points([], 5, 60) == ()


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5), ("1m30s", 90), ("500ms", 0.5), ("1h", 3600)])
def test_durations_of_prometheus_are_read(text: str, seconds: float) -> None:
    """Durations have the form of Prometheus' scrape interval."""
    assert _seconds(text) == seconds


@pytest.mark.parametrize("url", ["127.0.0.1:9090", "ftp://a", "http://", "http://a:x", "http://u:p@a", "http://a?q"])
def test_what_is_no_url_is_refused(url: str) -> None:
    """With an example of one."""
    with pytest.raises(UsageError, match="9090"):
        Prometheus(url)


@contextmanager
def served(text: str) -> Iterator[str]:
    """A page that is not a Prometheus."""
    with PageServer(0, lambda: text) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


def test_what_is_no_prometheus_is_said() -> None:
    """Another server at that address, and none."""
    with served("<html>") as url, closing(Prometheus(url)) as source:  # noqa: SIM117
        with pytest.raises(ClientError, match="no answer of a Prometheus"):
            source.jobs()
    with closing(Prometheus(f"http://{NOBODY}")) as source:  # noqa: SIM117
        with pytest.raises(ServerUnavailable, match="no answer"):
            source.jobs()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--prometheus", "nowhere"), 2, "not the URL"),
        (("--prometheus", f"http://{NOBODY}"), 5, NOBODY),
        (("--prometheus", "http://a:1", "--metrics", NOBODY), 2, "cannot be used together"),
        (("--metrics", "x"), 2, "--metrics"),
        (("--metrics", NOBODY, "--gateway", "x"), 2, "--gateway"),
        (("--range", "soon"), 2, "--range"),
        (("--range", "1s"), 2, "at least 30s"),
        (("--model", 'a"b'), 2, "the name of a model"),
    ],
)
def test_options_that_make_no_sense_have_their_exit_code(arguments: tuple[str, ...], code: int, message: str) -> None:
    """Each with a message of its own."""
    assert message in failed(tritonkit("dash", *arguments), code)


def test_without_a_server_it_says_what_to_do(root: Any) -> None:
    """No Prometheus, no address, nothing that runs here."""
    message = failed(tritonkit("dash", "--root", str(root)), 2)
    assert "tritonkit serve" in message
    assert "--prometheus" in message


def test_without_the_program_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Prometheus of one's own needs the program."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "apt-get install prometheus" in failed(tritonkit("dash", "--metrics", NOBODY), 2)


def test_the_page_is_for_this_machine_alone() -> None:
    """Under loopback's names; another name that leads here, another path and method get nothing."""
    with served(page(view(), refresh_s=5)) as url:
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert b"tritonkit dash" in answer.read()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        for address, host, status in ((url, "evil.example", 403), (f"{url}x", "localhost:1", 404)):
            request = urllib.request.Request(address, headers={"Host": host})
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=10)
            assert caught.value.code == status
            caught.value.close()


@pytest.mark.slow
@pytest.mark.needs("prometheus")
def test_a_replica_that_is_away_is_seen_and_told() -> None:
    """A Prometheus of one's own: it comes up, scrapes nobody, and the alert fires; all else says why it is empty."""
    rules = rules_text(ALERTS, Pace(1 / 60), interval_s=1)
    with recording([NOBODY], rules=rules) as url, closing(Prometheus(url)) as source:
        eventually(lambda: [alert.name for alert in source.firing()] == ["ReplicaDown"])
        assert source.scrape_interval_s() == 1
        view = look(source, Chosen(60))
        shown = {panel.panel.name: panel for panels in view.shown.values() for panel in panels}
        assert [line.name for line in shown["replica-up"].lines] == [NOBODY]
        assert shown["replica-up"].lines[0].points[-1][1] == 0
        assert all(panel.lines or panel.empty for panel in shown.values())
        done = tritonkit("dash", "--prometheus", url, "--json")
        assert json.loads(done.stdout)["firing"][0]["name"] == "ReplicaDown"


def test_connections_have_a_bound() -> None:
    """One more is closed immediately, and has its turn when others have left; a thread each would have no end."""
    with served(page(view())) as url, contextlib.ExitStack() as held:
        port = int(url.rsplit(":", 1)[1].strip("/"))
        others = [socket.create_connection(("127.0.0.1", port)) for _ in range(16)]
        for connection in others:
            held.enter_context(connection)
        with socket.create_connection(("127.0.0.1", port), timeout=5) as one_more:
            assert one_more.recv(1) == b""
        for connection in others:
            connection.close()
        eventually(lambda: answers(url))


def answers(url: str) -> bool:
    """Whether the page comes."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
        return b"tritonkit dash" in answer.read()
    return False


@pytest.mark.parametrize("start", [b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_headers_that_trickle_in_are_given_up(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte begins the socket's own time again; half a request gets no page."""
    monkeypatch.setattr(web, "_HEAD_S", 0.2)
    with served(page(view())) as url:
        port = int(url.rsplit(":", 1)[1].strip("/"))
        with socket.create_connection(("127.0.0.1", port), timeout=0.01) as slow:
            slow.sendall(start)
            eventually(lambda: is_ended(slow))


def is_ended(slow: socket.socket) -> bool:
    """Send one byte more; whether the server has ended the connection, without an answer."""
    try:
        slow.sendall(b"a")
        received = slow.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True
    assert received == b""
    return True
