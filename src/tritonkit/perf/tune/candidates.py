"""The candidates of a search: variants that may be served, and the ways of serving them on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tritonkit.errors import UsageError
from tritonkit.machine import cores
from tritonkit.perf.tune.space import Point, Space, current, gpu_space_of, other_buckets, space_of
from tritonkit.repository.export import Artifact, BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.base import Target
from tritonkit.repository.optimize.built import as_built
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.optimize.results import Result, choose, evaluate, wanted_variants
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.optimize.variants import AS_IS, PYTHON, servable, variant_of
from tritonkit.repository.pipeline import render_models
from tritonkit.repository.render.gpu_network import read_network
from tritonkit.serve.gpus import find_devices
from tritonkit.serve.install import find_server
from tritonkit.serve.judge import find_build_gpu

__all__ = ["find_artifacts", "find_gpus", "find_space", "refuse"]

_MOST_BATCH = 32
_ENGINES = ("onnxruntime", "openvino")
"""Variants that the embedded server has."""


def find_gpus(root: Path, target: Target, *, there: bool) -> tuple[str, ...]:
    """The names of this machine's GPUs, for a target with GPUs; none for the CPU.

    Args:
        there: whether a server runs already, so that this project's server environment does not matter.

    Raises:
        ServerError: there is no GPU that a server can use, or no server environment for one.
    """
    if target == "cpu":
        return ()
    devices = find_devices(f"--target {target}", None if there else find_server(root))
    return tuple(device.name for device in devices)


def refuse(spec: Spec) -> None:
    """Refuse models that have nothing to choose by rate and latency."""
    serving = spec.model.serving
    if spec.members:
        raise UsageError(
            f"{spec.file} pipeline",
            found="a pipeline with networks or models of other names, each with its own way of serving",
            wanted="one network",
            todo="tune each: " + ", ".join(f"tritonkit tune {name}" for name in _networks(spec)),
        )
    for there, what in (
        (spec.keeps_sequences, "sequences keep their instance"),
        (serving.decoupled, "a request has any number of answers"),
        (len(serving.instance_group) > 1, "several groups of instances"),
        (any(step.windows for step in spec.steps if step), "a request has any number of windows (windows: true)"),
        (bool(spec.model.network.folder), "a model with its own config.pbtxt, which is served as it is"),
        (serving.response_cache, "the response cache is on, and its answers would be measured"),
    ):
        if there:
            raise UsageError(
                f"{spec.file} serving",
                found=what,
                wanted="a model of single requests and answers",
                todo=f"tritonkit load {spec.name} --find-rate --slo p99=50ms: the rate that it holds now",
            )


def _networks(spec: Spec) -> list[str]:
    """The specs in a pipeline that can be tuned by themselves."""
    return [one.name for one in spec.tree if not one.members]


def find_artifacts(
    spec: Spec, root: Path, variants: Sequence[str], target: Target, *, served_alone: bool
) -> tuple[dict[str, Artifact], str]:
    """The artifacts of variants that may be served, made or from the cache, and the variant that is served now.

    Args:
        variants: the variants to try, as for a build.
        served_alone: whether only the one that is served now counts, because others are other files.
    """
    judge = find_build_gpu(root).judge if target == "gpu" else ""
    cache = BuildCache.of_project(root)
    results = evaluate(
        spec,
        [as_built(spec, cache, variant) for variant in wanted_variants(spec, variants, target)],
        cache,
        threads=cores(),
        timed=spec.model.serving.variant == "auto",
        gpu=judge if isinstance(judge, GpuJudge) else None,
    )
    served = choose(spec, results)
    usable = {} if served_alone else {r.variant: r.artifact for r in results if r.artifact and _is_usable(r, target)}
    return {served.variant: served} | usable, served.variant


def _is_usable(result: Result, target: Target) -> bool:
    """Whether tritonkit's server serves a variant, and the gate lets it."""
    if result.variant in (PYTHON, AS_IS):
        return result.passed
    form = result.variant.rpartition("+")[2]
    return result.passed and servable(form, target) and result.runtime in RUNTIMES and result.runtime in _ENGINES


def find_space(
    spec: Spec, artifacts: Mapping[str, Artifact], served: str, root: Path, target: Target, cores: int, gpus: int
) -> tuple[Point, Space]:
    """The present way of serving, and all others, on a machine with a number of cores and GPUs."""
    models = render_models(spec, artifacts[served], root, target, cores)
    network = next(model.plan for model in models if model.plan.name == spec.network_name)
    now = current(spec, network, served, gpus)
    if target == "cpu":
        space = space_of(network, list(artifacts), cores, max(_MOST_BATCH, now.max_batch_size))
    else:
        on_gpu = [
            name for name, one in artifacts.items() if (now.group.gpus and name == served) or _takes_gpu(spec, one)
        ]
        on_cpu = [name for name in artifacts if _runs_on_cpu(spec, name)]
        batches = network.max_batch_size > 0
        space = gpu_space_of(now, on_cpu, on_gpu, cores, gpus, batches=batches)
    return now, replace(space, buckets=other_buckets(spec))


def _takes_gpu(spec: Spec, artifact: Artifact) -> bool:
    """Whether ONNX Runtime can run an artifact on a GPU, which takes no texts."""
    return "model.onnx" in artifact.files and not read_network(spec, artifact).texts


def _runs_on_cpu(spec: Spec, name: str) -> bool:
    """Whether a variant can run on a CPU: all but those that only target gpu can serve."""
    form = variant_of(spec, name).form
    return form is None or form.targets != ("gpu",)
