"""Rules about requests that wait for an instance."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tritonkit.perf.diagnose.evidence import Evidence, ModelEvidence, ServerEvidence
from tritonkit.perf.diagnose.finding import Finding
from tritonkit.perf.diagnose.machine_evidence import MachineEvidence
from tritonkit.perf.diagnose.rules.common import full, grows, may_add, parts, waits

__all__ = ["erlang_wait_ms", "rate_above_capacity", "too_few_instances"]


def erlang_wait_ms(rate_per_s: float, run_ms: float, instances: int) -> float:
    """The mean wait of a queue with Poisson arrivals and exponential runs (Erlang's C formula);
    infinite where the rate is above what the instances can do."""
    offered = rate_per_s * run_ms / 1e3
    if offered >= instances:
        return math.inf
    term = total = 1.0
    for k in range(1, instances):
        term *= offered / k
        total += term
    last = term * offered / instances * instances / (instances - offered)
    return last / (total + last) * run_ms / (instances - offered)


def too_few_instances(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """All instances run nearly all the time, requests wait, and there are cores or a GPU for more instances.

    "Nearly all" means 85 %, "wait" 30 % of a run and 5 ms. There are cores if there are fewer instances than cores, and
    the server leaves half a core unused; there is a GPU if the model runs on one that is used less than 70 %.
    """
    for server, model in parts(evidence):
        if not (full(model) and waits(model) and may_add(server, model)):
            continue
        if server.machine is None and grows(model):
            continue  # rate-above-capacity: what the machine could carry is not known
        machine = server.machine
        more = model.facts.instances + 1 if machine is None or model.facts.gpu else machine.cores
        yield Finding(
            "too-few-instances",
            model.name,
            _queue_share(model),
            (*_queue(model), _room(server, model)),
            f"more instances: serving.instance_group: [{{count: {more}}}] in its spec",
            _gain(model, more),
        )


def rate_above_capacity(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """All instances run nearly all the time, the queue grows, and no core is left for more instances.

    A queue grows if waits are a third longer at the end than at the start, if the number of waiting requests rises by
    half a second of arrivals, or if a full queue refused some.
    """
    for server, model in parts(evidence):
        if not (full(model) and waits(model) and grows(model)):
            continue
        if server.machine is not None and may_add(server, model):
            continue
        early, late = model.early_queue_ms, model.late_queue_ms
        grown = (
            f"the wait grew from {early:.0f} to {late:.0f} ms"
            if early is not None and late is not None
            else "the queue grew"
        )
        refused = f"; a full queue refused {model.rejected}" if model.rejected else ""
        capacity = _capacity(model, model.facts.instances)
        yield Finding(
            "rate-above-capacity",
            model.name,
            _queue_share(model),
            (*_queue(model), grown + refused),
            "another replica, or a faster variant; until then bound the queue (max_queue_size) so that callers"
            " learn immediately that there is no room (on a Triton before 26.08 only under `tritonkit serve`, whose"
            " guard keeps a bounded queue from standing still)",
            f"one replica carries about {capacity:.0f} requests/s (instances x requests a run / run time), and"
            " each further one the same",
        )


def _queue(model: ModelEvidence) -> tuple[str, ...]:
    some = "instance is" if model.facts.instances == 1 else "instances are"
    sentences = [
        f"its {model.facts.instances} {some} busy {min(1.0, model.utilization):.0%} of the time",
        f"requests wait {model.queue_ms:.0f} ms for a run of {model.compute_ms:.0f} ms",
    ]
    if model.pending is not None:
        sentences.append(f"{model.pending[1]:.0f} requests wait now")
    return tuple(sentences)


def _room(server: ServerEvidence, model: ModelEvidence) -> str:
    if model.facts.gpu and server.gpu_busy is not None:
        return f"the GPU is used {server.gpu_busy:.0%}"
    return _cores(server.machine)


def _cores(machine: MachineEvidence | None) -> str:
    if machine is None:
        return "the cores of its machine are not seen from here"
    return f"the server uses {machine.server_cores:.2f} of {machine.cores} cores"


def _queue_share(model: ModelEvidence) -> float:
    queue, run = model.queue_ms or 0.0, model.compute_ms or 0.0
    return queue / (queue + run)


def _capacity(model: ModelEvidence, instances: int) -> float:
    run_ms = model.compute_ms or math.inf
    return instances * (model.requests_per_run or 1.0) * 1e3 / run_ms


def _gain(model: ModelEvidence, instances: int) -> str:
    run_ms = model.compute_ms or 0.0
    now, then = _capacity(model, model.facts.instances), _capacity(model, instances)
    batch = model.requests_per_run or 1.0
    wait = erlang_wait_ms(model.rate_per_s / batch, run_ms, instances)
    text = f"capacity from about {now:.0f} to {then:.0f} requests/s (instances x requests a run / run time)"
    if wait < (model.queue_ms or 0.0):
        text += f"; at today's rate a wait of {wait:.0f} ms instead of {model.queue_ms:.0f} ms (Erlang C)"
    return text
