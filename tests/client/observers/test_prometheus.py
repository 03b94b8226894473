"""Calls as Prometheus metrics."""

from __future__ import annotations

import sys
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tritonkit.client.observers import CallEvent, PrometheusMetrics
from tritonkit.client.reply import Timing
from tritonkit.errors import UsageError

ANSWERED = CallEvent("digits", "1", "server", "a:8001", 3, 16, Timing(0.5, 0.4, 0.05, 0.01))
KEPT = CallEvent("digits", "1", "l1", "", 0, 1, Timing(0.00001))
FAILED = CallEvent("digits", attempts=1, timing=Timing(1.0), error="DeadlineExceeded")


@pytest.fixture
def registry() -> CollectorRegistry:
    """An empty one."""
    return CollectorRegistry()


def see(metrics: PrometheusMetrics, *events: CallEvent) -> None:
    """Calls with these ends."""
    for event in events:
        metrics.finished(metrics.started(event.model), event)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """One sample of the model digits."""
    return registry.get_sample_value(f"tritonkit_client_{name}", {"model": "digits", **labels})


def test_calls_are_counted(registry: CollectorRegistry) -> None:
    """Calls count by model, outcome and origin; requests beyond the first are retries."""
    see(PrometheusMetrics(registry), ANSWERED, ANSWERED, KEPT, FAILED)
    assert value(registry, "calls_total", outcome="ok", origin="server") == 2
    assert value(registry, "calls_total", outcome="ok", origin="l1") == 1
    assert value(registry, "calls_total", outcome="DeadlineExceeded", origin="") == 1
    assert value(registry, "retries_total") == 4
    assert value(registry, "calls_under_way") == 0


def test_times_are_split(registry: CollectorRegistry) -> None:
    """Answers' times count in all, on the wire, in the queue and joining; a kept answer has no parts."""
    see(PrometheusMetrics(registry), ANSWERED, KEPT)
    assert value(registry, "call_seconds_sum", origin="server") == 0.5
    assert value(registry, "call_seconds_count", origin="l1") == 1
    assert value(registry, "wait_seconds_sum") == 0.4
    assert value(registry, "queue_seconds_sum") == 0.05
    assert value(registry, "joining_seconds_sum") == 0.01
    assert value(registry, "wait_seconds_count") == 1
    assert value(registry, "batch_items_bucket", le="16.0") == 1
    assert value(registry, "batch_items_bucket", le="8.0") == 0


def test_calls_under_way_are_seen(registry: CollectorRegistry) -> None:
    """A call counts from its start to its end."""
    metrics = PrometheusMetrics(registry)
    token = metrics.started("digits")
    assert value(registry, "calls_under_way") == 1
    assert metrics.headers(token) == ()
    metrics.finished(token, ANSWERED)
    assert value(registry, "calls_under_way") == 0


def test_two_clients_share_a_registry(registry: CollectorRegistry) -> None:
    """Each client may have its own object: they count into the same series."""
    see(PrometheusMetrics(registry), ANSWERED)
    see(PrometheusMetrics(registry), ANSWERED)
    assert value(registry, "calls_total", outcome="ok", origin="server") == 2


def test_threads_lose_no_count(registry: CollectorRegistry) -> None:
    """The counters are right with many concurrent threads."""
    metrics = PrometheusMetrics(registry)
    threads = [threading.Thread(target=lambda: see(metrics, *[ANSWERED] * 200)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(registry, "calls_total", outcome="ok", origin="server") == 1600


def test_the_page_lists_every_metric(registry: CollectorRegistry) -> None:
    """Their names are those of the documentation."""
    see(PrometheusMetrics(registry), ANSWERED)
    page = generate_latest(registry).decode()
    names = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    assert {name for name in names if not name.endswith("_created")} == {
        f"tritonkit_client_{name}"
        for name in (
            *("batch_items", "call_seconds", "calls_total", "calls_under_way"),
            *("joining_seconds", "queue_seconds", "retries_total", "wait_seconds"),
        )
    }


def test_the_default_registry_is_the_packages() -> None:
    """Without one, the metrics are where the package's server looks."""
    from prometheus_client import REGISTRY

    see(PrometheusMetrics(), CallEvent("only-here", origin="l1"))
    labels = {"model": "only-here", "outcome": "ok", "origin": "l1"}
    assert REGISTRY.get_sample_value("tritonkit_client_calls_total", labels) == 1


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r"pip install 'tritonkit\[metrics\]'"):
        PrometheusMetrics()
