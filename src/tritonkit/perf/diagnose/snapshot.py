"""One look at a server and its machine, as plain values: all that follows works on these and reads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritonkit.client import ModelStatistics

__all__ = ["LanguageFacts", "LanguageLook", "Look", "MachineLook", "ModelFacts", "Observation", "Probe", "ProcessLook"]


@dataclass(frozen=True, slots=True)
class LanguageFacts:
    """Configuration of a language model of the backend `llm`: sequences in the running batch, tokens of a step, and
    whether a batch runs until its last sequence has ended."""

    max_sequences: int
    max_batched_tokens: int
    static: bool = False


@dataclass(frozen=True, slots=True)
class LanguageLook:
    """A language model's metrics, all versions together.

    Args:
        gauges: by name without `tritonkit_llm_`.
        counters: since the model was loaded, by name and the value of its own label, "" where it has none; the
            buckets of a histogram are labelled by their upper bound in seconds.
    """

    gauges: Mapping[str, float]
    counters: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The parts of a model's configuration that matter here.

    Args:
        python: whether it runs in Triton's Python backend.
        batches: whether it has `dynamic_batching`. sequences: whether it has `sequence_batching`.
        delay_ms: `max_queue_delay_microseconds`.
        open_axes: names of inputs whose shape may differ from request to request.
        caches: whether it uses the response cache.
        bounded: whether its queue has a bound: a size, a timeout or priorities.
        in_flight: the most concurrent requests of an ensemble whose bound the guard holds; 0 for no bound.
        steps: of an ensemble, in order.
        calls: models that its Python calls, according to the spec (network.calls).
        language: the configuration of a language model.
    """

    name: str
    max_batch_size: int = 0
    instances: int = 1
    python: bool = False
    batches: bool = False
    sequences: bool = False
    delay_ms: float = 0.0
    open_axes: tuple[str, ...] = ()
    caches: bool = False
    bounded: bool = False
    in_flight: int = 0
    steps: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    language: LanguageFacts | None = None


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """A process of the server: seconds of CPU, also of its ended threads, and by living thread; `model` is that of a
    Python stub. `waits` counts, by thread, how often it gave its core away to wait for something."""

    pid: int
    model: str
    cpu_s: float
    threads: Mapping[int, float]
    waits: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineLook:
    """The server's machine; counters are since ever, None is what this machine does not tell.

    Args:
        busy_s: of all cores. own_s: of this process, which is not the server's doing.
        psi_cpu_s, psi_memory_s: in which some task waited for it (pressure stall information).
        periods, throttled: of the cgroup's CPU quota. throttled_s: its tasks stood still.
        memory_share: of the cgroup's limit, or of the machine's memory.
        memory_hits: how often the cgroup ran into its limit. oom_kills: in it.
        shm_free_mib, shm_mib: of the server's own /dev/shm.
    """

    cores: int
    busy_s: float
    own_s: float
    processes: tuple[ProcessLook, ...]
    psi_cpu_s: float | None = None
    psi_memory_s: float | None = None
    periods: int | None = None
    throttled: int | None = None
    throttled_s: float | None = None
    memory_share: float | None = None
    memory_limit_mib: float | None = None
    memory_hits: int | None = None
    oom_kills: int | None = None
    shm_free_mib: float | None = None
    shm_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """One server at one moment of the monotonic clock.

    Args:
        models: counters by model, all versions together.
        pending: requests that wait, by model; None where its metrics are not read.
        rejected: requests refused by a full queue since ever, likewise.
        language: metrics of language models, likewise.
        error: why there are no counters.
    """

    address: str
    at_s: float
    models: Mapping[str, ModelStatistics] = field(default_factory=dict)
    pending: Mapping[str, float] | None = None
    rejected: Mapping[str, float] | None = None
    language: Mapping[str, LanguageLook] | None = None
    machine: MachineLook | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """A request as its caller saw it: `total_ms`, of which `wait_ms` for the server; `error` if it failed."""

    address: str
    at_s: float
    total_ms: float
    wait_ms: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """All that was seen of some servers over a while.

    Args:
        entry: the model asked about; empty for all.
        facts: by model. looks: in order of time, by address.
        probes: requests for `entry`. calls: those of the program's own client, likewise.
        round_trips_ms: of calls without a model, by address.
        runnable: by process, how many of its threads ran or waited for a core, on average.
        runnable_all: of the whole machine, this process left out.
    """

    entry: str
    facts: Mapping[str, ModelFacts]
    looks: Mapping[str, tuple[Look, ...]]
    probes: tuple[Probe, ...] = ()
    calls: tuple[Probe, ...] = ()
    round_trips_ms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    runnable: Mapping[int, float] = field(default_factory=dict)
    runnable_all: float | None = None
    notes: tuple[str, ...] = ()
