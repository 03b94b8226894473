"""`tritonkit build`, and `python tools/build_repo.py`, which is the same."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tritonkit import watched
from tritonkit.cli import watch
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AsJson, Root, TargetChoice, models_argument, project_folder, seconds
from tritonkit.cli.output import note, print_json, print_table
from tritonkit.errors import BuildError, RenderError, TritonkitError, UsageError
from tritonkit.option import Option
from tritonkit.releases import NVIDIA_IMAGE, NVIDIA_IMAGE_VARIABLE
from tritonkit.repository.commands.variants import COLUMNS, build_row, print_variants

if TYPE_CHECKING:
    from tritonkit.cli.progress import Announcing
    from tritonkit.repository.export.samples import Batch
    from tritonkit.repository.optimize.container import Container
    from tritonkit.repository.pipeline import Repository
    from tritonkit.repository.publish.publish import Rendered
    from tritonkit.repository.render.own_python import Verdicts

__all__ = ["command", "print_build"]

_IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]*", re.ASCII)
"""Names of images: docker would take one that begins with a hyphen as an option."""


@dataclass(frozen=True)
class BuildOptions:
    """The work of `tritonkit build`."""

    target: Annotated[TargetChoice, Option("tritonkit's server on a CPU or GPU, or NVIDIA's image.")] = TargetChoice.cpu
    out: Annotated[
        Path | None, Option("The repository to write; by default model_repository/, or model_repository_TARGET/.")
    ] = None
    cores: Annotated[int | None, Option("Cores of the machine that will serve; this one's by default.", min=1)] = None
    dry_run: Annotated[bool, Option("Show the planned work and the Python that would run; do nothing.")] = False
    check: Annotated[bool, Option("Fail if the tracked text differs from a fresh render; write nothing.")] = False
    variants: Annotated[
        str,
        Option(
            "Optimized forms to build and compare with the served one: names with commas, "
            "`spec` (those of model.yaml) or `all`.",
            metavar="NAMES",
            completes="variants",
        ),
    ] = ""
    in_container: Annotated[
        bool, Option("Build TensorRT plans by trtexec in a container of NVIDIA's image (docker; target nvidia).")
    ] = False
    image: Annotated[
        str,
        Option(
            "NVIDIA's image of --in-container, which is to serve the plans.",
            metavar="IMAGE",
            environment=NVIDIA_IMAGE_VARIABLE,
        ),
    ] = NVIDIA_IMAGE
    force: Annotated[bool, Option("Build again what is in the cache.")] = False
    step_timeout: Annotated[
        str,
        Option(
            "Longest time of one step in an engine, such as opening or running a network. Python of the model's"
            " folder, such as training, has no limit.",
            metavar="TIME",
            environment=watch.STEP_VARIABLE,
        ),
    ] = "30m"


@expanded("build")
def command(
    names: Annotated[list[str] | None, models_argument("Folders of models/; all by default.")] = None,
    *,
    options: BuildOptions,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Build models into a Triton repository: export, check, configure, publish.

    A model that fails does not keep the others from being published; the exit code is then not 0.

    Example: tritonkit build digits --variants onnx-int8-static,openvino-int8
    """
    from tritonkit.repository.pipeline import build_repository
    from tritonkit.repository.publish.numbers import used_by_all
    from tritonkit.serve.judge import find_build_gpu
    from tritonkit.serve.stub_python import stub_python

    folder = project_folder(root)
    watched.limit(seconds("--step-timeout", options.step_timeout, least=1))
    _require_consistent(options)
    chosen = tuple(filter(None, (name.strip() for name in options.variants.split(","))))
    if options.check:
        _check(folder, names or (), options, as_json)
        return
    if not options.force:
        watched.can_continue()
    gpu = find_build_gpu(folder) if options.target is TargetChoice.gpu else None
    with _reporting(len(chosen) > 0, folder, as_json) as shown:
        repository = build_repository(
            folder,
            names or (),
            target=options.target.value,
            out=options.out,
            cores=options.cores,
            variants=chosen,
            force=options.force,
            dry_run=options.dry_run,
            progress=shown,
            after=used_by_all(folder),
            keep_going=True,
            prover=_prove,
            refused=watch.refused,
            gpu=gpu.judge if gpu else "",
            container=_container(options, shown),
            card=gpu.card if gpu else None,
            interpreter=lambda: stub_python(folder, options.target.value),
        )
    repository = _with_engines(folder, repository, options)
    if as_json or repository.results:
        _print_built(repository, options.dry_run, as_json)
    _raise_failed(repository)


def _require_consistent(options: BuildOptions) -> None:
    """UsageError for options that contradict each other."""
    if options.check and (options.dry_run or options.force or options.variants):
        raise UsageError("--check", found="--dry-run, --force or --variants too", wanted="--check alone")
    if options.in_container and options.target is not TargetChoice.nvidia:
        raise UsageError(
            "--in-container",
            found=f"--target {options.target.value}",
            wanted="--target nvidia: only NVIDIA's image serves TensorRT plans",
        )


def _check(folder: Path, names: Sequence[str], options: BuildOptions, as_json: bool) -> None:
    """Compare the tracked text with a fresh render."""
    from tritonkit.cli.progress import Announcing
    from tritonkit.repository.pipeline import check_repository
    from tritonkit.serve.stub_python import stub_python

    shown = Announcing()
    different = check_repository(
        folder,
        names,
        target=options.target.value,
        out=options.out,
        cores=options.cores,
        progress=shown,
        prover=_prove,
        container=_container(options, shown),
        interpreter=lambda: stub_python(folder, options.target.value),
    )
    _print_check(different, as_json)


def _prove(root: Path, models: Sequence[Rendered], names: Sequence[str], items: Sequence[Batch]) -> Verdicts:
    """Try a user's own Python on a server, whose code other builds do not load."""
    from tritonkit.perf.diagnose import prove_own_python

    return prove_own_python(root, models, names, items)


def _with_engines(folder: Path, repository: Repository, options: BuildOptions) -> Repository:
    """The repository with notes about the engines of models that TensorRT runs, which are built for target gpu."""
    if options.target is not TargetChoice.gpu or options.dry_run or not repository.served:
        return repository
    from tritonkit.serve.engines import fill_engines

    changed = {change.model for change in repository.changes if change.action != "unchanged"}
    return replace(repository, notes=(*repository.notes, *fill_engines(folder, repository.path, changed)))


def _container(options: BuildOptions, shown: Announcing) -> Container | None:
    """NVIDIA's image that builds plans, if the options ask for one."""
    from tritonkit.repository.optimize.container import Container

    if options.in_container and not _IMAGE.fullmatch(options.image):
        wanted = f"the name of an image, such as {NVIDIA_IMAGE}"
        raise UsageError("--image", found=options.image or "an empty name", wanted=wanted)
    return Container(options.image, shown.tell) if options.in_container else None


def _raise_failed(repository: Repository) -> None:
    """The error of the model that was not built; of several, one that names them all."""
    failed = repository.failed
    if len(failed) == 1:
        raise next(iter(failed.values()))
    if failed:
        raise BuildError(
            f"models {', '.join(failed)}",
            found=f"{len(failed)} models could not be built",
            wanted="the others, which were built" if repository.served else "",
            details="\n".join(str(error) for error in failed.values()),
        )


def _print_built(repository: Repository, dry_run: bool, as_json: bool) -> None:
    """Print what was built; for a dry run what would be, and the Python that would run."""
    would_run = repository.would_run if dry_run else {}
    if as_json:
        facts = _facts(repository, dry_run)
        print_json(facts | {"would_run": would_run} if dry_run else facts)
        return
    print_build(repository, dry_run)
    if dry_run:
        _print_commands(repository)
    for model, files in would_run.items():
        note(f"would run: {model}: {', '.join(files)}")


@contextmanager
def _reporting(many: bool, root: Path, as_json: bool) -> Iterator[Announcing]:
    """Show progress; a build that ends early prints its measurements after its bars."""
    from tritonkit.cli.progress import Announcing, progress

    shown = Announcing()
    try:
        with progress(many) as shown:
            yield shown
    except TritonkitError:
        # What was measured is what was wanted; the error follows.
        if not as_json and len(shown.results) > 1:
            print_variants(shown.results)
        raise
    except KeyboardInterrupt:
        note(f"interrupted: {_left(shown, root)}")
        raise


def _left(shown: Announcing, root: Path) -> str:
    """The state that an interrupted build leaves, and its use for the next build."""
    if shown.published:
        return "the models were being published: each is whole, the old one or the new; build again"
    cache = root / ".tritonkit" / "cache"
    return (
        f"nothing was published; finished variants and trained weights are kept in {cache},"
        " and the next build goes on from there"
    )


def _print_commands(repository: Repository) -> None:
    """Print the commands by which NVIDIA's own tool would build the plans."""
    from tritonkit.repository.inspection import declared_signature
    from tritonkit.repository.optimize.variants.tensorrt_plan import trtexec_command

    specs = {spec.name: spec for spec in repository.specs}
    for result in repository.results:
        form = result.variant.rpartition("+")[2]
        if form.startswith("tensorrt-"):
            spec = specs[result.model]
            signature = result.artifact.signature if result.artifact else declared_signature(spec)
            # FP32 needs no typed copy of the network.
            file = Path("model.onnx" if form == "tensorrt-fp32" else "network.onnx")
            words = trtexec_command(spec, signature, form, file)
            note(f"{result.model} {result.variant}: {shlex.join(words)}")


def print_build(repository: Repository, dry_run: bool = False) -> None:
    """Print the build table: each network, and its quality compared with its reference."""
    served = [r for r in repository.results if repository.served.get(r.model) == r.variant]
    if len(repository.results) > len({result.model for result in repository.results}):
        print_variants(repository.results, repository.served)
    else:
        print_table("Build", COLUMNS, [build_row(result) for result in repository.results])
    changed = [change for change in repository.changes if change.action != "unchanged"]
    for change in changed:
        version = f" {change.version}" if change.action == "new version" else ""
        note(f"{'would publish' if dry_run else 'published'}: {change.model}: {change.action}{version}")
    if not changed and len(served) == len({r.model for r in repository.results}):
        note(f"{repository.path}: nothing to change")
    for text in repository.notes:
        note(f"note: {text}")


def _facts(repository: Repository, dry_run: bool) -> dict[str, Any]:
    return {
        "repository": str(repository.path),
        "dry_run": dry_run,
        "models": [{**r.to_dict(), "served": repository.served.get(r.model) == r.variant} for r in repository.results],
        "changes": [vars(change) for change in repository.changes],
        "notes": repository.notes,
        "failed": {name: error.to_dict() for name, error in repository.failed.items()},
    }


def _print_check(different: dict[str, tuple[str, str]], as_json: bool) -> None:
    diffs = {
        path: "".join(
            difflib.unified_diff(now.splitlines(keepends=True), fresh.splitlines(keepends=True), "tracked", "rendered")
        )
        for path, (now, fresh) in different.items()
    }
    if as_json:
        print_json({"different": diffs})
    if not diffs:
        note("tracked configuration and a fresh render agree")
        return
    raise RenderError(
        ", ".join(diffs),
        found=f"{len(diffs)} tracked files differ from a fresh render",
        todo="run python tools/build_repo.py and commit what it wrote",
        details="\n".join(diffs.values()),
    )
