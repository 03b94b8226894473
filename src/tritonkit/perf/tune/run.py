"""A search from a spec to its outcome: variants, a server, a load generator, and earlier results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tritonkit.client import Client
from tritonkit.client.wire.channel import is_loopback, parse_address
from tritonkit.errors import UsageError
from tritonkit.machine import cores
from tritonkit.perf.load.network import network_inputs
from tritonkit.perf.load.openloop import Generator, Slo
from tritonkit.perf.load.workloads import prepare
from tritonkit.perf.tune.at_rate import SearchAtRate
from tritonkit.perf.tune.candidates import find_artifacts, find_gpus, find_space, refuse
from tritonkit.perf.tune.client_batching import ClientBatching, best_client_batching
from tritonkit.perf.tune.objective import Objective
from tritonkit.perf.tune.outcome import Evaluation, Listener, Outcome
from tritonkit.perf.tune.remote import Remote
from tritonkit.perf.tune.search import FAILURES, Search
from tritonkit.perf.tune.server import Embedded, Served
from tritonkit.perf.tune.space import Point, Space
from tritonkit.perf.tune.state import load_state, save_state, state_file
from tritonkit.repository.export import Artifact
from tritonkit.repository.modelspec import Spec, load_named
from tritonkit.repository.modelspec.base import Target
from tritonkit.repository.optimize.variants import for_target
from tritonkit.serve.runs import find_metrics
from tritonkit.serve.stub_python import environments_of

__all__ = ["Ready", "TunePlan", "prepared", "tune"]


@dataclass(frozen=True)
class TunePlan:
    """Settings of a search.

    Args:
        root: the project.
        model: a name of a folder of `models/`.
        slo: the target.
        variants: names of variants; by default the one that is served. `spec` and `all` mean the same as for a build.
        budget_s: the time for the whole search.
        trial_s: duration of a run under load.
        fresh: whether to forget the results of earlier searches.
        objective: the objective to optimize.
        client_batching: whether to check in the remaining time if clients that batch hold a higher rate.
        target: the target of a build whose settings and servers are searched: `cpu`; `gpu`, on a machine with a GPU;
            `nvidia` only at an address.
        address: gRPC address, host:port, of a running server that serves this project's repository; None: an embedded
            server is started.
        admin_key: the key with which that server lets models be loaded.
        allow_plaintext: send that key without TLS to another machine.
        cores: the number of cores of that server's machine; None: this machine's, if the address is a local one.
    """

    root: Path
    model: str
    slo: Slo
    variants: tuple[str, ...] = ()
    budget_s: float = 600.0
    trial_s: float = 4.0
    fresh: bool = False
    objective: Objective = field(default_factory=Objective)
    address: str | None = None
    admin_key: str | None = field(default=None, repr=False)
    allow_plaintext: bool = False
    cores: int | None = None
    client_batching: bool = False
    target: Target = "cpu"

    def __post_init__(self) -> None:
        if self.address is None:
            if self.target == "nvidia":
                raise UsageError(
                    "--target nvidia",
                    found="no --address",
                    wanted="--address too: only tritonkit's own server is started, and that serves target cpu or gpu",
                )
            if self.cores is not None:
                raise UsageError(
                    "--cores",
                    found="no --address",
                    wanted="--address too: it says the cores of a running server's machine",
                )
            return
        if self.variants:
            raise UsageError(
                "--variants",
                found=f"also --address {self.address}",
                wanted="one of them: only the variant served at the address can be tried there",
                todo="leave out --variants; or --address, so that an embedded server tries them",
            )
        if self.objective.name == "cost":
            raise UsageError(
                "--objective cost",
                found=f"also --address {self.address}",
                wanted="an embedded server: the processor time of a running server cannot be seen",
                todo="leave out --address, or optimize throughput or latency",
            )
        host = parse_address(self.address).host
        if self.target != "cpu" and not is_loopback(host):
            raise UsageError(
                f"--address {self.address}",
                found=f"a server on another machine, with --target {self.target}",
                wanted="a server on this machine, whose GPUs are known here",
                todo="run the command on that machine, with the project there",
            )
        if self.cores is None and not is_loopback(host):
            raise UsageError(
                f"--address {self.address}",
                found="a server on another machine, whose cores are unknown here",
                wanted="the number of cores that its server may use",
                todo="--cores N",
            )

    @property
    def machine_cores(self) -> int:
        """Cores of the machine that serves."""
        return self.cores or cores()

    @property
    def where(self) -> str:
        """The server and its cores, for messages; empty for an embedded one."""
        return f"{self.address} with {self.machine_cores} cores" if self.address else ""


@dataclass(frozen=True)
class Ready:
    """Resources of a search."""

    spec: Spec
    server: Served
    generator: Generator
    space: Space
    now: Point
    shapes: Sequence[int]
    """See `Search`."""
    hashes: Mapping[str, str]
    """Hashes of the variants' artifacts."""
    start_s: float = 0.0
    """Seconds until the embedded server was ready."""
    gpus: tuple[str, ...] = ()
    """Names of the machine's GPUs, for a target with GPUs."""


class _Saving(Listener):
    """Passes events on, and saves results to disk after each point."""

    def __init__(self, listener: Listener, save: Callable[[], None]) -> None:
        self._save = save
        self.stage = listener.stage  # type: ignore[method-assign]
        self.trial = listener.trial  # type: ignore[method-assign]
        self._evaluated = listener.evaluated

    def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
        """See `Listener`."""
        self._save()
        self._evaluated(evaluation, best)


def tune(plan: TunePlan, listener: Listener | None = None) -> tuple[Spec, Outcome]:
    """Search for the best way; an interrupt returns the best so far. The returned spec is the model's, unchanged.

    Raises:
        SpecError, UsageError: there is no such model, or it has nothing to choose.
        BuildError: the variant that is served cannot be made or is not good enough.
        ServerError: there is no server, no GPU for a target with GPUs, or it does not start in the present way; at an
            address, the model could not be served as before at the end.
        ClientError: a server at an address fails as `Remote` describes.
    """
    with prepared(plan) as ready:
        file = state_file(plan.root, ready.spec)
        if plan.fresh:
            file.unlink(missing_ok=True)
        where = " ".join((plan.where, *([plan.target] if plan.target != "cpu" else []), *ready.gpus)).strip()
        earlier = load_state(file, ready.spec, plan.slo, ready.hashes, plan.objective, where)
        kind = Search if plan.objective.name == "throughput" else SearchAtRate
        search = kind(
            ready.server,
            ready.generator,
            plan.slo,
            ready.space,
            ready.now,
            ready.shapes,
            plan.budget_s,
            plan.trial_s,
            earlier=earlier.evaluations,
            costs=earlier.costs,
            objective=plan.objective,
        )

        def save() -> None:
            save_state(
                file, ready.spec, plan.slo, ready.hashes, plan.objective, search.costs, search.evaluations, where
            )

        search.listener = _Saving(listener or Listener(), save)
        outcome = replace(search.run(), target=plan.target, gpus=ready.gpus)
        save()
        if plan.client_batching and outcome.best and not outcome.ended:
            client_batching = _client_batching(plan, ready, outcome, search.listener)
            outcome = replace(outcome, client_batching=client_batching)
    return ready.spec, outcome


def _client_batching(plan: TunePlan, ready: Ready, outcome: Outcome, listener: Listener) -> ClientBatching | None:
    """Settings of batching in clients at the best point, found in the remaining time; None also if that fails, because
    the choice stands without it."""
    assert outcome.best is not None  # noqa: S101
    listener.stage("clients", f"clients that batch, at {outcome.best.point}")
    try:
        ready.server.serve(outcome.best.point)
        return best_client_batching(
            ready.generator,
            plan.slo,
            outcome.best.rate_per_s,
            max(0.0, plan.budget_s - outcome.seconds),
            lambda text: listener.stage("clients", text),
        )
    except KeyboardInterrupt:
        listener.stage("clients", "interrupted: the choice stands, clients that batch are not known")
    except FAILURES as error:
        listener.stage("clients", f"not known: {error}")
    return None


@contextlib.contextmanager
def prepared(plan: TunePlan) -> Iterator[Ready]:
    """A server with the model as it is served now, embedded or at the plan's address, and a load generator for it;
    errors as `tune`."""
    gpus = find_gpus(plan.root, plan.target, there=plan.address is not None)
    spec = for_target(load_named(plan.root, plan.model, plan.target), plan.target)
    refuse(spec)
    spec = environments_of(plan.root, plan.target).make(spec)
    artifacts, served = find_artifacts(
        spec, plan.root, plan.variants, plan.target, served_alone=plan.address is not None
    )
    now, space = find_space(spec, artifacts, served, plan.root, plan.target, plan.machine_cores, len(gpus))
    hashes = {name: artifact.source_hash for name, artifact in artifacts.items()}
    with (
        _server(plan, spec, artifacts, now) as server,
        Generator(plan.root, (spec.name,), (server.address,), metrics=_metrics(plan, server)) as generator,
    ):
        shapes = _shapes(spec, plan.root, server.address)
        start_s = server.start_s if isinstance(server, Embedded) else 0.0
        yield Ready(spec, server, generator, space, now, shapes, hashes, start_s, gpus)


def _metrics(plan: TunePlan, server: Served) -> tuple[str, ...]:
    """The address of the server's metrics, if it is one of this project's."""
    address = find_metrics(plan.root, server.address)
    return () if address is None else (address,)


def _server(plan: TunePlan, spec: Spec, artifacts: Mapping[str, Artifact], now: Point) -> Embedded | Remote:
    if plan.address is None:
        return Embedded(plan.root, spec, artifacts, now, plan.target)
    return Remote(
        plan.root,
        spec,
        artifacts[now.group.variant],
        plan.machine_cores,
        now,
        plan.address,
        plan.admin_key,
        allow_plaintext=plan.allow_plaintext,
        target=plan.target,
    )


def _shapes(spec: Spec, root: Path, address: str) -> tuple[int, ...]:
    """A number for the shape of the network's input for each request; none if it takes all together."""
    with Client(address) as client:
        if any(tensor.allow_ragged_batch for tensor in client.config(spec.network_name).input):
            return ()
        shapes = [
            tuple((k, a.shape) for k, a in network_inputs(client, spec, request.inputs).items())
            for request in prepare(spec.name, root, client).requests
        ]
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    return tuple(numbers[shape] for shape in shapes) if len(numbers) > 1 else ()
