"""Every cause that `tritonkit diagnose` names, with how it is provoked on a real server: the table of docs/diagnose.md.

Each provocation is at least several times as strong as the rule's threshold.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.server.at_once import at_once
from tests.server.diagnose.language import Speaker, language_model, speakers
from tests.server.diagnose.load import Inputs, at_rate, callers, delayed, hogs, in_cgroup, may_make_cgroups, vector
from tests.server.language.test_llm import gauge
from tests.server.models import ModelText, ensemble, write_repository
from tests.waiting import eventually
from tritonkit.client import Client, Limit
from tritonkit.machine import cores
from tritonkit.perf.diagnose import TARGET_MS, CallLog
from tritonkit.perf.diagnose.machine import server_processes
from tritonkit.serve import Endpoint, serve

__all__ = ["CASES", "Bench", "Case", "Situation"]

CODE = """import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.runs = 0
        {setup}

    def execute(self, requests):
        self.runs += 1
        {work}
        tensors = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in tensors]
"""
SLEEP = "time.sleep({})"
BURN = "end = time.thread_time() + {}\n        while time.thread_time() < end: pass"


@dataclass(frozen=True)
class Situation:
    """The servers to look at and requests of our own; `lacks` says why a machine cannot provoke the case."""

    addresses: tuple[str, ...] = ()
    model: str = "m"
    inputs: Inputs | None = field(default_factory=vector)
    metrics: Mapping[str, str] = field(default_factory=dict)
    calls: CallLog | None = None
    lacks: str = ""


@dataclass
class Bench:
    """A folder for repositories, and the project."""

    folder: Path
    project: Path
    count: int = 0

    @contextlib.contextmanager
    def serve(self, **models: ModelText) -> Iterator[Endpoint]:
        """A server of these models."""
        self.count += 1
        repository = write_repository(self.folder / f"repository{self.count}", models)
        with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=self.project) as endpoint:
            yield endpoint


Provoke = Callable[[Bench], AbstractContextManager[Situation]]


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    cause: str
    how: str
    evidence: str
    provoke: Provoke
    target_ms: float = TARGET_MS
    of_model: bool = False
    """Whether only what is said of the model counts: it computes, and where others want the cores that may be said
    first, and truly."""
    window_s: float = 5.0
    """The seconds for which it is watched."""


def model(
    work: str,
    most: int = 8,
    instances: int = 1,
    batching: str = "",
    dims: str = "4",
    more: str = "",
    setup: str = "pass",
) -> ModelText:
    """A Python model that does `work` in each run, however many requests share it."""
    batcher = f"dynamic_batching {{ {batching} }}\n" if batching else ""
    tensors = f"""input {{ name: "x" data_type: TYPE_FP32 dims: [{dims}] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [{dims}] }}
"""
    config = f"""backend: "python"
max_batch_size: {most}
{tensors}instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
{batcher}{more}{_warm_up(dims)}"""
    return ModelText(config, CODE.format(work=work, setup=setup))


def _warm_up(dims: str) -> str:
    """A first request before the server is ready, which Python of one's own gets only if it asks."""
    sample = dims.replace("-1", "1")
    value = f"data_type: TYPE_FP32 dims: [{sample}] zero_data: true"
    return f"""model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "x" value {{ {value} }} }} }}
"""


def slept(seconds: float) -> str:
    """Work that takes so long and no core."""
    return SLEEP.format(seconds)


def burnt(seconds: float) -> str:
    """Work that takes a core for this time."""
    return BURN.format(seconds)


def situation(endpoint: Endpoint, **more: object) -> Situation:
    """The situation of one server."""
    return Situation((endpoint.grpc,), metrics={endpoint.grpc: endpoint.metrics}, **more)  # type: ignore[arg-type]


DELAY = "max_queue_delay_microseconds: {}"


def closed(count: int, made: ModelText, **how: object) -> Provoke:
    """A number of callers of one model."""

    @contextlib.contextmanager
    def provoke(bench: Bench) -> Iterator[Situation]:
        with bench.serve(m=made) as endpoint, callers([endpoint.grpc], "m", count, **how):  # type: ignore[arg-type]
            yield situation(endpoint)

    return provoke


def opened(rate_per_s: float, **models: ModelText) -> Provoke:
    """Requests for `m` at a rate."""

    @contextlib.contextmanager
    def provoke(bench: Bench) -> Iterator[Situation]:
        with bench.serve(**models) as endpoint, at_rate(endpoint.grpc, "m", rate_per_s):
            yield situation(endpoint)

    return provoke


def spoken(*callers: Speaker, wide: int = 0, **parameters: str) -> Provoke:
    """Callers of one language model."""

    @contextlib.contextmanager
    def provoke(bench: Bench) -> Iterator[Situation]:
        with (
            language_model(bench.folder / "language", bench.project, wide, **parameters) as endpoint,
            speakers(endpoint.grpc, *callers),
        ):
            # The metrics are brought up to date twice a second: the first look is to see some of the load.
            eventually(lambda: gauge(endpoint, "tokens_total", "m") > 5, "the callers get tokens")
            yield situation(endpoint, inputs=None)

    return provoke


def three(before: float, network: float, after: float) -> Provoke:
    """An ensemble of three steps that take so long."""
    return opened(
        2.0,
        digits_decode_image=model(slept(before)),
        digits_network=model(slept(network)),
        digits_top_k=model(slept(after)),
        m=ensemble("digits_decode_image", "digits_network", "digits_top_k"),
    )


@contextlib.contextmanager
def oversubscribed(bench: Bench) -> Iterator[Situation]:
    """Busy programs on the machine of a server that computes."""
    with (
        bench.serve(m=model(burnt(0.03), most=1, instances=cores())) as endpoint,
        callers([endpoint.grpc], "m", cores()),
        hogs(5 * cores()),
    ):
        yield situation(endpoint)


@contextlib.contextmanager
def own_threads(bench: Bench) -> Iterator[Situation]:
    """Far more instances that compute than there are cores."""
    count = 4 * cores()
    with bench.serve(m=model(burnt(0.05), most=1, instances=count)) as endpoint, callers([endpoint.grpc], "m", count):
        yield situation(endpoint)


def limited(controller: str, made: ModelText, count: int, *limits: Mapping[str, str]) -> Provoke:
    """A server in a cgroup with limits; those of version 1, then those of version 2."""

    @contextlib.contextmanager
    def provoke(bench: Bench) -> Iterator[Situation]:
        if not may_make_cgroups(controller):
            yield Situation(lacks=f"a cgroup of our own for {controller}: only root may make it")
            return
        version = 0 if Path("/sys/fs/cgroup", controller).is_dir() else 1
        with (
            bench.serve(m=made) as endpoint,
            in_cgroup(list(server_processes(endpoint.pid)), controller, **limits[version]),
            callers([endpoint.grpc], "m", count),
        ):
            yield situation(endpoint)

    return provoke


@contextlib.contextmanager
def short_of_memory(bench: Bench) -> Iterator[Situation]:
    """A model that goes through a file four times as large as the container's memory."""
    file = bench.folder / "large"
    # The first request, before the server is ready, finds no file: who reads first has it on his account.
    file.touch()
    work = f'file = open("{file}", "rb")\n        while file.read(1 << 20): pass\n        file.close()'
    limit = str(64 << 20)
    limits = {"memory__limit_in_bytes": limit}, {"memory__max": limit}
    with limited("memory", model(work, most=1), 1, *limits)(bench) as made:
        with file.open("wb") as large:
            for _ in range(256):
                large.write(os.urandom(1 << 20))
            large.flush()
            os.fsync(large.fileno())
            os.posix_fadvise(large.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield made


@contextlib.contextmanager
def short_of_shared_memory(bench: Bench) -> Iterator[Situation]:
    """A server with a small /dev/shm of its own that something else has filled."""
    unshare = shutil.which("unshare")
    if unshare is None or os.getuid():
        yield Situation(lacks="a /dev/shm of its own: only root may mount it")
        return
    repository = write_repository(bench.folder / "small", {"m": model(slept(0.002))})
    command = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@" --grpc-port 0 --metrics-port 0'
    project = bench.folder / "project"
    project.mkdir()
    for name in ("python_backends", ".venv-server", "models"):
        (project / name).symlink_to(bench.project / name)
    process = subprocess.Popen(
        [
            unshare,
            "-m",
            "sh",
            "-c",
            command,
            "sh",
            sys.executable,
            "-m",
            "tritonkit.cli",
            "serve",
            "--repository",
            str(repository),
            "--root",
            str(project),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        from tritonkit.serve.runs import find_runs

        (run,) = eventually(lambda: find_runs(project), "the server is ready")
        with callers([run["grpc"]], "m", 1, pause_s=0.05):
            shm = Path(f"/proc/{process.pid}/root/dev/shm")
            (shm / "filler").write_bytes(bytes(shutil.disk_usage(shm).free - (1 << 20)))
            yield Situation((run["grpc"],))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextlib.contextmanager
def stopped_replica(bench: Bench) -> Iterator[Situation]:
    """Two servers, of which one stands still."""
    with ExitStack() as stack:
        both = [stack.enter_context(bench.serve(m=model(slept(0.002)))) for _ in range(2)]
        addresses = [server.grpc for server in both]
        stack.enter_context(callers(addresses, "m", 4, pause_s=0.05))
        os.kill(both[1].pid, signal.SIGSTOP)
        try:
            yield Situation(tuple(addresses))
        finally:
            os.kill(both[1].pid, signal.SIGCONT)


@contextlib.contextmanager
def slow_replica(bench: Bench) -> Iterator[Situation]:
    """Three servers, of which one takes fifty times as long."""
    with ExitStack() as stack:
        times = (0.004, 0.2, 0.004)
        every = [stack.enter_context(bench.serve(m=model(slept(s)))) for s in times]
        addresses = [server.grpc for server in every]
        stack.enter_context(callers(addresses, "m", 3, pause_s=0.1))
        yield Situation(tuple(addresses))


@contextlib.contextmanager
def far_away(bench: Bench) -> Iterator[Situation]:
    """A proxy before the server that holds everything back."""
    with (
        bench.serve(m=model(slept(0.002))) as endpoint,
        delayed(endpoint.grpc, 0.05) as address,
        callers([address], "m", 2),
    ):
        yield Situation((address,))


FAST = three(0.001, 0.002, 0.001)
POOL = "from concurrent.futures import ThreadPoolExecutor\n        self.pool = ThreadPoolExecutor(4)"
IN_THREADS = "list(self.pool.map(lambda _: sum(k * k for k in range(400_000)), range(4)))"


@contextlib.contextmanager
def narrow_client(bench: Bench) -> Iterator[Situation]:
    """Many threads share a client that lets one request out at a time."""
    log = CallLog()

    def call(_: int, ended: threading.Event) -> None:
        while not ended.is_set():
            client.model("m").predict(inputs=vector())

    with (
        bench.serve(m=model(slept(0.01))) as endpoint,
        Client(endpoint.grpc, limit=Limit(1), observers=[log]) as client,
        at_once(16, call),
    ):
        yield Situation((endpoint.grpc,), inputs=None, calls=log)


@contextlib.contextmanager
def quick_beside_others(bench: Bench) -> Iterator[Situation]:
    """A healthy server on busy cores."""
    with FAST(bench) as made, hogs(cores()):
        yield made


CASES: tuple[Case, ...] = (
    Case("healthy", "an ensemble of three quick steps, 2 requests/s", "", FAST),
    Case("healthy", "the same next to a busy program for each core", "", quick_beside_others),
    Case("healthy", "a language model with room for all, two callers", "", spoken(*[Speaker(200)] * 2), of_model=True),
    Case(
        "bad-replica", "one of two servers is stopped (SIGSTOP)", "no answer, while the other answers", stopped_replica
    ),
    Case(
        "bad-replica",
        "one of three servers takes 200 ms a run, the others 4 ms",
        "requests of our own and times in each server",
        slow_replica,
    ),
    Case(
        "cold-start",
        "the first twelve runs take 400 ms each, later ones 2 ms",
        "time of a run at first and now",
        closed(1, model("time.sleep(0.4 if self.runs < 13 else 0.002)")),
        window_s=12.0,
    ),
    Case(
        "throttled",
        "a CPU quota of a fifth of a core, for a model that computes",
        "the cgroup's periods and throttled time",
        limited(
            "cpu",
            model(burnt(0.03), most=1),
            2,
            {"cpu__cfs_period_us": "100000", "cpu__cfs_quota_us": "20000"},
            {"cpu__max": "20000 100000"},
        ),
    ),
    Case(
        "memory",
        "a memory limit of 64 MiB, and a model that reads a file of 256 MiB in each run",
        "the cgroup's hits at its limit",
        short_of_memory,
    ),
    Case(
        "shared-memory",
        "a /dev/shm of 64 MiB that is filled up to the last",
        "what is free in the server's /dev/shm",
        short_of_shared_memory,
    ),
    Case(
        "oversubscribed-cores",
        "five busy programs for each core, next to a model that computes",
        "threads that want a core, of the server and of others",
        oversubscribed,
    ),
    Case(
        "oversubscribed-cores",
        "four instances that compute for each core",
        "threads that want a core, of the server and of others",
        own_threads,
    ),
    Case(
        "network-or-client",
        "a proxy before the server that adds 50 ms each way",
        "time of calls that run no model, time in the server",
        far_away,
    ),
    Case(
        "network-or-client",
        "sixteen threads share a client that lets one request out at a time",
        "the client's own times of its calls (`CallLog`)",
        narrow_client,
    ),
    Case(
        "gil",
        "a step that computes in four threads of Python",
        "the stub's threads: CPU of each, how often each waits",
        closed(2, model(IN_THREADS, most=1, setup=POOL)),
    ),
    Case(
        "static-batching",
        "static batches: one caller of long answers, four of short ones",
        "running and waiting sequences, the configuration",
        spoken(Speaker(3000), *[Speaker(20)] * 4, batching="static", max_sequences="8", cache_mib="2"),
        of_model=True,
    ),
    Case(
        "kv-cache-full",
        "eight callers whose answers take half of the cache each, and whose prompts fill it",
        "the cache's use, pauses, sequences that steps leave out",
        spoken(*[Speaker(2000, prompt=450)] * 8, max_sequences="8", cache_mib="1"),
        of_model=True,
    ),
    Case(
        "places-taken",
        "twelve callers of four places, and a cache that is nearly empty",
        "running and waiting sequences, the cache's use",
        spoken(*[Speaker(600)] * 12, max_sequences="4"),
        of_model=True,
    ),
    Case(
        "large-prefills",
        "three callers of long answers next to two of prompts of 8000 tokens, with steps of as"
        " many; a token may take 5 ms",
        "time of steps with and without prompts",
        spoken(*[Speaker(2000)] * 3, *[Speaker(1, prompt=8000)] * 2, max_batched_tokens="8192", context="8192"),
        target_ms=5.0,
        of_model=True,
    ),
    # A model's metrics are brought up to date twice a second, which a short window would see.
    Case(
        "slow-decode",
        "a caller of long answers of a network with a large matrix, where a token may take 1 ms",
        "the engine's time, steps, time between tokens",
        spoken(Speaker(2000), wide=2_000_000),
        target_ms=1.0,
        of_model=True,
        window_s=15.0,
    ),
    Case(
        "cache-misses",
        "the response cache is on, and no two requests are the same",
        "lookups and hits",
        closed(
            1,
            model(slept(0.02), more="response_cache { enable: true }\n"),
            inputs=lambda caller, number: vector(float(number)),
        ),
    ),
    Case(
        "queue-delay-too-long",
        "a delay of 200 ms before runs of 2 ms, two callers",
        "queue, delay, requests a run, busy instances",
        closed(2, model(slept(0.002), most=16, batching=DELAY.format(200_000))),
    ),
    Case(
        "shapes-differ",
        "eight callers, each with another length",
        "requests a run though they wait, open axes",
        closed(
            8,
            model(slept(0.02), batching=DELAY.format(100), dims="-1"),
            inputs=lambda caller, number: vector(0.0, 4 + caller),
        ),
    ),
    Case(
        "no-dynamic-batching",
        "eight callers of a model that takes batches, without a batcher",
        "requests a run though they wait, the configuration",
        closed(8, model(slept(0.02))),
    ),
    Case(
        "delay-too-short",
        "four callers of four instances with a batcher that does not wait",
        "requests a run, busy instances, rate, delay",
        closed(4, model(slept(0.05), instances=4, batching=DELAY.format(0)), jitter_s=0.01),
    ),
    Case(
        "too-few-instances",
        "four callers of one instance that takes 30 ms",
        "busy instances, queue, cores in use",
        closed(4, model(slept(0.03), most=1)),
    ),
    Case(
        "rate-above-capacity",
        "as many instances as cores, at three times the rate that they can do",
        "busy instances, a queue that grows",
        opened(3 * cores() / 0.05, m=model(slept(0.05), most=1, instances=cores())),
    ),
    Case(
        "serial-callers",
        "one caller of a model that batches, who waits for each answer",
        "requests a run, requests in the server in each interval",
        closed(1, model(slept(0.03), batching=DELAY.format(1000))),
    ),
    Case(
        "decoding",
        "an ensemble whose first step takes 150 ms of 160",
        "time of each step's runs",
        three(0.15, 0.005, 0.005),
    ),
    Case(
        "post-processing",
        "an ensemble whose last step takes 150 ms of 160",
        "time of each step's runs",
        three(0.005, 0.005, 0.15),
    ),
    Case(
        "model-execution",
        "an ensemble whose network takes 150 ms of 160",
        "time of each step's runs",
        three(0.005, 0.15, 0.005),
    ),
)
