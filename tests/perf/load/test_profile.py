"""A request taken apart: what each side counted, and sums that add up."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.client.conftest import ADD, DIGITS
from tritonkit.client import Client, ModelStatistics
from tritonkit.errors import InferenceError
from tritonkit.perf.load import Span, profile_requests
from tritonkit.perf.load.profile import spans_of
from tritonkit.testing import FakeModel, MemoryTransport

INPUTS = {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]]}


def counters(name: str, *times_ms: float, whole_ms: float = 0.0, count: int = 10) -> ModelStatistics:
    """Statistics of requests, each of which took these milliseconds in the four stretches."""
    queue, taken, ran, handed_s = (count * ms / 1e3 for ms in times_ms or (0, 0, 0, 0))
    return ModelStatistics(name, "1", count, count, count, 0, queue, taken, ran, handed_s, count * whole_ms / 1e3)


def rounded(spans: tuple[Span, ...]) -> list[tuple[str, str, float, str]]:
    """Spans without the last digits."""
    return [(span.where, span.what, round(span.ms, 6), span.source) for span in spans]


def test_an_ensemble_is_taken_apart_step_by_step() -> None:
    """Client, wire, each step's queue, ways and run, and what lies between the steps."""
    spent = {
        "net": counters("net", whole_ms=6),
        "net_decode": counters("net_decode", 0.5, 0.25, 1, 0.25),
        "net_network": counters("net_network", 1, 0.125, 2, 0.125),
    }
    spans = spans_of("net", spent, mean_ms=8.0, wait_ms=7.5)
    assert rounded(spans) == [
        ("client", "check, encode, decode", 0.5, "client"),
        ("wire", "gRPC, both ways", 1.5, "difference"),
        ("net_decode", "queue", 0.5, "server"),
        ("net_decode", "transfer in", 0.25, "server"),
        ("net_decode", "compute", 1, "server"),
        ("net_decode", "transfer out", 0.25, "server"),
        ("net_network", "queue", 1, "server"),
        ("net_network", "transfer in", 0.125, "server"),
        ("net_network", "compute", 2, "server"),
        ("net_network", "transfer out", 0.125, "server"),
        ("server", "between the steps", 0.75, "difference"),
    ]
    assert sum(span.ms for span in spans) == pytest.approx(8)


def test_a_model_alone_has_its_own_stretches_and_a_rest() -> None:
    """Time that Triton counted as a whole and in none of the stretches is called unaccounted."""
    spans = spans_of("net", {"net": counters("net", 1, 2, 3, 4, whole_ms=11)}, 12.0, 11.5)
    assert [(span.where, span.what) for span in spans[2:]] == [
        ("net", "queue"),
        ("net", "transfer in"),
        ("net", "compute"),
        ("net", "transfer out"),
        ("server", "unaccounted"),
    ]
    assert spans[-1].ms == pytest.approx(1)


def test_stretches_that_overlap_are_taken_off_again() -> None:
    """A model is on its way out while the answer is already gone: the sum still is the mean."""
    spans = spans_of("net", {"net": counters("net", 1, 2, 3, 4, whole_ms=9)}, 12.0, 11.5)
    assert (spans[-1].what, round(spans[-1].ms, 6)) == ("overlap", -1)
    assert sum(span.ms for span in spans) == pytest.approx(12)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_real_calls_add_up(concurrency: int) -> None:
    """Every request is sent once, by as many callers, and the spans are the mean that was measured."""
    callers: set[int] = set()

    def add(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        callers.add(threading.get_ident())
        time.sleep(0.005)
        return {"sum": inputs["a"] + inputs["b"]}

    model = FakeModel(ADD.inputs, ADD.outputs, add, max_batch_size=4)
    with Client(transport=MemoryTransport({"add": model})) as client:
        profile = profile_requests(client, "add", INPUTS, requests=20, concurrency=concurrency)
        assert client.statistics("add")[0].success_count == 20 + 10, "ten to warm up"
    assert sum(span.ms for span in profile.spans) == pytest.approx(profile.mean_ms)
    assert 5 <= profile.p50_ms <= profile.p95_ms
    # The model in memory keeps no times, so all of its time is the wire's.
    wire = next(span.ms for span in profile.spans if span.where == "wire")
    assert 5 <= wire < profile.mean_ms
    assert profile.batches == {"add": 1}
    assert len(callers) >= concurrency
    shares = [span["share"] for span in profile.to_dict()["spans"]]
    assert sum(shares) == pytest.approx(1)


def test_requests_of_others_are_noticed() -> None:
    """The server's times are then means over all, and the report says so."""
    model = FakeModel(DIGITS.inputs, DIGITS.outputs, DIGITS.function)
    memory = MemoryTransport({"digits": model})

    class Busy(MemoryTransport):
        def send(self, method: Any, body: Any, timeout_s: float, headers: Any = ()) -> Any:
            """Answer, and let somebody else call too."""
            if method == "ModelInfer":
                memory.send(method, body, timeout_s)
            return memory.send(method, body, timeout_s)

    with Client(transport=Busy({"digits": model})) as client:
        profile = profile_requests(client, "digits", {"image": b"x"}, requests=5)
    assert profile.notes == ("others sent 5 requests meanwhile: the server's times are means over all",)


def test_a_model_reloaded_meanwhile_is_an_error() -> None:
    """Its counters start again at nothing: differences would be negative."""
    memory = MemoryTransport({"digits": DIGITS})
    methods: list[str] = []

    class Reloaded(MemoryTransport):
        def send(self, method: Any, body: Any, timeout_s: float, headers: Any = ()) -> Any:
            """Forget all counts before the last look at them."""
            methods.append(method)
            if method == "ModelStatistics" and methods.count(method) == 3:
                return MemoryTransport({"digits": DIGITS}).send(method, body, timeout_s)
            return memory.send(method, body, timeout_s)

    with Client(transport=Reloaded({})) as client, pytest.raises(InferenceError) as caught:
        profile_requests(client, "digits", {"image": b"x"}, requests=5)
    assert "it was reloaded" in caught.value.found
