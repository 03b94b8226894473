"""Calls as OpenTelemetry spans."""

from __future__ import annotations

import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tritonkit.client.observers import CallEvent, OpenTelemetryTracing
from tritonkit.client.reply import Timing
from tritonkit.errors import UsageError

ANSWERED = CallEvent("digits", "1", "server", "[::1]:8001", 2, 16, Timing(0.5, 0.4, 0.05, 0.01))


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Keeps the spans that ended."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    """A tracer provider of one's own."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def test_a_call_is_a_client_span(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """It has the conventions' attributes for RPC, and ours."""
    tracing = OpenTelemetryTracing(provider)
    tracing.finished(tracing.started("digits"), ANSWERED)
    (span,) = exporter.get_finished_spans()
    assert span.name == "inference.GRPCInferenceService/ModelInfer"
    assert span.kind is trace.SpanKind.CLIENT
    assert dict(span.attributes or {}) == {
        "rpc.system": "grpc",
        "rpc.service": "inference.GRPCInferenceService",
        "rpc.method": "ModelInfer",
        "server.address": "::1",
        "server.port": 8001,
        "tritonkit.model": "digits",
        "tritonkit.model_version": "1",
        "tritonkit.origin": "server",
        "tritonkit.attempts": 2,
        "tritonkit.batch_size": 16,
        "tritonkit.wait_s": 0.4,
        "tritonkit.queue_s": 0.05,
        "tritonkit.joining_s": 0.01,
    }
    assert span.status.status_code is trace.StatusCode.UNSET


def test_it_is_a_child_and_its_context_travels(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """The caller's span is the parent, and `traceparent` names this one for Triton."""
    tracing = OpenTelemetryTracing(provider)
    with provider.get_tracer("app").start_as_current_span("request") as parent:
        token = tracing.started("digits")
        headers = dict(tracing.headers(token))
    tracing.finished(token, ANSWERED)
    span = exporter.get_finished_spans()[-1]
    assert span.parent is not None
    assert span.parent.span_id == parent.get_span_context().span_id
    context = span.get_span_context()
    assert context is not None
    assert list(headers) == ["traceparent"]
    assert headers["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-0")


def test_baggage_stays_here(provider: TracerProvider) -> None:
    """An application's own baggage is not sent to the server."""
    from opentelemetry import baggage, context

    tracing = OpenTelemetryTracing(provider)
    attached = context.attach(baggage.set_baggage("customer", "secret"))
    try:
        assert [name for name, _ in tracing.headers(tracing.started("digits"))] == ["traceparent"]
    finally:
        context.detach(attached)


def test_a_failed_call_says_so(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """The error's class is status and `error.type`."""
    tracing = OpenTelemetryTracing(provider)
    tracing.finished(tracing.started("digits"), CallEvent("digits", error="Overloaded"))
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "Overloaded"
    assert "server.address" not in (span.attributes or {})


def test_without_a_provider_nothing_is_recorded() -> None:
    """The global provider of an application that set up none: no span, no header, no error."""
    tracing = OpenTelemetryTracing()
    token = tracing.started("digits")
    assert tracing.headers(token) == ()
    tracing.finished(token, ANSWERED)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(UsageError, match=r"pip install 'tritonkit\[tracing\]'"):
        OpenTelemetryTracing()
