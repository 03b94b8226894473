"""The rules on evidence made by hand: each fires on its own, at its threshold, and never on what is missing."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.perf.diagnose.evidence import diagnosed, gpu, language, machine, model, server
from tritonkit.perf.diagnose import RULES, Evidence, ModelEvidence, ServerEvidence, diagnose
from tritonkit.perf.diagnose.machine_evidence import MachineEvidence, StubEvidence
from tritonkit.perf.diagnose.rules.queue import erlang_wait_ms
from tritonkit.perf.diagnose.snapshot import ModelFacts

BUSY: dict[str, Any] = {
    "busy": 1.0,
    "compute_ms": 30.0,
    "queue_ms": 90.0,
    "server_ms": 121.0,
    "rate_per_s": 33.0,
    "runs_per_s": 33.0,
    "in_flight": 4.0,
    "in_flight_range": (3.8, 4.2),
}
"""One instance that always runs, four callers."""

SERIAL: dict[str, Any] = {
    "queue_ms": 0.1,
    "in_flight": 1.0,
    "in_flight_range": (0.98, 1.05),
    "batches": True,
    "server_ms": 30.0,
}


def part(role: str) -> ServerEvidence:
    """An ensemble with one slow part."""
    roles = ("before", "network", "after")
    parts = [model(name, role=name, compute_ms=150.0 if name == role else 5.0, server_ms=160.0) for name in roles]
    whole = ModelEvidence("a:1", ModelFacts("whole", steps=roles), rate_per_s=2, server_ms=165.0)
    return server(*parts, entries=(whole,))


STUB = StubEvidence(7, "m", cores=0.95, working_threads=4, runnable=1.5, waits_per_s=150)

ON_GPU: dict[str, Any] = BUSY | {"gpu": True, "batches": True, "max_batch_size": 64, "requests_per_run": 40.0}
"""A model on a GPU that is full, with large batches."""
CHANGING = {"builds_plans": True, "sizes": {8: 20, 24: 30, 56: 10}, "items_per_run": 24.0}

ALONE: dict[str, list[ServerEvidence]] = {
    "cold-start": [server(model(early_compute_ms=400.0, late_compute_ms=2.0, runs_before=3))],
    "throttled": [server(machine=machine(throttled=0.5, throttled_s=2.0))],
    "gpu-throttled": [
        server(model(gpu=True), gpus=(gpu(0.9, throttled=0.8, clock=0.7, reasons=("its power limit",)),))
    ],
    "memory": [server(machine=machine(memory_hits=500, memory_share=1.0))],
    "shared-memory": [server(machine=machine(shm_free_mib=1.0))],
    "gil": [server(model(**BUSY), machine=machine(stubs=(STUB,)))],
    "oversubscribed-cores": [
        server(
            model(**BUSY | {"busy": 2.0, "instances": 2}),
            machine=machine(server_cores=0.5, runnable=2.0, other_runnable=8.0, psi_cpu=0.99),
        )
    ],
    "network-or-client": [server(trip_ms=100.0)],
    "cache-misses": [server(model(caches=True, lookups=50, hits=0, compute_ms=20.0))],
    "queue-delay-too-long": [server(model(batches=True, delay_ms=200.0, queue_ms=190.0, server_ms=193.0))],
    "shapes-differ": [server(model(batches=True, open_axes=("x",), **BUSY))],
    "no-dynamic-batching": [server(model(**BUSY))],
    "delay-too-short": [server(model(**BUSY | {"queue_ms": 0.0, "busy": 3.9, "instances": 4, "batches": True}))],
    "too-few-instances": [server(model(max_batch_size=1, **BUSY))],
    "rate-above-capacity": [
        server(model(**BUSY | {"max_batch_size": 1, "instances": 2, "busy": 2.0, "late_queue_ms": 900.0}))
    ],
    "serial-callers": [server(model(**BUSY | SERIAL))],
    "rebuilding-plans": [server(model(**ON_GPU | CHANGING), gpus=(gpu(0.04),))],
    "stubs-bound": [server(model(**ON_GPU | {"python": True, "items_per_run": 63.0}), gpus=(gpu(0.33),))],
    "copies-bound": [server(model(**ON_GPU | {"copies": 0.7, "items_per_run": 63.0}), gpus=(gpu(0.3),))],
    "static-batching": [server(language(static=True, running=1.0, waiting=4.0))],
    "kv-cache-full": [server(language(running=8.0, stalled=4.0, cache=0.9, paused=10))],
    "places-taken": [server(language(running=8.0, waiting=6.0, cache=0.4, refused=2))],
    "large-prefills": [server(language(prefill_ms=300.0, prefill_share=0.5, prompt_tokens_per_step=500.0))],
    "slow-decode": [server(language(decode_ms=80.0, between_ms=85.0, prefill_ms=90.0))],
    "gpu-idle": [
        server(model(**ON_GPU | {"items_per_run": 4.0, "requests_per_run": 4.0, "queue_ms": 0.1}), gpus=(gpu(0.2),))
    ],
    "decoding": [part("before")],
    "model-execution": [part("network")],
    "post-processing": [part("after")],
    "bad-replica": [server(), server(address="b:1", error="DeadlineExceeded: no answer within 2 s")],
}
"""Evidence in which a cause is the first that is found."""


def test_a_quiet_server_is_healthy() -> None:
    """No rule fires, and there is nothing to note."""
    assert diagnosed().verdict == "healthy"
    assert not diagnosed().notes


def test_every_rule_has_evidence_here() -> None:
    """The table of rules, and this one."""
    assert set(ALONE) == set(RULES)


@pytest.mark.parametrize("cause", RULES)
def test_its_evidence_makes_a_cause_the_verdict(cause: str) -> None:
    """With the place, what was seen, what to do and what that brings."""
    diagnosis = diagnosed(*ALONE[cause])
    assert diagnosis.verdict == cause, diagnosis
    first = diagnosis.findings[0]
    assert first.where
    assert all(first.evidence)
    assert first.change
    assert first.gain
    assert 0 < first.share <= 1
    assert diagnosis.to_dict()["verdict"] == cause


@pytest.mark.parametrize("cause", RULES)
def test_a_rule_says_nothing_where_its_evidence_is_missing(cause: str) -> None:
    """Whatever value of the evidence is not known: that rule is silent, or still right, and none fails."""
    for server_ in ALONE[cause]:
        for kind, holder in ((MachineEvidence, server_.machine), (ModelEvidence, server_.parts[0])):
            assert holder is not None
            for field in fields(kind):
                if "None" not in str(field.type):
                    continue
                without: Any = replace(holder, **{field.name: None})
                changed = (
                    replace(server_, machine=without)
                    if kind is MachineEvidence
                    else replace(server_, parts=(without, *server_.parts[1:]))
                )
                diagnose(Evidence((changed, *ALONE[cause][1:])))
        nothing = replace(server_, machine=None, trip_ms=None, probe_ms=None, own_ms=None)
        machines = {"throttled", "memory", "shared-memory", "gil", "oversubscribed-cores", "network-or-client"}
        verdict = diagnose(Evidence((nothing, *ALONE[cause][1:]))).verdict
        assert verdict != cause or cause not in machines
        empty = replace(nothing, parts=(), entries=())
        assert {f.cause for f in diagnose(Evidence((empty,))).findings} == set()


def test_what_explains_the_rest_comes_first() -> None:
    """A throttled server is also full and slow: the quota is the verdict, the others follow."""
    causes = [
        f.cause for f in diagnosed(server(model(**BUSY), machine=machine(throttled=0.8, throttled_s=4.0))).findings
    ]
    assert causes[0] == "throttled"
    assert {"no-dynamic-batching", "model-execution"} <= set(causes)


def test_without_cores_left_a_full_server_is_at_its_limit() -> None:
    """The same queue: more instances where there are cores, else what runs is what takes the time."""
    full = BUSY | {"max_batch_size": 1}
    assert diagnosed(server(model(**full))).verdict == "too-few-instances"
    used = machine(server_cores=1.9)
    assert diagnosed(server(model(**full), machine=used)).verdict == "model-execution"
    growing = full | {"pending": (3.0, 300.0)}
    assert diagnosed(server(model(**growing), machine=used)).verdict == "rate-above-capacity"
    # Of a machine that is not seen it is not known whether it has cores left.
    assert diagnosed(server(model(**full), machine=None)).verdict == "too-few-instances"
    assert diagnosed(server(model(**growing), machine=None)).verdict == "rate-above-capacity"
    assert diagnosed(server(model(**full | {"rejected": 4}), machine=used)).verdict == "rate-above-capacity"


def test_batches_that_are_reached_are_no_finding() -> None:
    """Requests that share runs, and requests too large to be joined, are left alone by the rules of batching."""
    causes = {"shapes-differ", "no-dynamic-batching", "delay-too-short", "serial-callers"}
    for changed in ({"requests_per_run": 4.0, "items_per_run": 4.0}, {"items_per_run": 6.0}):
        for cause in causes:
            (made,) = ALONE[cause]
            diagnosis = diagnosed(replace(made, parts=(replace(made.parts[0], **changed),)))
            assert not causes & {f.cause for f in diagnosis.findings}, cause


def test_threads_that_wait_for_cores_matter_only_where_requests_do() -> None:
    """A server with little to do meets its target on a busy machine, and is healthy."""
    crowded = machine(server_cores=0.3, runnable=1.2, other_runnable=6.0, psi_cpu=0.99)
    assert diagnosed(server(machine=crowded)).verdict == "healthy"


def test_parallel_threads_do_not_share_a_lock() -> None:
    """Threads that compute all the time hardly wait: that does not indicate a lock, on one core or several."""
    for cores, waits in ((1.9, 5.0), (0.95, 5.0), (1.9, 150.0)):
        stub = replace(STUB, cores=cores, waits_per_s=waits)
        causes = {f.cause for f in diagnosed(server(model(**BUSY), machine=machine(stubs=(stub,)))).findings}
        assert "gil" not in causes


def test_a_language_model_that_runs_well_is_healthy() -> None:
    """Whatever Triton says of its runs: a request is a short run to it, and its answer nobody's time."""
    diagnosis = diagnosed(server(language()))
    assert diagnosis.verdict == "healthy"
    assert not diagnosis.notes


@pytest.mark.parametrize(
    "changed",
    [
        {"static": True, "running": 1.0, "waiting": 0.2},
        {"running": 3.0, "waiting": 4.0},  # places are, and nobody says that batches are static
        {"running": 8.0, "waiting": 0.2},
        {"cache": 0.97},  # full, and nobody waits for it
        {"running": 8.0, "stalled": 3.0, "cache": 0.3},  # left out for want of tokens in a step
        {"prefill_ms": 300.0, "prefill_share": 0.1, "prompt_tokens_per_step": 500.0},
        {"prefill_ms": 300.0, "prefill_share": 0.5, "prompt_tokens_per_step": 500.0, "running": 1.0},
        {"prefill_ms": 45.0, "decode_ms": 10.0, "prefill_share": 0.5},  # within what a token may take
        {"decode_ms": 80.0, "between_ms": 85.0, "prefill_ms": 90.0, "busy": 0.4},
    ],
)
def test_rules_of_language_models_do_not_fire_close_by(changed: dict[str, Any]) -> None:
    """One condition of each is missing."""
    assert diagnosed(server(language(**changed))).verdict == "healthy"


def test_a_full_cache_wants_no_more_sequences() -> None:
    """Requests wait for a place, and the cache is what is short."""
    for more in ({"stalled": 3.0, "paused": 30}, {}):
        full = language(running=8.0, waiting=6.0, cache=0.95, **more)
        assert [finding.cause for finding in diagnosed(server(full)).findings] == ["kv-cache-full"]
        full = language(static=True, running=8.0, waiting=6.0, cache=0.3, **more)
        assert "static-batching" not in {finding.cause for finding in diagnosed(server(full)).findings}


def test_prompts_in_every_step_hold_up_tokens_too() -> None:
    """Nothing to compare with: longer than a token may take is enough."""
    always = language(prefill_ms=300.0, prefill_share=1.0, decode_ms=None, prompt_tokens_per_step=500.0)
    assert diagnosed(server(always)).verdict == "large-prefills"
    assert diagnosed(server(replace(always, language=replace(always.language, between_ms=None)))).verdict == "healthy"


def test_more_sequences_are_as_many_as_the_cache_has_room_for() -> None:
    """More sequences of today's length, and no more than there are requests."""
    for cache, waiting, sequences in ((0.6, 40.0, 12), (0.1, 4.0, 12)):
        (finding,) = diagnosed(server(language(running=8.0, waiting=waiting, cache=cache))).findings
        assert finding.change.startswith(f"serving.generation.max_sequences {sequences};")


def test_threads_of_an_engine_that_wait_for_cores() -> None:
    """Other programs on the cores explain slow steps, and come first."""
    slow = language(decode_ms=80.0, between_ms=85.0, prefill_ms=90.0)
    crowded = machine(server_cores=0.5, runnable=2.0, other_runnable=8.0, psi_cpu=0.99)
    causes = [finding.cause for finding in diagnosed(server(slow, machine=crowded)).findings]
    assert causes == ["oversubscribed-cores", "slow-decode"]


def test_the_way_to_a_language_model_is_held_against_its_first_token() -> None:
    """Triton's times of a language model do not count."""
    assert diagnosed(server(language(first_ms=60.0), trip_ms=20.0)).verdict == "healthy"
    assert diagnosed(server(language(first_ms=15.0), trip_ms=20.0)).verdict == "network-or-client"


def test_a_language_model_without_metrics_says_so() -> None:
    """Nothing is judged, and the report says what would show more."""
    diagnosis = diagnosed(server(replace(language(), language=None)))
    assert diagnosis.verdict == "healthy"
    assert diagnosis.notes == ("m is a language model: nothing is seen of it without its server's metrics (--metrics)",)


def test_a_long_answer_is_traffic() -> None:
    """Also where none began or ended while it was looked at."""
    idle = replace(language(), rate_per_s=0.0)
    assert not diagnosed(server(idle, probes=0)).notes


def test_a_slow_and_a_failing_replica_are_bad_ones() -> None:
    """A bad replica shows by our own requests, by the time in the server, by failures; equally slow servers do not."""
    good = server()
    for bad in (
        server(address="b:1", probe_ms=120.0),
        server(model(server_ms=200.0), address="b:1", probe_ms=None),
        server(address="b:1", probe_errors=("InferenceError: no",), probes=4),
    ):
        diagnosis = diagnosed(good, bad)
        assert diagnosis.verdict == "bad-replica", bad
        assert diagnosis.findings[0].where == "b:1"
    both = [server(address=a, probe_ms=120.0) for a in ("a:1", "b:1")]
    assert "bad-replica" not in {f.cause for f in diagnosed(*both).findings}


def test_a_server_that_nobody_calls_says_so() -> None:
    """Healthy, as far as can be seen."""
    diagnosis = diagnosed(server(model(rate_per_s=4.0, runs_per_s=4.0)))
    assert diagnosis.verdict == "healthy"
    assert any("no requests but our own" in note for note in diagnosis.notes)


def test_erlang_c_agrees_with_known_values() -> None:
    """M/M/1 at 50 %: a run's time; M/M/2 at 50 %: a third of it; beyond capacity there is no end."""
    assert erlang_wait_ms(50, 10, 1) == pytest.approx(10)
    assert erlang_wait_ms(100, 10, 2) == pytest.approx(10 / 3)
    assert erlang_wait_ms(200, 10, 2) == float("inf")
