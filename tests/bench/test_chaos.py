"""The chaos bench's judgment: which fault explains which failure, and what is seen as wrong."""

from __future__ import annotations

import numpy as np
import pytest

from bench.chaos.callers import Call, cause_of
from bench.chaos.faults import Fault, moments
from bench.chaos.judge import MARGIN_S, explain, per_second, steady_s
from bench.chaos.known import Known, Question, learned
from bench.chaos.parts import Member
from bench.chaos.picture import drawn
from tritonkit.errors import CircuitOpen, InferenceError, Overloaded


def fault(part: str, at_s: float = 10.0, took_s: float | None = 2.0, replica: str = "") -> Fault:
    """A kill, and when its part was back."""
    return Fault(Member(part, replica, "", 1), at_s, recovered_s=took_s)


def failed(door: str, cause: str, began_s: float = 10.5, ended_s: float = 11.0) -> Call:
    """A call that failed."""
    return Call(door, "digits", began_s, ended_s, cause)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (failed("grpc", "unavailable"), "gateway"),
        (failed("rest", "lost by the gateway"), "rest"),
        (failed("rest", "unavailable"), "tritonserver"),
        (failed("stream", "lost by the gateway"), "supervisor of tritonserver"),
        (failed("stream", "model away"), "stub"),
    ],
)
def test_a_failure_while_its_part_is_away_is_explained(call: Call, part: str) -> None:
    """The part that was hit explains it, or the supervisor of that part; a right answer needs no explanation."""
    explained = explain([call, Call("grpc", "digits", 10.5, 11.0)], [fault(part)])
    assert explained.unexplained == []
    assert explained.by == {(part.removeprefix("supervisor of "), call.door, call.cause): [call]}


@pytest.mark.parametrize(
    ("call", "faults"),
    [
        (failed("grpc", "unavailable"), []),
        # Before the fault, and after the recovery and its margin.
        (failed("grpc", "unavailable", 9.0, 9.9), [fault("gateway")]),
        (failed("grpc", "unavailable", 12.1 + MARGIN_S, 30.0), [fault("gateway")]),
        # Answers come without these.
        (failed("grpc", "unavailable"), [fault("redis"), fault("limiter"), fault("prometheus")]),
        # The client asks the other replica.
        (failed("grpc", "unavailable"), [fault("tritonserver", replica="a")]),
        # The gateway itself was there.
        (failed("rest", "connection lost"), [fault("rest"), fault("stub")]),
        # No death makes a request wrong.
        (failed("grpc", "error INVALID_ARGUMENT"), [fault("gateway")]),
    ],
)
def test_a_failure_that_no_fault_can_have_is_not_explained(call: Call, faults: list[Fault]) -> None:
    """Its time, its part or its cause does not fit."""
    assert explain([call], faults).unexplained == [call]


def test_both_replicas_together_explain_a_failure_of_the_client() -> None:
    """Nobody is left to ask."""
    faults = [fault("tritonserver", replica="a"), fault("stub", replica="b")]
    call = failed("grpc", "unavailable")
    assert explain([call], faults).by == {("both replicas", "grpc", "unavailable"): [call]}


def test_a_ping_that_was_not_answered_explains_what_is_sent_once() -> None:
    """A stream, and a call over REST; the client's calls are made again."""
    lost = [failed(door, "lost by the gateway") for door in ("stream", "rest", "grpc")]
    explained = explain(lost, [], [(8.0, 10.6)])
    assert explained.unexplained == [lost[2]]
    assert explain(lost, [], [(8.0, 10.4)]).unexplained == lost


def test_a_machine_that_stood_still_explains_what_was_late_or_lost() -> None:
    """Any call that was under way, and those of the next moments; no wrong status."""
    late = failed("grpc", "deadline", 100.0, 151.0)
    wrong = failed("grpc", "error INTERNAL", 100.0, 151.0)
    assert explain([late, wrong], [], still=[(102.0, 150.0)]).unexplained == [wrong]
    assert explain([late], [], still=[(30.0, 80.0)]).unexplained == [late]


def test_a_part_that_never_comes_back_explains_to_the_end() -> None:
    """The bench fails for the part itself."""
    call = failed("grpc", "unavailable", 500.0, 501.0)
    assert explain([call], [fault("gateway", took_s=None)]).unexplained == []


def test_steady_is_a_second_of_answers_without_a_failure() -> None:
    """From the last failure before it."""
    calls = [failed("grpc", "unavailable", at, at) for at in (10.2, 10.9, 11.7)]
    calls += [Call("grpc", "digits", at, at) for at in (10.5, 12.0, 12.5)]
    assert steady_s(calls, fault("gateway")) == pytest.approx(1.7)
    assert steady_s([], fault("gateway")) is None
    assert per_second(calls) == ([0] * 10 + [1, 0, 2], [0] * 10 + [2, 1, 0])


def test_faults_come_at_the_same_moments_from_a_seed() -> None:
    """One in each span of equal length."""
    at_moments = moments(3, 4, 10.0, 50.0)
    assert at_moments == moments(3, 4, 10.0, 50.0) != moments(4, 4, 10.0, 50.0)
    assert [int((at - 10.0) // 10.0) for at in at_moments] == [0, 1, 2, 3]


def test_causes_are_named_by_type_and_status() -> None:
    """A proxy that lost the server is not a server without room."""
    lost = Overloaded("gateway", found="UNAVAILABLE: upstream connect error or disconnect")
    full = Overloaded("gateway", found="UNAVAILABLE: upstream connect error, reset reason: overflow")
    other = InferenceError("model", found="INTERNAL: no")
    other.code = "INTERNAL"
    assert [cause_of(error) for error in (lost, full, other)] == ["lost by the gateway", "overloaded", "error INTERNAL"]
    assert cause_of(CircuitOpen("gateway", found="open")) == "circuit open"


def test_answers_are_right_to_the_byte_but_for_the_rounding_that_was_seen() -> None:
    """A label of another digit is wrong, and so is a score beyond four times the largest difference."""
    question = Question("digits", "image", b"")
    alone = {"label": np.array([[b"7"]], object), "score": np.array([[0.5]], np.float32)}
    among = {**alone, "score": np.array([[0.5 + 2e-6]], np.float32)}
    truth = learned([question], [alone], [(0, among)])
    assert isinstance(truth, Known)
    assert truth.right(0, among)
    assert truth.right(0, {**alone, "score": np.array([[0.5 + 7e-6]], np.float32)})
    for wrong in (
        {**alone, "score": np.array([[0.5 + 1e-5]], np.float32)},
        {**alone, "score": np.array([[np.nan]], np.float32)},
        {**alone, "score": np.array([[0.5]], np.float64)},
        {**alone, "label": np.array([[b"1"]], object)},
        {"label": alone["label"]},
    ):
        assert not truth.right(0, wrong)


def test_a_picture_has_answers_and_faults() -> None:
    """Kills as lines, stops as bands, each with its name."""
    stopped = Fault(Member("limiter", "", "", 1), 2.0, stopped_s=3.0)
    text = drawn([10, 20, 0, 15, 9, 8], [0, 0, 5, 0, 0, 0], [fault("gateway", 1.0), stopped])
    assert text.startswith("<svg")
    assert text.count('class="kill"') == 1
    assert text.count('class="stop"') == 1
    assert ">gateway</text>" in text
    assert text.rstrip().endswith("</svg>")
