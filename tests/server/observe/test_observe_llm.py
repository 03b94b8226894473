"""Panels and alerts of language models, on a real Triton and a real Prometheus, with all times sixty times as short."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.python_backends.llm_network import WORDS
from tests.server.at_once import at_once
from tests.server.language.test_llm import write_served
from tests.waiting import eventually
from tritonkit.client import Client
from tritonkit.errors import ClientError
from tritonkit.operate.observe import (
    ALERTS,
    PANELS,
    Chosen,
    Need,
    Pace,
    Prometheus,
    View,
    look,
    page,
    recording,
    rules_text,
)
from tritonkit.serve import Endpoint, serve

pytestmark = [pytest.mark.needs("prometheus"), pytest.mark.slow]

MINUTE_S = 1 / 60
"""The fraction of an alert's minute that lasts here."""
MODELS: dict[str, dict[str, str]] = {
    "roomy": {"cache_mib": "4", "max_sequences": "8"},
    "narrow": {"cache_mib": "2", "max_sequences": "1", "max_waiting": "0", "context": "8192"},
    "queued": {"cache_mib": "2", "max_sequences": "1", "context": "8192"},
    "full": {"cache_mib": "1", "max_sequences": "8", "context": "4096", "prefix_cache": "false"},
}
PANEL_NAMES = [panel.name for panel in PANELS if panel.need is Need.llm]


@dataclass(frozen=True)
class Scene:
    """A server of language models, and the Prometheus that looks at it."""

    server: Endpoint
    source: Prometheus

    def look(self) -> View:
        """At all of it, now."""
        return look(self.source, Chosen(range_s=60))

    def about(self, alert: str) -> set[str]:
        """The models that an alert fires for."""
        return {firing.labels["model"] for firing in self.source.firing() if firing.name == alert}


@contextmanager
def load(scene: Scene, model: str, callers: int, tokens: int) -> Iterator[None]:
    """Callers who ask, read the whole answer and ask again, until the block ends; then they leave."""

    def caller(number: int, ended: threading.Event) -> None:
        inputs: dict[str, Any] = {"text": WORDS[10 + number % 150], "max_tokens": tokens, "ignore_eos": True}
        with Client(scene.server.grpc, retry=None, breaker=None) as client:
            while not ended.wait(0.01):
                with suppress(ClientError), client.model(model).stream(inputs=inputs, timeout_s=600) as replies:
                    for _ in replies:
                        if ended.is_set():
                            break

    with at_once(callers, caller):
        yield


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Nobody asks anything yet."""
    repository = tmp_path_factory.mktemp("observe") / "repository"
    for name, values in MODELS.items():
        write_served(repository / name, threads="1", **values)
    with ExitStack() as stack:
        server = stack.enter_context(serve(repository, grpc_port=0, metrics_port=0))
        rules = rules_text(ALERTS, Pace(MINUTE_S), interval_s=1)
        source = Prometheus(stack.enter_context(recording([server.metrics], rules=rules)))
        stack.callback(source.close)
        yield Scene(server, source)


def test_every_panel_has_lines(scene: Scene, tmp_path: Path) -> None:
    """The lines are of the model that is called, and they are on the page."""
    views: list[View] = []

    def complete() -> bool:
        views.append(scene.look())
        return all(lines(views[-1], name) for name in PANEL_NAMES)

    with load(scene, "roomy", callers=3, tokens=150):
        eventually(complete, "every panel of a language model")
    assert lines(views[-1], "llm-first-token") == {"roomy p50", "roomy p95", "roomy p99"}
    assert lines(views[-1], "llm-outcomes") == {"roomy length"}
    assert "roomy running" in lines(views[-1], "llm-sequences")
    assert ">Language models<" in page(views[-1])
    (tmp_path / "dash.html").write_text(page(views[-1]))


def lines(view: View, panel: str) -> set[str]:
    """The names of a panel's lines."""
    shown = [panel_view for panels in view.shown.values() for panel_view in panels]
    return {line.name for panel_view in shown if panel_view.panel.name == panel for line in panel_view.lines}


def test_requests_that_are_refused_wake_somebody(scene: Scene) -> None:
    """Two callers for one place without a queue. Nobody else is told of."""
    with load(scene, "narrow", callers=2, tokens=400):
        eventually(lambda: scene.about("RequestsRefused"), "the alert")
        assert scene.about("RequestsRefused") == {"narrow"}
    assert not scene.about("KvCacheFull")


def test_answers_that_begin_late(scene: Scene) -> None:
    """Two hundred callers for one place. An answer takes a tenth of a second here, so each waits for twenty.

    Where an answer takes longer than the alert's window of five seconds, no first token is in most windows.
    """
    with load(scene, "queued", callers=200, tokens=100):
        eventually(lambda: scene.about("FirstTokenSlow"), "the alert")
        assert scene.about("FirstTokenSlow") == {"queued"}
        assert not scene.about("KvCacheFull")


def test_a_full_cache(scene: Scene) -> None:
    """Eight sequences, each of which needs half of it."""
    with load(scene, "full", callers=8, tokens=2000):
        eventually(lambda: "full" in scene.about("KvCacheFull"), "the alert")
        assert scene.about("KvCacheFull") == {"full"}
        eventually(lambda: "full" in lines(scene.look(), "llm-preemptions"), "pauses")
