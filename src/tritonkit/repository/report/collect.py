"""Results in the cache for each model: variants with their figures, and the time profile of the slowest one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tritonkit.errors import GateError, SpecError, UsageError
from tritonkit.repository.export.cache import BuildCache
from tritonkit.repository.modelspec import Spec, load_all, load_named, load_readable
from tritonkit.repository.optimize.built import find_built
from tritonkit.repository.optimize.results import Result, choose, judged, wanted_variants
from tritonkit.repository.optimize.timing import find_timing
from tritonkit.repository.optimize.variants import (
    AS_IS,
    AUTO,
    PLAINS,
    PYTHON,
    TARGETS,
    Variant,
    parse,
    served_name,
    variant_names,
    variant_of,
)
from tritonkit.repository.report.gpu_runs import GpuRun, gpu_runs
from tritonkit.repository.report.on_gpu import GpuResult, or_on_gpu, read_gpu_result
from tritonkit.repository.report.operators import Operators, profile_variant, slowest

__all__ = ["ModelReport", "collect", "pareto"]

_NEVER = "not built"
_EARLIER = "built before its spec, data, code or tools changed"
_PLACE = re.compile(r"(.+)-[0-9a-f]{16}")


@dataclass(frozen=True)
class ModelReport:
    """One model: the variants that were built, and the others with the reasons."""

    model: str
    description: str
    file: str
    results: tuple[Result, ...]
    served: str | None
    """The variant that is published; None if `auto` finds none that passes."""
    missing: dict[str, str] = field(default_factory=dict)
    operators: Operators | None = None
    max_drop: float = 0.01
    at_least: float | None = None
    at_most: float | None = None
    gpu_results: tuple[GpuResult, ...] = ()
    """Variants that a build judged and timed on a GPU."""
    gpu_runs: tuple[GpuRun, ...] = ()
    """Runs under load on servers with GPUs."""

    @property
    def front(self) -> tuple[str, ...]:
        """The passing variants that no other passing one beats in both quality and latency."""
        return pareto(self.results)

    def to_dict(self) -> dict[str, Any]:
        """The facts for `--json`."""
        return {
            "model": self.model,
            "served": self.served,
            "front": list(self.front),
            "variants": [result.to_dict() for result in self.results],
            "gpu_variants": [one.to_dict() for one in self.gpu_results],
            "not_built": self.missing,
            "operators": None if self.operators is None else asdict(self.operators),
            "gpu_runs": [asdict(run) for run in self.gpu_runs],
        }


def collect(
    root: Path, names: Sequence[str] = (), *, threads: int, say: Callable[[str], None] = lambda _: None
) -> tuple[ModelReport, ...]:
    """Read the results for the specs as they are now.

    Nothing is built, and nothing is measured except the profile of each model's slowest variant.

    Args:
        names: folders of `models/`; by default all with a built variant.
        threads: number of threads of the timings; timings with another number do not count.
        say: a function that is called with short phrases about steps that take a while.

    Raises:
        UsageError: nothing is built, of all models or of a named one.
    """
    cache = BuildCache.of_project(root, say)
    specs = load_all(root, tuple(names)) if names else _readable(root, say)
    reports = []
    for spec in specs:
        if not spec.model.has_network:
            continue  # its networks are specs of their own
        say(f"{spec.name}: reading the cache")
        report = replace(_read(spec, _others(spec, root), cache, threads, say), gpu_runs=gpu_runs(root, spec.name))
        if names and not report.results:
            raise _not_built(f"model {spec.name}", spec.name, report.missing)
        if report.results:
            reports.append(report)
    if not reports:
        raise _not_built(str(cache.folder), " ".join(spec.name for spec in specs), {})
    return tuple(reports)


def _readable(root: Path, say: Callable[[str], None]) -> list[Spec]:
    """Every readable spec of the project; the others are reported to `say`."""
    specs, failed = load_readable(root, every=True)
    for name, error in failed.items():
        say(f"{name}: left out: {error.in_a_line()}")
    return specs


def pareto(results: Iterable[Result]) -> tuple[str, ...]:
    """Names of the passing variants that none beats in both quality and latency, fastest first."""
    able = [r for r in results if r.passed and r.timing and r.artifact and r.artifact.quality]

    def figures(result: Result) -> tuple[float, float]:
        assert result.timing and result.artifact and result.artifact.quality  # noqa: S101, PT018
        return result.timing.batch1_ms, -result.artifact.quality.rank

    front: list[str] = []
    best = float("inf")
    for result in sorted(able, key=figures):
        if figures(result)[1] < best:
            best = figures(result)[1]
            front.append(result.variant)
    return tuple(front)


def _others(spec: Spec, root: Path) -> list[Spec]:
    """The spec on the other targets that have settings of their own: their variants may be other files."""
    others = []
    for target in TARGETS:
        with contextlib.suppress(SpecError):  # only what one target needs is missing
            others.append(load_named(root, spec.name, target))
    return [other for other in others if other.model != spec.model]


def _read(
    spec: Spec, others: Sequence[Spec], cache: BuildCache, threads: int, say: Callable[[str], None]
) -> ModelReport:
    results: list[Result] = []
    on_gpus: list[GpuResult] = []
    missing: dict[str, str] = {}
    base: Result | None = None
    cached = _cached_variants(cache, spec.name)
    for variant in _variants(spec, cached):
        if variant.name not in cached:
            missing[variant.name] = _NEVER
            continue
        plans = (find_built(one, cache, variant) for one in (spec, *others))
        what, artifact = next(((plan, plan.cached) for plan in plans if plan.cached), (None, None))
        if what is None or artifact is None:
            missing[variant.name] = _EARLIER
            continue
        results.append(judged(what.spec, what.variant, artifact, find_timing(artifact, threads), base, cached=True))
        if variant.name in PLAINS:
            base = results[0]
        if on_gpu := read_gpu_result(what, artifact, on_gpus):
            on_gpus.append(on_gpu)
    operators = None
    if (slow := slowest(results)) is not None:
        say(f"{spec.name}: profiling {slow.variant}")
        operators = profile_variant(spec, cache, slow, threads)
    file, quality = f"models/{spec.folder.name}/{spec.file.name}", spec.model.quality
    return ModelReport(
        spec.name,
        spec.model.description,
        file,
        tuple(results),
        _served(spec, or_on_gpu(results, on_gpus)),
        missing,
        operators,
        quality.max_drop,
        quality.at_least,
        quality.at_most,
        tuple(on_gpus),
    )


def _variants(spec: Spec, cached: Set[str]) -> tuple[Variant, ...]:
    """Every variant, those that the spec names, and compositions in the cache."""
    if served_name(spec) in (PYTHON, AS_IS) or spec.model.network.llm:
        return wanted_variants(spec, ["all", "spec"])
    serving = spec.model.serving.variant
    names = [*variant_names(), *spec.model.optimize.variants]
    names += [] if serving == AUTO else [serving]
    variants = [parse(name, f"{spec.file} variant") for name in names]
    for name in sorted(cached):
        with contextlib.suppress(SpecError):  # a cached variant that was removed since
            variants.append(parse(name, ""))
    return tuple({variant.name: variant for variant in variants}.values())


def _cached_variants(cache: BuildCache, model: str) -> set[str]:
    """Variants with some state in the cache."""
    matches = (_PLACE.fullmatch(place.name) for place in (cache.folder / model).glob("*/"))
    return {match[1] for match in matches if match}


def _served(spec: Spec, results: Sequence[Result]) -> str | None:
    """The one of these variants that a build publishes."""
    if served_name(spec) in (PYTHON, AS_IS):
        return served_name(spec)
    if spec.model.serving.variant != AUTO:
        served = variant_of(spec).name
        named = next((r for r in results if r.variant == served), None)
        return named.variant if named and named.passed else None
    among = {variant.name for variant in wanted_variants(spec, ())}
    try:
        return choose(spec, [result for result in results if result.variant in among]).variant
    except GateError:
        return None


def _not_built(where: str, names: str, missing: dict[str, str]) -> UsageError:
    earlier = ", only of earlier states" if _EARLIER in missing.values() else ""
    return UsageError(
        where,
        found=f"nothing is built of it as it is now{earlier}",
        wanted="variants to report on",
        todo=f"tritonkit build {names} --variants all",
    )
