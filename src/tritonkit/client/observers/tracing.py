"""Calls as OpenTelemetry spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.extras import need_package

if TYPE_CHECKING:
    from tritonkit.client.observers.events import CallEvent
    from tritonkit.client.wire.transport import Headers

__all__ = ["OpenTelemetryTracing"]

_SERVICE, _METHOD = "inference.GRPCInferenceService", "ModelInfer"


class OpenTelemetryTracing:
    """One client span per call, child of the caller's; its context goes to Triton as `traceparent`.

    Triton's own spans join it when the server runs with `--trace-config mode=opentelemetry`.
    Attributes follow OpenTelemetry's conventions for RPC where they have a name.

    Args:
        tracer_provider: the opentelemetry package's tracer provider; the global one if None.

    Raises:
        UsageError: the package is not installed (`pip install 'tritonkit[tracing]'`).
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        self._trace = need_package("opentelemetry.trace", "tritonkit[tracing]")
        propagation = need_package("opentelemetry.trace.propagation.tracecontext", "tritonkit[tracing]")
        # Only the trace's context: an application's baggage is not for another company's server.
        self._propagator = propagation.TraceContextTextMapPropagator()
        self._tracer = self._trace.get_tracer("tritonkit.client", tracer_provider=tracer_provider)

    def started(self, model: str) -> Any:
        """Begin the span."""
        return self._tracer.start_span(
            f"{_SERVICE}/{_METHOD}",
            kind=self._trace.SpanKind.CLIENT,
            attributes={"rpc.system": "grpc", "rpc.service": _SERVICE, "rpc.method": _METHOD, "tritonkit.model": model},
        )

    def headers(self, token: Any) -> Headers:
        """`traceparent` and, where there is one, `tracestate`."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=self._trace.set_span_in_context(token))
        return tuple(carrier.items())

    def finished(self, token: Any, event: CallEvent) -> None:
        """End the span."""
        if token.is_recording():
            token.set_attributes(_attributes(event))
            if event.error is not None:
                token.set_status(self._trace.StatusCode.ERROR, event.error)
        token.end()


def _attributes(event: CallEvent) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "tritonkit.model_version": event.version,
        "tritonkit.origin": event.origin,
        "tritonkit.attempts": event.attempts,
        "tritonkit.batch_size": event.batch_size,
        "tritonkit.wait_s": event.timing.wait_s,
        "tritonkit.queue_s": event.timing.queue_s,
        "tritonkit.joining_s": event.timing.joining_s,
        "error.type": event.error,
    }
    host, _, port = event.endpoint.rpartition(":")
    if host and port.isdecimal():
        attributes |= {"server.address": host.strip("[]"), "server.port": int(port)}
    return {name: value for name, value in attributes.items() if value not in (None, "")}
