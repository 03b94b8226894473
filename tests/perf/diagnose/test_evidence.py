"""Two looks and more become rates, waits, batches and use."""

from __future__ import annotations

import pytest

from tritonkit.client import ModelStatistics
from tritonkit.client.status import BatchStatistics
from tritonkit.perf.diagnose import (
    Look,
    MachineLook,
    ModelEvidence,
    ModelFacts,
    Observation,
    Probe,
    ServerEvidence,
    evidence_of,
)
from tritonkit.perf.diagnose.configuration import roles_of
from tritonkit.perf.diagnose.snapshot import ProcessLook

FACTS = ModelFacts("m", max_batch_size=8, instances=2, batches=True)


def counted(runs: int, size: int = 2, queue_ms: float = 5.0, run_ms: float = 20.0) -> ModelStatistics:
    """A model after a number of runs of `size` requests each."""
    requests = runs * size
    return ModelStatistics(
        "m",
        "1",
        requests,
        runs,
        requests,
        0,
        queue_s=requests * queue_ms / 1e3,
        compute_input_s=0.0,
        compute_infer_s=requests * run_ms / 1e3,
        compute_output_s=0.0,
        success_s=requests * (queue_ms + run_ms) / 1e3,
        batches=(BatchStatistics(size, runs, runs * run_ms / 1e3),),
    )


def looks(*runs: int, every_s: float = 1.0) -> tuple[Look, ...]:
    """A look each second, with the number of runs until then."""
    return tuple(Look("a:1", k * every_s, {"m": counted(n)}) for k, n in enumerate(runs))


def server(*looks_at: Look, probes: tuple[Probe, ...] = ()) -> ServerEvidence:
    """The evidence from looks at one server."""
    (evidence,) = evidence_of(Observation("m", {"m": FACTS}, {"a:1": looks_at}, probes)).servers
    return evidence


def model(*looks_at: Look) -> ModelEvidence:
    """The evidence about one model."""
    (evidence,) = server(*looks_at).parts
    return evidence


def test_rates_waits_and_batches_are_differences() -> None:
    """50 runs a second of two requests and 20 ms keep one of two instances busy."""
    evidence = model(*looks(1000, 1050, 1100))
    assert evidence.rate_per_s == pytest.approx(100)
    assert evidence.runs_per_s == pytest.approx(50)
    assert evidence.requests_per_run == evidence.items_per_run == 2
    assert (evidence.queue_ms, evidence.compute_ms) == (pytest.approx(5), pytest.approx(20))
    assert evidence.busy == pytest.approx(1)
    assert evidence.utilization == pytest.approx(0.5)
    assert evidence.in_flight == pytest.approx(2.5)
    assert evidence.sizes == {2: 100}
    assert evidence.runs_before == 1000


def test_a_model_that_was_loaded_again_begins_anew() -> None:
    """Counters that fall are no negative rates: what they show is all new."""
    evidence = model(*looks(1000, 1050, 30, 80))
    assert evidence.runs_per_s == pytest.approx((50 + 30 + 50) / 3)
    assert evidence.runs_before == 0
    assert evidence.sizes == {2: 80}


def test_without_two_looks_there_is_nothing() -> None:
    """No rate of one look, and none of a server that does not answer; why is kept."""
    assert server(*looks(10)).parts == ()
    gone = server(Look("a:1", 0.0, error="ServerUnavailable: refused"))
    assert gone.parts == ()
    assert gone.error == "ServerUnavailable: refused"
    idle = model(*looks(10, 10))
    assert idle.queue_ms is idle.compute_ms is idle.requests_per_run is None


def test_our_own_requests_have_medians_and_failures() -> None:
    """The way is the client's own share of them; failures are kept by their words."""
    probes = (*(Probe("a:1", k, 10.0 + k, 8.0 + k) for k in range(3)), Probe("a:1", 3, 5.0, 0.0, "InferenceError: no"))
    evidence = server(*looks(0, 50), probes=probes)
    assert (evidence.probe_ms, evidence.own_ms, evidence.probes) == (11.0, 2.0, 4)
    assert evidence.probe_errors == ("InferenceError: no",)


def test_the_machine_is_what_changed_on_it() -> None:
    """Cores of the server and of others, throttled periods, threads of a stub."""

    def look(at_s: float, busy_s: float, stub_s: float, periods: int, throttled: int) -> Look:
        threads = {11: stub_s / 2, 12: stub_s / 2, 13: 0.0}
        stub = ProcessLook(11, "m", stub_s, threads, dict.fromkeys(threads, int(100 * at_s)))
        machine = MachineLook(
            4,
            busy_s,
            0.0,
            (ProcessLook(10, "", 0.0, {10: 0.0}), stub),
            periods=periods,
            throttled=throttled,
            throttled_s=throttled * 0.05,
            memory_share=0.5,
            memory_hits=7,
        )
        return Look("a:1", at_s, {"m": counted(1)}, machine=machine)

    observation = Observation(
        "m", {"m": FACTS}, {"a:1": (look(0, 0, 0, 0, 0), look(5, 15, 5, 50, 25))}, runnable={11: 2.0}, runnable_all=5.0
    )
    machine = evidence_of(observation).servers[0].machine
    assert machine is not None
    assert (machine.server_cores, machine.other_cores) == (1.0, 2.0)
    assert (machine.throttled, machine.throttled_s) == (0.5, 1.25)
    assert machine.memory_hits == 0
    assert machine.waiting == 1.0
    assert machine.other_runnable == 3.0
    (stub,) = machine.stubs
    assert (stub.cores, stub.working_threads, stub.waits_per_s) == (1.0, 2, 100.0)


@pytest.mark.parametrize(
    ("steps", "roles"),
    [
        (("a", "b!", "c"), "before network after"),
        (("a", "b", "c"), "before network after"),
        (("tokenize", "b"), "before network"),
        (("a", "b"), "network network"),
        (("b!", "a"), "network after"),
        (("a", "b!", "mean_pool", "c!"), "before network after network"),
    ],
)
def test_steps_have_parts_by_backend_name_and_place(steps: tuple[str, ...], roles: str) -> None:
    """A step whose name ends with ! does not run in Python."""
    facts = {name: ModelFacts(name, python=not name.endswith("!")) for name in steps}
    roles_found = roles_of(ModelFacts("whole", steps=steps), facts)
    assert " ".join(roles_found[name] for name in steps) == roles
