"""Evidence made by hand for the rules' tests: a healthy server, of which a test changes what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tritonkit.perf.diagnose import (
    Diagnosis,
    Evidence,
    LanguageEvidence,
    LanguageFacts,
    ModelEvidence,
    ModelFacts,
    ServerEvidence,
    diagnose,
)
from tritonkit.perf.diagnose.gpu_evidence import GpuEvidence
from tritonkit.perf.diagnose.machine_evidence import MachineEvidence
from tritonkit.perf.load.gpu import GpuUse

__all__ = ["diagnosed", "gpu", "language", "machine", "model", "server"]

_FACTS = (
    *("max_batch_size", "instances", "batches", "sequences", "delay_ms", "open_axes", "caches", "language"),
    *("python", "gpu", "builds_plans"),
)


def model(name: str = "m", **changed: Any) -> ModelEvidence:
    """One quick model with little to do; facts of its configuration may be among what is changed."""
    facts = {key: changed.pop(key) for key in _FACTS if key in changed}
    quiet = ModelEvidence(
        "a:1",
        ModelFacts(name, **({"max_batch_size": 8} | facts)),
        rate_per_s=10.0,
        runs_per_s=10.0,
        requests_per_run=1.0,
        items_per_run=1.0,
        queue_ms=0.1,
        server_ms=3.0,
        compute_ms=2.0,
        busy=0.02,
        in_flight=0.03,
        in_flight_range=(0.0, 0.1),
        early_queue_ms=0.1,
        late_queue_ms=0.1,
        early_compute_ms=2.1,
        late_compute_ms=2.0,
        runs_before=1000,
    )
    return replace(quiet, **changed)


def language(static: bool = False, **changed: Any) -> ModelEvidence:
    """A language model of 8 places and 512 tokens a step, with two sequences that run well; what Triton says of its
    runs would be bad news of another model."""
    quiet = LanguageEvidence(
        running=2.0,
        waiting=0.0,
        stalled=0.0,
        cache=0.2,
        tokens_per_s=100.0,
        prompt_tokens_per_s=20.0,
        ended=10,
        busy=0.9,
        decode_ms=20.0,
        prefill_ms=40.0,
        prefill_share=0.02,
        prompt_tokens_per_step=50.0,
        first_ms=60.0,
        between_ms=22.0,
        between_p95_ms=45.0,
    )
    facts = LanguageFacts(max_sequences=8, max_batched_tokens=512, static=static)
    return replace(
        model(language=facts, compute_ms=500.0, queue_ms=900.0, server_ms=1400.0, busy=1.0, in_flight=5.0),
        language=replace(quiet, **changed),
    )


def machine(**changed: Any) -> MachineEvidence:
    """Two cores, hardly used."""
    quiet = MachineEvidence(
        2,
        5.0,
        server_cores=0.1,
        other_cores=0.1,
        runnable=0.1,
        other_runnable=0.1,
        psi_cpu=0.05,
        psi_memory=0.0,
        periods=50,
        throttled=0.0,
        throttled_s=0.0,
        memory_share=0.3,
        memory_limit_mib=8000.0,
        shm_free_mib=60.0,
        shm_mib=64.0,
    )
    return replace(quiet, **changed)


def gpu(busy: float, **changed: Any) -> GpuEvidence:
    """An H100 that is used this share of the time."""
    use = GpuUse("GPU-1", busy, 5.6 * (1 << 30), 80 * (1 << 30), 577.0, 700.0, None)
    return replace(GpuEvidence(use), **changed)


def server(*parts: ModelEvidence, address: str = "a:1", **changed: Any) -> ServerEvidence:
    """A server of these models, each called by itself unless `entries` says otherwise."""
    ran = parts or (model(),)
    quiet = ServerEvidence(address, 5.0, ran, ran, trip_ms=0.5, probe_ms=3.5, own_ms=0.2, probes=20, machine=machine())
    return replace(quiet, **changed)


def diagnosed(*servers: ServerEvidence) -> Diagnosis:
    """The rules' diagnosis of these servers."""
    return diagnose(Evidence(servers or (server(),)))
