"""Build one variant of a spec, or find it in the cache."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tritonkit.disk import is_of_writing, try_writing, unwritable
from tritonkit.errors import BuildError, SpecError, TritonkitError
from tritonkit.limits import advice, is_of_limits
from tritonkit.repository.export.artifact import (
    Artifact,
    Independence,
    MeasuredQuality,
    Signature,
    StartNeeds,
    sha256_file,
)
from tritonkit.repository.export.batching import fits_demand, hold_to_demand, hold_to_padding
from tritonkit.repository.export.cache import BuildCache
from tritonkit.repository.export.hooks import hook_errors, last_calls
from tritonkit.repository.export.number_format import hold_to_fp32, is_quantized
from tritonkit.repository.export.onnx_file import fix_first_axis
from tritonkit.repository.export.op_library import copy_libraries
from tritonkit.repository.export.padded import judge_padded, padding_of, prove_padded
from tritonkit.repository.export.triton_folder import CONFIG, read_triton_folder
from tritonkit.repository.modelspec import Spec, resolve_file, resolve_folder
from tritonkit.repository.optimize.files.kinds import open_ready
from tritonkit.repository.optimize.files.ready import hold_outputs
from tritonkit.repository.optimize.fingerprint import fingerprint, tool_versions
from tritonkit.repository.optimize.gpu import find_gpu
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.outputs import settle_outputs
from tritonkit.repository.optimize.quality import measure
from tritonkit.repository.optimize.runtimes import RUNTIMES, Runner
from tritonkit.repository.optimize.start import measure_start
from tritonkit.repository.optimize.variants import (
    FORMS,
    LLM_FORMS,
    PLAIN,
    TARGETS,
    Form,
    Variant,
    llm_checkpoint,
    variant_of,
)
from tritonkit.repository.optimize.variants.int8_cpu import cpu_kind
from tritonkit.repository.optimize.variants.onnx_fp32 import FILE
from tritonkit.repository.optimize.weights import WeightCache
from tritonkit.text import first_line
from tritonkit.watched import step, unbounded

__all__ = ["BuildPlan", "build", "job_of", "plan"]

_RESERVED = (
    "artifact.json",
    "judged-gpu.json",
    "loaded.json",
    "manifest.json",
    "timing.json",
    "timing-gpu.json",
)
_EXTRAS = {
    "build": (),
    "fil": ("treelite",),
    "llm": ("nncf", "openvino", "openvino-genai", "tokenizers", "transformers"),
    "modelopt": ("nvidia-modelopt", "onnx-graphsurgeon", "onnxslim"),
    "optimize": ("nncf", "openvino", "torch-pruning", "torchao"),
    "tensorrt": ("nvidia-modelopt", "tensorrt", "tensorrt-rtx-cu12"),
    "tflite": ("ai-edge-litert", "litert-torch"),
}
"""pip extra -> distributions whose versions are part of the hash of variants made with it."""


@dataclass(frozen=True)
class BuildPlan:
    """Plan for the build of one variant; nothing is left to do if `cached` has the artifact."""

    spec: Spec
    variant: Variant
    source_hash: str
    tools: dict[str, str]
    cached: Artifact | None


def plan(spec: Spec, cache: BuildCache, force: bool = False, variant: str | Variant | None = None) -> BuildPlan:
    """Choose the variant (the served one by default), compute its hash and look into the cache; build nothing."""
    variant = variant_of(spec, variant)
    made_by = [part for part in (variant.form, variant.transform) if part is not None]
    code = {_module(part.make) for part in made_by} | ({_module(open_ready)} if spec.model.network.file else set())
    extra = made_by[-1].extra if made_by else "build"
    try:
        tools = tool_versions(spec, _EXTRAS[extra])
        if extra == "tensorrt" or (variant.form is not None and variant.form.by_gpu):
            tools["gpu"] = find_gpu() or "none"  # it is for the GPU it was built on
        if variant.form is not None and variant.form.by_cpu:
            tools["cpu"] = cpu_kind()
        if variant.form is not None and variant.form.image:
            tools["image"] = variant.form.image
        source_hash = fingerprint(spec, variant.name, tools, code)
    except OSError as error:
        raise SpecError(
            str(error.filename or spec.folder),
            found=f"it cannot be read: {error.strerror or error}",
            todo=advice(is_of_limits(error), "this command")
            or "correct its permissions, or remove it from the model's folder",
        ) from error
    cached = None if force else cache.find(spec.name, variant.name, source_hash)
    if cached is not None and not fits_demand(spec, cached):
        cached = None
    return BuildPlan(spec, variant, source_hash, tools, cached)


def _module(make: Any) -> Path:
    """The module file of a form's function, whose arguments the table may have bound in part."""
    function = make.func if isinstance(make, partial) else make
    return Path(sys.modules[function.__module__].__file__ or "")


def job_of(
    spec: Spec,
    cache: BuildCache,
    variant: str | Variant = PLAIN,
    *,
    threads: int = 1,
    fresh: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Job:
    """The job from which the variants of a spec are made; variants of one transform share a job too."""
    variant = variant_of(spec, variant)
    weights = WeightCache(cache.folder / spec.name, spec, fresh=fresh, warn=cache.warn)
    job: Job

    def base() -> Artifact:
        return build(plan(spec, cache, variant=variant.base), cache, job)

    def find_base() -> Artifact | None:
        return None if fresh else plan(spec, cache, variant=variant.base).cached

    transform = variant.transform.make if variant.transform else None
    job = Job(
        spec,
        weights,
        base,
        find_base=find_base,
        threads=threads,
        say=say,
        transform=transform,
        open_ready=open_ready,
    )
    return job


def build(what: BuildPlan, cache: BuildCache, job: Job | None = None) -> Artifact:
    """The planned artifact, compared with its reference. The gate decides later whether it is good enough.

    BuildError if it cannot be made, or its outputs do not match the reference's.
    """
    if what.cached is not None:
        return what.cached
    job = job or job_of(what.spec, cache, what.variant)
    if what.variant.is_made_from_onnx:
        _ = job.base  # made first: a workplace empties the others of its model
    with cache.workplace(what.spec.name) as folder:
        try:
            # Output of a user's Python must not end up in a command's output, such as that of --json.
            with contextlib.redirect_stdout(sys.stderr):
                artifact = _build_in(folder, what, job)
            return cache.store(artifact)
        except MemoryError as error:
            raise BuildError(
                str(what.spec.file),
                found=f"there is not enough memory: {error}",
                wanted="room for the network and a few items of its input",
                todo=advice(is_of_limits(error), "this command") or "correct the shapes, or build on a larger machine",
            ) from error
        except OSError as error:
            raise unwritable(folder.parent, error) from error


@dataclass(frozen=True)
class _Made:
    """A variant whose files are written: its tensors and its measured figures."""

    signature: Signature
    notes: tuple[str, ...] = ()
    quality: MeasuredQuality | None = None
    start: StartNeeds | None = None
    independence: Independence | None = None


def _build_in(folder: Path, what: BuildPlan, job: Job) -> Artifact:
    spec, form = what.spec, what.variant.form
    if form is not None:
        made = _make(form, what, job, folder)
    else:
        made = _Made(_take_folder(spec, folder) if spec.model.network.folder else _copy_python(spec, folder))
    files = {file.name: sha256_file(file) for file in sorted(folder.iterdir())}
    keeps_numbers = form is not None and not form.narrows and not spec.model.network.llm
    return Artifact(
        spec.name,
        what.variant.name,
        folder,
        files,
        made.signature,
        made.quality,
        what.source_hash,
        what.tools,
        made.notes,
        start=made.start,
        independence=made.independence,
        number_format=job.number_format if keeps_numbers else "",
    )


def _make(form: Form, what: BuildPlan, job: Job, folder: Path) -> _Made:
    """Let a form write its files, and measure them with the engine that serves them, if it runs on this machine."""
    spec = what.spec
    if spec.model.network.llm:
        notes = _write(form, job, what, folder)
        quality = llm_checkpoint.measure(job, folder) if what.variant.name in LLM_FORMS else None
        return _Made(Signature.declared(spec), notes, quality)
    _hold_to_operators(form, what)
    if form.narrows:
        hold_to_fp32(job.number_format, what.variant.name, f"{spec.file} network.onnx")
    notes = _write(form, job, what, folder)
    copy_libraries(spec, folder, _RESERVED)
    if what.variant.is_made_from_onnx:  # it keeps the inputs and outputs of the FP32 file
        signature = replace(job.base.signature, batched=job.batched, single=False)
    else:
        signature = job.signature if spec.model.network.file else job.signature_in(folder / FILE)
    made = _Made(signature, notes, independence=job.independence)
    if form.runtime is not None:
        made = _measure(made, what, job, folder, _opener(form.runtime, what, job, folder))
    elif spec.model.network.file:
        made = replace(made, notes=(*notes, "it was not run: this machine has no TensorRT with a GPU that opens it"))
    elif form.runs_on_cuda:
        made = replace(made, start=job.base.start)
    one = replace(made.signature, batched=False, single=True)
    return replace(made, signature=one) if job.one_by_one else made


def _hold_to_operators(form: Form, what: BuildPlan) -> None:
    """BuildError for operators of the spec's own in a form that ONNX Runtime alone does not make and run."""
    libraries = what.spec.model.network.op_library_names
    if not libraries or form.takes_operators:
        return
    able = [name for name, other in FORMS.items() if other.takes_operators and other.targets == TARGETS]
    raise BuildError(
        f"{what.spec.file} variant {what.variant}",
        found=f"network.op_library has {', '.join(libraries)}, whose operators are ONNX Runtime's alone",
        wanted=f"a variant that ONNX Runtime makes and runs: {', '.join(able)}",
        todo="choose one of these, or export the network without custom operators",
    )


def _opener(runtime: str, what: BuildPlan, job: Job, folder: Path) -> Callable[[str], Runner]:
    """A function that opens the variant's files; a ready-made file is opened where it is, by its own names."""
    if what.spec.model.network.file:
        return lambda _: job.ready.open(job.threads)
    return partial(RUNTIMES[runtime], folder, job.threads)


def _measure(made: _Made, what: BuildPlan, job: Job, folder: Path, open_runner: Callable[[str], Runner]) -> _Made:
    """The variant with its figures: memory and time of a start, independence of items, quality."""
    spec, form, file = what.spec, what.variant.form, folder / FILE
    assert form is not None  # noqa: S101  a form made it
    where = f"{spec.file} variant {what.variant}"
    runner, signature = open_runner(where), made.signature
    # Measured before anything else runs, because the engine keeps memory that it once took.
    start = measure_start(spec, signature, job.samples, runner)
    independence = _independence(what, job, runner, file)
    if not (what.variant.is_made_from_onnx and job.one_by_one):
        runner, signature = settle_outputs(job, folder, runner, signature)
    if job.one_by_one and file.is_file():
        fix_first_axis(file)
        runner = open_runner(where)
    independence = _padded(what, job, runner, signature, independence)
    if spec.model.network.file:  # it is the reference itself
        for batch in job.samples:
            hold_outputs(spec, signature, runner.run(batch))
        return _Made(signature, made.notes, None, start, independence)
    # Another engine rounds in other places, which the metric judges.
    exact = not job.transformed and not is_quantized(job.number_format)
    network = job.onnx if what.variant.is_made_from_onnx else file
    quality = measure(job, runner, lossless=form.lossless and exact, file=network)
    notes = (*made.notes, *filter(None, (quality.edges,)))
    return _Made(signature, notes, quality, start, independence)


def _independence(what: BuildPlan, job: Job, runner: Runner, file: Path) -> Independence | None:
    """Verdict on a variant's items in a batch, tried by the engine that serves it.

    For forms made from the FP32 network, that network decides. `file` is the variant's ONNX file, if it has one.
    BuildError if the spec demands batches and items are not independent; without such a demand, the variant is
    served without batches.
    """
    form, verdict = what.variant.form, job.independence
    if not job.batched or form is None:
        return verdict
    if verdict is None:
        verdict = job.prove(runner.run, file)
        job.settle(verdict)
    elif verdict.state == "proven" and what.variant.is_made_from_onnx and form.lossless:
        verdict = job.prove_again(runner.run)
    elif verdict.state == "proven" and form.narrows:
        verdict = job.prove_rounded(runner.run)
    hold_to_demand(what.spec, verdict, f"variant {what.variant}")
    return verdict


def _padded(
    what: BuildPlan, job: Job, runner: Runner, signature: Signature, independence: Independence | None
) -> Independence | None:
    """The verdict on a variant's items, extended by the proof of padding.

    BuildError if padding changes answers.
    """
    form = what.variant.form
    if job.one_by_one or form is None or independence is None or not independence.holds:
        return independence
    spec, padding = what.spec, padding_of(what.spec, signature)
    if padding is None or independence.state == "declared":
        return independence
    job.say(f"proving that filling up {padding.axis} changes no answer")
    padded = (
        judge_padded(spec, runner.run, job.samples, padding, job.prepared)
        if form.narrows or is_quantized(job.number_format)
        else prove_padded(runner.run, job.samples, padding, spec.model.quality.tolerance)
    )
    hold_to_padding(spec, padded, f"variant {what.variant}")
    return replace(independence, seen=f"{independence.seen}; {padded.seen}")


def _write(form: Form, job: Job, what: BuildPlan, folder: Path) -> tuple[str, ...]:
    """Let the form write its files, and return its notes; a library's exception becomes a BuildError."""
    try:
        # A user's module is traced and trained in Python, which has no limit.
        limited = what.spec.model.network.torch is None and not what.spec.model.network.llm
        with step(f"making {what.variant}") if limited else unbounded():
            return (*form.make(job, folder), *job.notes)
    except (TritonkitError, MemoryError):
        raise
    except Exception as error:
        if is_of_writing(error):
            raise
        try_writing(folder.parent, Path(tempfile.gettempdir()))
        raise BuildError(
            f"{what.spec.file} variant {what.variant}",
            found=f"it cannot be made: {type(error).__name__}: {first_line(error)}",
            wanted="a network that the variant's libraries support",
            todo="choose another variant",
            details=last_calls(error),
        ) from error


def _take_folder(spec: Spec, folder: Path) -> Signature:
    """Read a model in Triton's layout, and keep its configuration; a publish copies its files itself."""
    source = resolve_folder(str(spec.model.network.folder), spec, "network.folder")
    taken = read_triton_folder(source, f"{spec.file} network.folder")
    shutil.copyfile(source / CONFIG, folder / CONFIG)
    return taken.signature


def _copy_python(spec: Spec, folder: Path) -> Signature:
    """Copy a model.py for Triton's Python backend with its files; return the signature that the spec declares."""
    network = spec.model.network
    assert network.python is not None  # noqa: S101  the caller chose this source
    source = resolve_file(network.python, spec, "network.python")
    with hook_errors(spec, "network.python", f"compiling {source.name}"):
        compile(source.read_bytes(), source.name, "exec")
    shutil.copyfile(source, folder / "model.py")
    for reference in network.files:
        source = resolve_file(reference, spec, "network.files")
        if source.name in _RESERVED or (folder / source.name).exists():
            raise SpecError(
                f"{spec.file} network.files",
                found=f"{source.name!r} is there already, or kept for the build's own file",
                wanted="distinct names, because all files lie in one version folder",
            )
        shutil.copyfile(source, folder / source.name)
    return Signature.declared(spec)
