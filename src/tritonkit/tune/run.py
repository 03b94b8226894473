"""A search from a spec to its outcome: variants, a server, a load generator, and what was known before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tritonkit.client import Client
from tritonkit.errors import UsageError
from tritonkit.export import Artifact, BuildCache
from tritonkit.machine import cores
from tritonkit.measure.network import network_inputs
from tritonkit.measure.openloop import Generator, Slo
from tritonkit.measure.workloads import prepare
from tritonkit.optimize.results import choose, evaluate, wanted_variants
from tritonkit.optimize.runtimes import RUNTIMES
from tritonkit.optimize.variants import PYTHON
from tritonkit.pipeline import render_models
from tritonkit.render.values import ModelPlan
from tritonkit.spec import Spec, load
from tritonkit.tune.at_rate import SearchAtRate
from tritonkit.tune.objective import Objective
from tritonkit.tune.outcome import Evaluation, Listener, Outcome
from tritonkit.tune.search import Search
from tritonkit.tune.server import Embedded
from tritonkit.tune.space import Point, Space, current, other_buckets, space_of
from tritonkit.tune.state import load_state, save_state, state_file

__all__ = ["Ready", "TunePlan", "prepared", "tune"]

_MOST_BATCH = 32
_ENGINES = ("onnxruntime", "openvino")
"""Those that the embedded server has."""


@dataclass(frozen=True)
class TunePlan:
    """What to search.

    Args:
        root: the project.
        model: a name of a folder of `models/`.
        slo: the target.
        variants: names; by default the one that is served. `spec` and `all` as for a build.
        budget_s: the time for all of it.
        trial_s: how long a run under load lasts.
        fresh: forget what an earlier search found.
        objective: what is wanted most.
    """

    root: Path
    model: str
    slo: Slo
    variants: tuple[str, ...] = ()
    budget_s: float = 600.0
    trial_s: float = 4.0
    fresh: bool = False
    objective: Objective = field(default_factory=Objective)


@dataclass(frozen=True)
class Ready:
    """What a search runs on."""

    spec: Spec
    server: Embedded
    generator: Generator
    space: Space
    now: Point
    shapes: Sequence[int]
    """See `Search`."""
    hashes: Mapping[str, str]
    """Of the variants' artifacts."""


class _Saving(Listener):
    """Hands on, and keeps what is known on disk after each point."""

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
    """Search; an interrupt gives the best so far. The spec is that of the model, as it is.

    Raises:
        SpecError, UsageError: no such model, or one that has nothing to choose.
        BuildError: the variant that is served cannot be made or is not good enough.
        ServerError: there is no server, or it does not start as the model is served now.
    """
    with prepared(plan) as ready:
        file = state_file(plan.root, ready.spec)
        if plan.fresh:
            file.unlink(missing_ok=True)
        known = load_state(file, ready.spec, plan.slo, ready.hashes, plan.objective)
        kind = Search if plan.objective.name == "throughput" else SearchAtRate
        search = kind(
            ready.server, ready.generator, plan.slo, ready.space, ready.now, ready.shapes,
            plan.budget_s, plan.trial_s, known=known.evaluations, costs=known.costs,
            objective=plan.objective,
        )  # fmt: skip

        def save() -> None:
            save_state(
                file, ready.spec, plan.slo, ready.hashes, plan.objective, search.costs,
                search.evaluations,
            )  # fmt: skip

        search.listener = _Saving(listener or Listener(), save)
        outcome = search.run()
        save()
    return ready.spec, outcome


@contextlib.contextmanager
def prepared(plan: TunePlan) -> Iterator[Ready]:
    """A server with the model as it is served now, and a load generator for it; errors as `tune`."""
    spec = load(plan.root / "models" / plan.model, plan.root)
    _refuse(spec)
    artifacts, served = _artifacts(spec, plan)
    network = _network(spec, artifacts[served], plan.root)
    now = current(spec, network, served)
    space = space_of(network, list(artifacts), cores(), max(_MOST_BATCH, now.max_batch_size))
    space = replace(space, buckets=other_buckets(spec))
    hashes = {name: artifact.source_hash for name, artifact in artifacts.items()}
    with (
        Embedded(plan.root, spec, artifacts, now) as server,
        Generator(plan.root, (spec.name,), (server.address,)) as generator,
    ):
        shapes = _shapes(spec, plan.root, server.address)
        yield Ready(spec, server, generator, space, now, shapes, hashes)


def _refuse(spec: Spec) -> None:
    """Models that have nothing to choose by rate and latency."""
    serving = spec.model.serving
    for there, what in (
        (serving.sequence_batching is not None, "sequences keep their instance"),
        (serving.decoupled, "a request has any number of answers"),
        (len(serving.instance_group) > 1, "several groups of instances"),
        (serving.response_cache, "the response cache is on, whose answers would be measured"),
    ):
        if there:
            raise UsageError(
                f"{spec.file} serving", found=what, wanted="a model of single requests and answers"
            )


def _artifacts(spec: Spec, plan: TunePlan) -> tuple[dict[str, Artifact], str]:
    """Those that may be served by variant, and the one that is served now."""
    results = evaluate(
        spec, wanted_variants(spec, plan.variants), BuildCache.of_project(plan.root),
        threads=cores(), timed=spec.model.serving.variant == "auto",
    )  # fmt: skip
    served = choose(spec, results)
    usable = {
        result.variant: result.artifact
        for result in results
        if result.passed and result.artifact and _runs_here(result.runtime, result.variant)
    }
    return {served.variant: served} | usable, served.variant


def _runs_here(runtime: str | None, variant: str) -> bool:
    return variant == PYTHON or (runtime in RUNTIMES and runtime in _ENGINES)


def _network(spec: Spec, artifact: Artifact, root: Path) -> ModelPlan:
    models = render_models(spec, artifact, root, "cpu", cores())
    return next(model.plan for model in models if model.plan.name == spec.network_name)


def _shapes(spec: Spec, root: Path, address: str) -> tuple[int, ...]:
    """A number for the shape of what the network gets for each request; none where it takes all together."""
    with Client(address) as client:
        if any(each.allow_ragged_batch for each in client.config(spec.network_name).input):
            return ()
        found = [
            tuple((k, a.shape) for k, a in network_inputs(client, spec, request.inputs).items())
            for request in prepare(spec.name, root, client).requests
        ]
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(found))}
    return tuple(numbers[shape] for shape in found) if len(numbers) > 1 else ()
