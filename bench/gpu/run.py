"""A run of `make gpu`: its steps, its result, its tables. Standard library only."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.gpu.bundle import build
from bench.gpu.goals import unreached
from bench.gpu.places import ROOT, Place, find_card
from bench.gpu.steps import Outcome, Refusal, State, Step, run_steps
from bench.gpu.tables import tables
from bench.pages import between

__all__ = ["SECONDS", "check_room", "run", "steps", "summary", "testable"]

PAGE = ROOT / "docs" / "gpu.md"
SECONDS = 470.0
_FREE_BYTES = 6_000_000_000
"""The environments with CUDA's libraries, and the wheels while they are unpacked."""
_ENDING_S = 25.0
"""The end of a server and of the last load, after the time to begin another one."""
_GOALS_S = 140.0
"""Time that is kept for the server and a first round of the goals."""
_FIRST = ("test_device", "test_serving", "test_judging")
"""Files whose tests come first, since the last may find no time."""
_NO_CARD = {"name": "No GPU (a rehearsal on the CPU, whose figures mean nothing)", "driver": "none"}


def steps(place: Place) -> list[Step]:
    """The steps of a run."""

    def models(limit: float) -> None:
        if not place.is_bundled:
            build(place, limit)
        if place.torch_python():  # the machine that built a bundle may have none
            add_eager(place.repository)

    def variants(limit: float) -> None:
        if not place.is_bundled:
            build(place, limit, "--variants")

    def serving(limit: float) -> None:
        rows = place.folder / "rows.json"
        rows.unlink(missing_ok=True)
        words = [place.client, "-m", "bench.gpu.serving", place.repository, "--out", rows, "--root", place.folder]
        words += ["--server-python", place.server / "bin" / "python", *place.torch_python()]
        words += ["--limit", str(max(1.0, limit - _ENDING_S)), *(["--rehearse"] if place.rehearse else [])]
        place.run(limit, *words)

    def tests(limit: float) -> None:
        words = [place.client, "-m", "pytest", "-p", "no:cacheprovider", *testable(place)]
        place.run(limit, *words, TEST_LANE="gpu", TRITONKIT_GPU_REPOSITORY=str(place.repository))

    return [
        Step("environment", f"Python environments in {place.folder}", 200, place.environments),
        Step("models", "ResNet-50, an encoder and an MLP", 90, models, ("environment",)),
        Step("variants", "ResNet-50 in TF32 and INT8", 60, variants, ("environment", "models"), spare=_GOALS_S),
        Step("serving", "the engine in process and the server in turns", 215, serving, ("environment", "models")),
        Step("tests", "those marked gpu", 120, tests, ("environment",)),
    ]


def testable(place: Place) -> list[str]:
    """The files of tests whose packages the client's Python has, in the order of `_FIRST`; a line names the others."""
    every = {file.stem: file for file in sorted((ROOT / "tests" / "gpu").glob("test_*.py"))}
    files = {name: every[name] for name in (*_FIRST, *every)}
    for package in ("torch", "onnx"):
        if place.imports(package):
            continue
        absent = [
            name for name, file in files.items() if re.search(rf"(?m)^(import|from) {package}\b", file.read_text())
        ]
        files = {name: file for name, file in files.items() if name not in absent}
        if absent:
            print(f"Not tested, because this Python has no {package}: {', '.join(absent)}", flush=True)
    return [str(file.relative_to(ROOT)) for file in files.values()]


def add_eager(repository: Path) -> None:
    """Add eager PyTorch as a Python model."""
    version = repository / "resnet50_eager" / "1"
    version.mkdir(parents=True, exist_ok=True)
    source = ROOT / "bench" / "gpu" / "eager"
    shutil.copy(source / "config.pbtxt", version.parent)
    shutil.copy(source / "model.py", version)
    shutil.copy(ROOT / "models" / "resnet50" / "network.py", version)


def check_room(folder: Path) -> None:
    """Refuse a disk without room for the environments.

    Raises:
        Refusal: there is too little.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < _FREE_BYTES:
        raise Refusal(
            f"{folder}: {free / 1e9:.1f} GB are free, and the environments need {_FREE_BYTES / 1e9:.0f} GB;"
            " free some, or name another place with --folder"
        )


def run(place: Place, *, resume: bool, seconds: float = SECONDS, out: Path | None = None, page: Path = PAGE) -> int:
    """Run the steps, print the tables, and put them into the page; the exit code.

    Args:
        place: where it runs, and on what.
        resume: keep what an interrupted run has done; else only the environments are kept.
        seconds: the time of all steps together.
        out: a file for the result as JSON.
        page: the page with the tables; a rehearsal writes none.

    Raises:
        Refusal: nothing can run.
    """
    card = dict(_NO_CARD) if place.rehearse else find_card()
    if not (place.server / "bin").is_dir():
        check_room(place.folder)
    state = State.read(place.folder / "state.json", place.key(card))
    if not resume:
        state.done.clear()
    print(f"{card['name']}, driver {card['driver']}", flush=True)
    outcomes = run_steps(steps(place), state, seconds)
    result = {"card": card, "date": datetime.now(UTC).date().isoformat(), **_rows(place, outcomes)}
    result["steps"] = {name: vars(outcome) for name, outcome in outcomes.items()}
    text = tables(result)
    print(f"\n{text}\n")
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")
    if not place.rehearse and result["rows"]:
        page.write_text(between(page.read_text(), text, "make gpu"))
    print(*summary(outcomes, result["rows"], place.rehearse), sep="\n", flush=True)
    failed = any(outcome.problem for outcome in outcomes.values())
    return int(failed or (not place.rehearse and bool(unreached(result["rows"]))))


def _rows(place: Place, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The figures of this run, also those of a step that did not reach its end."""
    if outcomes["serving"].problem.startswith("not run"):
        return {"rows": []}
    with suppress(OSError, ValueError):
        content: dict[str, Any] = json.loads((place.folder / "rows.json").read_text())
        return content
    return {"rows": []}


def summary(outcomes: Mapping[str, Outcome], rows: list[Mapping[str, Any]], rehearse: bool) -> list[str]:
    """The last lines: the steps, and the goals that were not reached."""
    lines = [
        f"{name:12} {outcome.problem or ('done before' if outcome.kept else 'done')}"
        + (f", {outcome.seconds:.0f} s" if outcome.seconds else "")
        for name, outcome in outcomes.items()
    ]
    missed = unreached(rows)
    if rehearse:
        lines.append("A rehearsal judges no goal.")
    elif missed:
        lines.append(f"Not reached: {'; '.join(missed)}")
    else:
        lines.append("Every goal is reached.")
    return lines
