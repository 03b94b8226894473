"""Panels and alerts of real Tritons under load, by a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import tritonkit_here as tritonkit
from tests.server.at_once import at_once
from tests.server.models import VECTOR, ModelText, write_repository
from tests.waiting import eventually
from tritonkit.client import Client
from tritonkit.errors import ClientError, InferenceError, ServerError
from tritonkit.operate.observe import (
    ALERTS,
    PANELS,
    Chosen,
    Need,
    Pace,
    Panel,
    Prometheus,
    View,
    look,
    recording,
    rules_text,
)
from tritonkit.serve import Endpoint, serve
from tritonkit.serve.core.stubs import find_stubs
from tritonkit.serve.core.supervisor import run_prefix

pytestmark = [pytest.mark.needs("prometheus"), pytest.mark.slow]

FAILING = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # Fails each request whose first value is below 0.
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            error = None
            if x.as_numpy()[0, 0] < 0:
                HOW
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x.as_numpy())], error=error))
        return answers
"""
RAISES = FAILING.replace("HOW", 'raise ValueError("as asked for")')
ANSWERS = FAILING.replace("HOW", 'error = pb_utils.TritonError("as asked for")')
PYTHON = f'backend: "python"\n{VECTOR}'
MODELS = {
    "echo": ModelText(f"{PYTHON}dynamic_batching {{ }}\n"),
    "cached": ModelText(f"{PYTHON}response_cache {{ enable: true }}\n"),
    "broken": ModelText(PYTHON, RAISES),
    "refusing": ModelText(PYTHON, ANSWERS),
}
MINUTE_S = 1 / 60
"""The fraction of an alert's minute that lasts here: its windows of hours are minutes then."""


@dataclass(frozen=True)
class Scene:
    """Two servers that serve the same, and the Prometheus that looks at them."""

    servers: tuple[Endpoint, Endpoint]
    url: str
    source: Prometheus

    def look(self) -> View:
        """At all of it, now."""
        return look(self.source, Chosen(range_s=60))

    def firing(self) -> set[tuple[str, str]]:
        """Alerts, and the model or the replica that they are about."""
        return {(one.name, one.labels.get("model") or one.labels.get("instance", "")) for one in self.source.firing()}


@contextmanager
def load(address: str) -> Iterator[None]:
    """Callers of every model until the block ends; some of what `broken` is asked fails."""

    def caller(number: int, ended: threading.Event) -> None:
        with Client(address, retry=None, breaker=None) as client:
            turn = 0
            while not ended.wait(0.01):
                turn += 1
                item = np.array([0, number, turn % 5, 0], np.float32)
                bad = np.array([-(turn % 4 == 0), 0, 0, 0], np.float32)
                for model, x in (("echo", item), ("cached", item), ("broken", bad)):
                    with suppress(ClientError):  # the failure was requested, or the server was killed
                        client.model(model).predict(x=x)

    with at_once(3, caller):
        yield


@pytest.fixture(scope="module")
def scene(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Under load, with alerts that look sixty times as soon."""
    repository = write_repository(tmp_path_factory.mktemp("observe"), MODELS)
    free: dict[str, Any] = {"grpc_port": 0, "metrics_port": 0, "root": project, "finalize_timeout_s": 0}
    with ExitStack() as stack:
        servers = [stack.enter_context(serve(repository, **free))]
        stack.enter_context(suppress(ServerError))  # the second is killed
        servers.append(stack.enter_context(serve(repository, **free, restarts=0)))
        rules = rules_text(ALERTS, Pace(MINUTE_S), interval_s=1)
        url = stack.enter_context(recording([server.metrics for server in servers], rules=rules))
        source = Prometheus(url)
        stack.callback(source.close)
        for server in servers:
            stack.enter_context(load(server.grpc))
        made = Scene((servers[0], servers[1]), url, source)
        eventually(lambda: made.look().shown["Latency"][-1].lines, "a first rate")
        yield made


@pytest.fixture(scope="module")
def view(scene: Scene) -> View:
    """One look, when all that can be there is: failures too."""
    views: list[View] = []

    def complete() -> bool:
        views.append(scene.look())
        return not missing(views[-1]) and len(lines_of(views[-1], "replica-traffic")) == 2

    eventually(complete, "every panel, of both servers")
    return views[-1]


def lines_of(view: View, panel: str) -> set[str]:
    """The names of a panel's lines."""
    shown = [panel_view for panels in view.shown.values() for panel_view in panels]
    return {line.name for panel_view in shown if panel_view.panel.name == panel for line in panel_view.lines}


def missing(view: View) -> list[str]:
    """Panels that have nothing and could."""
    shown = [panel_view for panels in view.shown.values() for panel_view in panels]
    return [e.panel.name for e in shown if not e.lines and can_be_there(e.panel)]


def can_be_there(panel: Panel) -> bool:
    """Every panel has data but those of a gateway, a GPU and a language model (`test_observe_llm.py` has one)."""
    return panel.need not in (Need.gateway, Need.gpu, Need.llm)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_a_panel_has_data_or_says_what_it_lacks(view: View, panel: Panel) -> None:
    """Everything that replicas can say is there; for the rest the page says why it is not."""
    shown = {panel_view.panel.name: panel_view for panels in view.shown.values() for panel_view in panels}[panel.name]
    assert bool(shown.lines) == can_be_there(panel)
    assert bool(shown.empty) != can_be_there(panel)
    values = [value for line in shown.lines for _, value in line.points if value is not None]
    assert all(value >= 0 for value in values)
    if panel.unit.text == "%" and values:
        assert max(values) <= 100 + 1e-6


def test_lines_are_of_models_and_of_replicas(view: View, scene: Scene) -> None:
    """Values carry the names that people know them by."""
    assert lines_of(view, "traffic") == set(MODELS)
    assert lines_of(view, "latency") == {"echo", "cached", "broken"}
    assert lines_of(view, "replica-traffic") == {server.metrics for server in scene.servers}
    assert lines_of(view, "failures") == {"broken BACKEND"}
    assert lines_of(view, "cache-hits") == {"cached"}


def metric(endpoint: Endpoint, name: str, model: str) -> float:
    """A value of a server's metrics, 0 where there is none."""
    with urllib.request.urlopen(f"http://{endpoint.metrics}/metrics", timeout=30) as answer:
        match = re.search(rf'^{name}\{{model="{model}".*\}} (\S+)$', answer.read().decode(), re.M)
    return float(match[1]) if match else 0.0


def test_an_error_that_a_model_answers_with_counts_as_a_success(scene: Scene) -> None:
    """In Triton 2.51: only what is raised is a failure in its metrics, so only the gateway sees the others."""
    server, name = scene.servers[0], "nv_inference_request_success"
    before = metric(server, name, "refusing")
    with Client(server.grpc, retry=None) as client, pytest.raises(InferenceError):
        client.model("refusing").predict(x=np.array([-1, 0, 0, 0], np.float32))
    eventually(lambda: metric(server, name, "refusing") == before + 1)


def test_a_stub_that_dies_is_counted(scene: Scene) -> None:
    """Triton says nothing of it; the gauges do, until the model is back, and the count stays."""
    server = scene.servers[0]
    assert metric(server, "tritonkit_max_batch_size", "echo") == 4
    assert metric(server, "tritonkit_stub_up", "broken") == 1
    (stub,) = [stub for stub in find_stubs(run_prefix()) if stub.model == "broken" and child(server.pid, stub.pid)]
    os.kill(stub.pid, signal.SIGKILL)
    eventually(lambda: metric(server, "tritonkit_stub_deaths_total", "broken") == 1)
    eventually(lambda: metric(server, "tritonkit_stub_up", "broken") == 1)


def child(parent: int, pid: int) -> bool:
    """Whether a process was started by another."""
    with suppress(OSError):
        return f"PPid:\t{parent}\n" in Path(f"/proc/{pid}/status").read_text()
    return False


def test_failing_requests_wake_somebody(scene: Scene) -> None:
    """A quarter of them: the fast burn and the plain limit fire for that model, and for no other."""
    alerts = {("SloBurnFast", "broken"), ("ErrorsAboveTarget", "broken")}
    eventually(lambda: alerts <= scene.firing(), "the alerts")
    assert {about for name, about in scene.firing() if name.startswith("Slo")} == {"broken"}


def test_the_command_shows_it(scene: Scene, tmp_path: Path) -> None:
    """The command writes a page and JSON."""
    options = ("dash", "--prometheus", scene.url, "--range", "30s")
    facts: dict[str, Any] = json.loads(tritonkit(*options, "--json").stdout)
    assert facts["panels"]["latency"]["lines"]
    assert "no gateway" in facts["panels"]["latency-p99"]["empty"]
    page = tmp_path / "dash.html"
    assert tritonkit(*options, "--model", "echo", "--out", str(page)).returncode == 0
    assert "Latency in Triton, mean" in page.read_text()


def test_a_replica_that_dies_wakes_somebody(scene: Scene) -> None:
    """Its metrics' address is in the alert. The last test: it stays dead."""
    gone = scene.servers[1]
    os.kill(gone.pid, signal.SIGKILL)
    eventually(lambda: ("ReplicaDown", gone.metrics) in scene.firing(), "the alert")
    assert ("ReplicaDown", scene.servers[0].metrics) not in scene.firing()
