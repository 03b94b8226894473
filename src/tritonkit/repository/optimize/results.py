"""Results of a spec's variants: made or not, quality, speed, and whether one may be published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tritonkit.errors import GateError, TritonkitError
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.export.cache import BuildCache
from tritonkit.repository.export.op_library import operators_of
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.gate import GateOutcome, judge, refuse
from tritonkit.repository.optimize.gpu import described_gpu
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.make import BuildPlan, build, job_of, plan
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.optimize.runner import Runs
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.optimize.timing import Timed, VariantTiming, find_timing, time_together
from tritonkit.repository.optimize.variants import (
    AS_IS,
    AUTO,
    FORMS,
    LLM_FORMS,
    LLM_PLAIN,
    PLAIN,
    PLAINS,
    PYTHON,
    Variant,
    servable,
    served_name,
    variant_names,
    variant_of,
)

__all__ = ["Result", "choose", "evaluate", "judged", "unmeasured_notes", "wanted_variants"]

SERVED_RUNTIMES = ("onnxruntime", "openvino")
"""Engines that `auto` chooses from, because every server has them on a CPU."""

_WHY = {
    True: "only a GPU can run it; build on a machine with one",
    False: "a plan from a container is not run by a build; compare its answers with those of onnx-fp32",
}
"""Variant that ONNX Runtime's CUDA provider runs, or not -> why the gate has not judged it."""


@dataclass(frozen=True)
class Result:
    """One variant of one model. It has an artifact, or a `problem`, or neither in a dry run."""

    model: str
    variant: str
    cached: bool
    artifact: Artifact | None = None
    timing: VariantTiming | None = None
    outcome: GateOutcome | None = None
    problem: TritonkitError | None = None
    runtime: str | None = None
    """The engine that runs the variant on this machine."""

    @property
    def passed(self) -> bool:
        """Whether the variant was made, was measured if it can be, and may be published."""
        return self.measured and self.outcome is not None and self.outcome.passed

    @property
    def measured(self) -> bool:
        """Whether the variant was compared with the reference: a plan for another machine was not."""
        artifact = self.artifact
        return artifact is not None and (artifact.quality is not None or self.variant in (PYTHON, AS_IS))

    def to_dict(self) -> dict[str, Any]:
        """The result as `--json` prints it."""
        facts: dict[str, Any] = {n: getattr(self, n) for n in ("model", "variant", "cached")}
        if self.artifact is not None:
            quality, independence = self.artifact.quality, self.artifact.independence
            facts |= {
                "size_bytes": self.artifact.size_bytes,
                "source_hash": self.artifact.source_hash,
                "number_format": self.artifact.number_format or None,
                "quality": None if quality is None else asdict(quality),
                "notes": list(self.artifact.notes),
                "independent_items": independence and asdict(independence),
            }
        if self.timing is not None:
            facts["timing"] = {**asdict(self.timing), "per_s": self.timing.per_s}
        if self.outcome is not None:
            facts |= {"passed": self.passed, "measured": self.measured, **asdict(self.outcome)}
        if self.problem is not None:
            facts["problem"] = str(self.problem)
        return facts


def wanted_variants(spec: Spec, requested: Sequence[str], target: str = "cpu") -> tuple[Variant, ...]:
    """The variants to build for a spec: the requested ones (`all`, `spec` or names), the one it serves, and onnx-fp32
    if others are compared with it. `all` leaves out forms that the target cannot serve."""
    if served_name(spec) in (PYTHON, AS_IS):
        return (variant_of(spec),)
    of_spec, quality = spec.model.optimize.variants, spec.model.quality
    if spec.model.network.llm:
        plain, every, auto, compared = LLM_PLAIN, list(LLM_FORMS), False, False
    else:
        plain, auto = PLAIN, spec.model.serving.variant == AUTO
        every = [*(name for name in variant_names() if servable(name, target)), *of_spec]
        compared = auto or quality.max_size_ratio is not None or quality.max_latency_ratio is not None
    names = [plain] if requested or compared else []
    for name in requested:
        names += {"all": every, "spec": of_spec}.get(name, [name])
    names += of_spec if auto else [served_name(spec)]
    return tuple(variant_of(spec, name) for name in dict.fromkeys(names))


def evaluate(
    spec: Spec,
    variants: Sequence[str | Variant],
    cache: BuildCache,
    *,
    threads: int = 1,
    force: bool = False,
    timed: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    jobs: dict[str, Job] | None = None,
    gpu: GpuJudge | None = None,
) -> tuple[Result, ...]:
    """Make and measure each variant; one that cannot be made is a result with its problem.

    Args:
        variants: the variants or their names, with onnx-fp32 first if the others are to be compared with it.
        threads: cores that the measurements may use.
        force: whether to make cached variants again.
        timed: whether to measure speed too.
        jobs: a mapping that receives each variant's job, by the variant's name. Variants of one network share a job.
        gpu: the judge of target gpu, where there is a GPU: the variants that it takes are judged and timed there.
    """
    progress = progress or Progress()
    jobs = {} if jobs is None else jobs
    networks: dict[str, Job] = {}
    plans: list[BuildPlan] = []
    results: list[Result] = []
    with operators_of(spec):
        for variant in variants:
            # Planned here, not before the loop: by now the sources of earlier variants are in the cache.
            what = plan(spec, cache, force, variant)
            plans.append(what)
            if dry_run:
                results.append(Result(spec.name, what.variant.name, bool(what.cached), what.cached))
                continue
            network = what.variant.base
            if network not in networks:
                networks[network] = job_of(spec, cache, what.variant, threads=threads, fresh=force, say=progress.say)
            jobs[what.variant.name] = networks[network]
            result = _made(what, cache, networks[network], _base(results), progress, gpu)
            progress.done(result)
            results.append(result)
        if timed and not dry_run:
            results = _timed(spec, plans, results, jobs, progress, gpu)
            progress.timed(results)
    return tuple(results)


def choose(spec: Spec, results: Sequence[Result]) -> Artifact:
    """The artifact to publish.

    Raises:
        BuildError: the variant that the spec names could not be made.
        GateError: that variant may not be published, or with `auto` no variant may.
    """
    if spec.model.serving.variant == AUTO and not spec.model.network.python:
        return _fastest(spec, results)
    result = next(result for result in results if result.variant == served_name(spec))
    if result.problem is not None:
        raise result.problem
    assert result.artifact is not None  # noqa: S101  made, as there is no problem
    assert result.outcome is not None  # noqa: S101
    if not result.outcome.passed:
        raise refuse(spec, result.artifact, result.outcome)
    return result.artifact


def unmeasured_notes(results: Sequence[Result], served: Mapping[str, str]) -> tuple[str, ...]:
    """A note for each served variant that the gate has not judged, because nothing here can run it."""
    return tuple(
        f"{result.model}: {result.variant} is served, and the gate has not judged its answers: {_WHY[on_cuda]}"
        for result in results
        if result.artifact is not None
        and not result.measured
        and served.get(result.model) == result.variant
        and result.artifact.form in FORMS
        and ((on_cuda := FORMS[result.artifact.form].runs_on_cuda) or "image" in result.artifact.tools)
    )


def _base(results: Sequence[Result]) -> Result | None:
    """The result that the others are compared with, if the first one is it."""
    plain = results and results[0].variant in PLAINS
    return results[0] if plain else None


def _made(
    what: BuildPlan, cache: BuildCache, job: Job, base: Result | None, progress: Progress, gpu: GpuJudge | None
) -> Result:
    """A variant with its quality, not yet with its speed."""
    spec, cached = what.spec, what.cached is not None
    try:
        if not cached:
            progress.runs(what)
            progress.start(what)
        artifact = build(what, cache, job)
        if gpu is not None and gpu.takes(what, artifact):
            artifact = gpu.judged(what, artifact, job, lambda: progress.runs(what))
    except TritonkitError as problem:
        return Result(spec.name, what.variant.name, cached, problem=problem)
    return judged(spec, what.variant, artifact, None, base, cached)


def judged(
    spec: Spec, variant: Variant, artifact: Artifact, timing: VariantTiming | None, base: Result | None, cached: bool
) -> Result:
    """The result of a variant that was made, judged by the gate; `base` is the result of onnx-fp32, if there is one."""
    fp32, fp32_timing = (base.artifact, base.timing) if base else (None, None)
    outcome = judge(spec, artifact, fp32, timing, fp32_timing)
    on_gpu_alone = variant.form is not None and variant.form.runs_on_cuda and artifact.quality is not None
    runtime = "onnxruntime" if on_gpu_alone else variant.runtime
    return Result(spec.name, variant.name, cached, artifact, timing, outcome, runtime=runtime)


def _timed(
    spec: Spec,
    plans: Sequence[BuildPlan],
    results: Sequence[Result],
    jobs: Mapping[str, Job],
    progress: Progress,
    gpu: GpuJudge | None,
) -> list[Result]:
    """The same results with their speed, judged again; a variant that does not run on this machine has none."""
    pairs = list(zip(plans, results, strict=True))
    able = {r.variant: a for p, r in pairs if r.artifact is not None and (a := _able(p, r.artifact, gpu))}
    times = _known_times(able, jobs)
    if times is None:
        for ready in able.values():
            progress.runs(ready.what)  # for its samples
        progress.timing(spec.name, len(able))
        opened = {name: ready.timed(jobs[name]) for name, ready in able.items()}
        times = time_together(opened, progress.say)
    timed: list[Result] = []
    for what, result in pairs:
        time = times.get(result.variant)
        if isinstance(time, TritonkitError):
            timed.append(Result(spec.name, result.variant, result.cached, problem=time))
        elif result.artifact is None:
            timed.append(result)
        else:
            timed.append(judged(spec, what.variant, result.artifact, time, _base(timed), result.cached))
    return timed


def _known_times(
    able: Mapping[str, _Able], jobs: Mapping[str, Job]
) -> dict[str, VariantTiming | TritonkitError] | None:
    """Earlier times, if all were measured in one run, because only times of one run can be compared."""
    threads = next((job.threads for job in jobs.values()), 1)
    timings = {name: find_timing(ready.artifact, threads, ready.gpu_name) for name, ready in able.items()}
    usable = {name: time for name, time in timings.items() if time is not None}
    together = len({time.run for time in usable.values()}) <= 1
    return dict(usable) if len(usable) == len(timings) and together else None


@dataclass(frozen=True)
class _Able:
    """A variant that runs on this machine: on the GPU if there is a judge, else in this process."""

    what: BuildPlan
    artifact: Artifact
    gpu: GpuJudge | None

    @property
    def gpu_name(self) -> str:
        """The GPU that it runs on; empty for the CPU."""
        if self.gpu is not None:
            return self.gpu.environment.gpu
        form = self.what.variant.form
        return (described_gpu() or "") if form is not None and form.by_gpu else ""

    def timed(self, job: Job) -> Timed:
        """The variant as something to be measured."""
        return Timed(job, self.artifact.folder, lambda: self._open(job.threads), self.gpu_name)

    def _open(self, threads: int) -> Runs:
        if self.gpu is not None:
            return self.gpu.open(self.what, self.artifact)
        runtime = self.what.variant.runtime
        assert runtime is not None  # noqa: S101  `_able` has looked
        return RUNTIMES[runtime](self.artifact.folder, threads, f"{self.what.spec.file} variant {self.what.variant}")


def _able(what: BuildPlan, artifact: Artifact, gpu: GpuJudge | None) -> _Able | None:
    """The variant, if it runs on this machine."""
    if gpu is not None and gpu.takes(what, artifact):
        return _Able(what, artifact, gpu)
    return _Able(what, artifact, None) if what.variant.runtime else None


def _fastest(spec: Spec, results: Sequence[Result]) -> Artifact:
    able = [result for result in results if result.passed and result.runtime in SERVED_RUNTIMES]
    if not able:
        tried = "\n".join(
            f"{r.variant}: {r.problem or (r.outcome and r.outcome.misses and r.outcome.misses[0].found)}"
            for r in results
        )
        raise GateError(
            f"{spec.file} serving.variant",
            found="auto, and none of the variants may be published",
            wanted="one that passes the gate",
            todo="see what each loses: tritonkit build --variants spec",
            details=tried,
        )
    best = max(able, key=lambda result: result.timing.per_s if result.timing else 0.0)
    assert best.artifact is not None  # noqa: S101  passed means made
    return best.artifact
