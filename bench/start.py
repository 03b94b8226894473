"""Seconds until a pod is ready, by phase: fetching, verifying, loading, warming."""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import text_format

from bench.docker import IMAGE, command, container, give, logs, user
from bench.report import Ratio
from tritonkit.machine import cores
from tritonkit.serve.repository import parse_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["start_round", "start_shares"]

_COLD = "cold"
PHASES = ("fetch", "verify", "start", "load", "warm", "verify again, in parallel")
_FETCHED = re.compile(r"fetched in ([0-9.]+) s, verified in ([0-9.]+) s")
_READY = re.compile(r"ready after [0-9.]+ s: checked in ([0-9.]+) s, loaded and warmed in ([0-9.]+) s")


def start_round(repository: Path) -> dict[str, float]:
    """Seconds of each phase, by one init container and three starts of its files: like a pod's, without verifying
    again, and also without warm-up requests. Their differences are the phases that Triton does not tell apart."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        models.mkdir()
        give(models)
        Path(folder).chmod(0o711)
        printed = command(
            "docker",
            "run",
            "--rm",
            "--read-only",
            "--cap-drop",
            "ALL",
            *user(),
            f"--cpus={cores()}",
            "--memory=256m",
            "--volume",
            f"{repository}:/source:ro",
            "--volume",
            f"{models}:/models",
            "--entrypoint",
            "python3",
            IMAGE,
            "-IS",
            "/opt/tritonkit/fetch.py",
        )
        fetch, verify = map(float, _found(_FETCHED, printed))
        began, whole = _started(models)
        _, unverified = _started(models, "--no-verify")
        _write_cold(models)
        _, cold = _started(models, "--no-verify", f"--model-config-name={_COLD}")
    seconds = (fetch, verify, began, cold, unverified - cold, whole - unverified)
    return dict(zip(PHASES, seconds, strict=True))


def start_shares(rounds: Sequence[Mapping[str, float]]) -> list[Ratio]:
    """Each phase's share of the whole."""
    made = []
    for phase in PHASES:
        seconds = [times[phase] for times in rounds]
        figures = [round(value, 2) for value in (statistics.median(seconds), min(seconds), max(seconds))]
        made.append(
            Ratio(
                f"pod's start, {phase}, of the whole",
                [times[phase] / sum(times.values()) for times in rounds],
                facts={"s, median, min, max": figures},
            )
        )
    return made


def _started(models: Path, *words: str) -> tuple[float, float]:
    """Seconds until Triton was started, and from then until every model answered."""
    with container(models, cores(), words=("--no-http", *words)) as name:
        checked, loaded = map(float, _found(_READY, logs(name)))
        return checked, loaded


def _found(pattern: re.Pattern[str], printed: str) -> tuple[str, ...]:
    match = pattern.search(printed)
    if match is None:
        raise ValueError(f"{pattern.pattern} is not in {printed[-1000:]}")
    return match.groups()


def _write_cold(models: Path) -> None:
    """Configurations without warm-up, under a name of their own."""
    for file in sorted(models.glob("*/config.pbtxt")):
        config = parse_config(file)
        config.ClearField("model_warmup")
        named = file.parent / "configs" / f"{_COLD}.pbtxt"
        named.parent.mkdir(exist_ok=True)
        named.write_text(text_format.MessageToString(config))
        shutil.copymode(file, named)
