"""One look at a server and its machine, as plain values; the rest of the room works on these alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritonkit.client import ModelStatistics
from tritonkit.perf.diagnose.clocks import ClockLook
from tritonkit.perf.load.gpu import GpuLook

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
        gauges: values of gauges, by name without `tritonkit_llm_`.
        counters: counts since the model was loaded, by name and the value of its own label, "" where it has none. The
            buckets of a histogram are labeled with their upper bound in seconds.
    """

    gauges: Mapping[str, float]
    counters: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The parts of a model's configuration that matter here.

    Args:
        python: whether it runs in Triton's Python backend.
        gpu: whether its instances run on a GPU.
        builds_plans: whether ONNX Runtime runs it on a GPU without CUDA graphs, so that a batch size needs plans.
        batches: whether it has `dynamic_batching`. sequences: whether it has `sequence_batching`.
        delay_ms: `max_queue_delay_microseconds`.
        open_axes: names of inputs whose shape may differ from request to request.
        caches: whether it uses the response cache.
        bounded: whether its queue has a bound: a size, a timeout or priorities.
        in_flight: the most concurrent requests of an ensemble whose bound the guard holds; 0 for no bound.
        steps: steps of an ensemble, in order.
        calls: models that its Python calls, according to the spec (network.calls).
        language: the configuration of a language model.
    """

    name: str
    max_batch_size: int = 0
    instances: int = 1
    python: bool = False
    gpu: bool = False
    builds_plans: bool = False
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
    Python stub. `waits` is the number of times that each thread gave its core away to wait."""

    pid: int
    model: str
    cpu_s: float
    threads: Mapping[int, float]
    waits: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineLook:
    """The server's machine. Counters are cumulative; None stands for values that this machine does not report.

    Args:
        busy_s: processor time of all cores. own_s: processor time of this process, which is not the server's.
        psi_cpu_s, psi_memory_s: seconds in which some task waited for the CPU or for memory (pressure stall
            information).
        periods, throttled: periods of the cgroup's CPU quota, and those in which it was used up. throttled_s: seconds
            for which the cgroup's tasks stood still.
        memory_share: the used share of the cgroup's limit, or of the machine's memory.
        memory_hits: the number of times the cgroup ran into its limit. oom_kills: kills in it for lack of memory.
        shm_free_mib, shm_mib: free and total size of the server's own /dev/shm.
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
        pending: waiting requests by model; None if the server's metrics are not read.
        rejected: all requests that a full queue has refused so far, likewise.
        language: metrics of language models, likewise.
        gpus: GPUs by UUID, likewise; empty for a server without GPUs.
        error: the reason why there are no counters.
    """

    address: str
    at_s: float
    models: Mapping[str, ModelStatistics] = field(default_factory=dict)
    pending: Mapping[str, float] | None = None
    rejected: Mapping[str, float] | None = None
    language: Mapping[str, LanguageLook] | None = None
    machine: MachineLook | None = None
    error: str = ""
    gpus: Mapping[str, GpuLook] | None = None


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
    """Everything observed of some servers over a while.

    Args:
        entry: the observed model; empty for all.
        facts: the configuration facts by model. looks: looks in order of time, by address.
        probes: our own requests for `entry`. calls: requests of the program's own client for it.
        round_trips_ms: round-trip times of calls without a model, by address.
        runnable: the mean number of a process's threads that ran or waited for a core, by process ID.
        runnable_all: the same number for the whole machine, without this process.
        clocks: looks at the clocks of this machine's GPUs, by UUID.
    """

    entry: str
    facts: Mapping[str, ModelFacts]
    looks: Mapping[str, tuple[Look, ...]]
    probes: tuple[Probe, ...] = ()
    calls: tuple[Probe, ...] = ()
    round_trips_ms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    runnable: Mapping[int, float] = field(default_factory=dict)
    runnable_all: float | None = None
    clocks: Mapping[str, tuple[ClockLook, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
