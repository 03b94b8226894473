"""A client's calls, kept for the evidence."""

from __future__ import annotations

import time

from tritonkit.client.observers.events import CallEvent
from tritonkit.client.reply import Timing
from tritonkit.perf.diagnose import CallLog


def test_calls_are_kept_with_their_server_and_model() -> None:
    """Calls that reached a server or failed are kept; answers of the client's own cache say nothing of a server."""
    log = CallLog()
    began = time.monotonic()
    for event in (
        CallEvent("m", endpoint="a:1", timing=Timing(0.03, wait_s=0.01)),
        CallEvent("other", endpoint="a:1", timing=Timing(0.5)),
        CallEvent("m", origin="local"),
        CallEvent("m", error="DeadlineExceeded", timing=Timing(1.0)),
    ):
        assert log.headers(log.started(event.model)) == ()
        log.finished(None, event)
    first, failed = log.since(began, "m")
    assert (first.address, first.total_ms, first.wait_ms, first.error) == ("a:1", 30.0, 10.0, "")
    assert failed.error == "DeadlineExceeded"
    assert len(log.since(began)) == 3
    assert log.since(time.monotonic() + 1) == ()
