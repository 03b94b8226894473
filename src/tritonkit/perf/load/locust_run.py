"""One load against a running server: Locust in a separate process, and its outcome as a value."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import ClientError, TritonkitError, UsageError
from tritonkit.perf.load.gpu import GpuWatch
from tritonkit.perf.load.kinds import SEQUENCE_CALLS
from tritonkit.perf.load.report import Report
from tritonkit.resources import own_or_shipped

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["THRESHOLDS", "LoadOutcome", "LoadPlan", "run_load"]

THRESHOLDS = "loadtest/thresholds.yaml"
"""The file with limits, in a project or else as it is shipped."""

_REPORT = "report.json"
_MARGIN_S = 60.0  # for a start, the last answers and the reports
_STOP_S = 10.0
_ERRORS: dict[int, type[TritonkitError]] = {2: UsageError, 5: ClientError}


@dataclass(frozen=True)
class LoadPlan:
    """The requests of a load, their server, and the limits that apply.

    Args:
        root: the project; the shipped load test is used if it has no `loadtest/locustfile.py`.
        models: names of models in `models/` that the server serves.
        address: the server's gRPC address.
        http_address: its HTTP address: half of the users then call over that.
        users: concurrent callers, each waiting for its answer.
        duration_s: whole seconds above 0.
        shape: a key of `tritonkit.perf.load.SHAPES`.
        think_time_us: a user's mean pause between an answer and its next request.
        thresholds: the file with limits; `THRESHOLDS` by default.
        tier: judge every model by this tier of that file instead.
        report: a folder for report.html, report.json and Locust's CSV files; None keeps none.
        inputs: inputs of the only model as on the command line, NAME=VALUE; otherwise those of its workload.
        outside: whether the models need no folder in `models/`, because the server knows them.
        sequence_calls: calls of each sequence, for models that keep state.
        metrics: addresses of the servers' metrics, for the figures of GPUs.
    """

    root: Path
    models: tuple[str, ...]
    address: str
    http_address: str | None = None
    users: int = 20
    duration_s: int = 20
    shape: str = "steady"
    think_time_us: int = 100_000
    thresholds: Path | None = None
    tier: str | None = None
    report: Path | None = None
    inputs: tuple[str, ...] = ()
    outside: bool = False
    sequence_calls: int = SEQUENCE_CALLS
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadOutcome:
    """The report of a load, and one line for each limit that was missed."""

    report: Report
    missed: tuple[str, ...]
    interrupted: bool = False
    """Whether the load was ended early; the figures then cover the requests that were sent."""


def run_load(plan: LoadPlan) -> LoadOutcome:
    """Run a load to its end. An interrupt (Ctrl-C) ends it early; before anything was counted it is raised.

    Raises:
        UsageError: Locust or the project's locustfile is missing, or something in the plan is wrong.
        ClientError: the server does not answer, or does not serve a model.
        TritonkitError: Locust ended without a report for another reason.
    """
    file = own_or_shipped(plan.root, "loadtest/locustfile.py")
    if importlib.util.find_spec("locust") is None:
        raise UsageError("Locust", found="it is not installed", todo='pip install "tritonkit[loadtest]"')
    with _folder(plan) as folder:
        report = folder / _REPORT
        report.unlink(missing_ok=True)
        with GpuWatch(plan.metrics) as gpus:
            code, output, interrupted = _run(_command(plan, file, folder), plan)
        if not report.is_file():
            if interrupted:
                raise KeyboardInterrupt
            raise _failure(code, output)
        facts = json.loads(report.read_text(encoding="utf-8"))
        load = _with_gpus(Report.from_dict(facts), facts.get("began_at"), gpus)
        report.write_text(json.dumps(facts | load.to_dict(), indent=1) + "\n", encoding="utf-8")
    if interrupted and not load.series:
        raise KeyboardInterrupt
    return LoadOutcome(load, tuple(facts["missed"]), interrupted)


def _with_gpus(load: Report, began_at: float | None, gpus: GpuWatch) -> Report:
    """The report with the figures of GPUs; without them if an older locustfile does not say when the run began."""
    return load if began_at is None else replace(load, gpu=gpus.report(began_at, load.duration_s, load.right))


@contextlib.contextmanager
def _folder(plan: LoadPlan) -> Iterator[Path]:
    if plan.report is None:
        with tempfile.TemporaryDirectory(prefix="tritonkit-load-") as folder:
            yield Path(folder)
        return
    try:
        plan.report.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(str(plan.report), found=f"it cannot be made: {error.strerror}", wanted="a folder") from None
    yield plan.report


def _command(plan: LoadPlan, file: Path, folder: Path) -> list[str]:
    thresholds = plan.thresholds or own_or_shipped(plan.root, THRESHOLDS)
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(file),
        "--headless",
        "--only-summary",
        "--loglevel",
        "WARNING",
        "--host",
        plan.address,
        "--users",
        str(plan.users),
        "--spawn-rate",
        str(plan.users),
        "--run-time",
        f"{plan.duration_s}s",
        "--stop-timeout",
        "5",
        "--models",
        ",".join(plan.models),
        "--shape",
        plan.shape,
        "--think-time",
        f"{plan.think_time_us}us",
        "--thresholds",
        str(thresholds),
        "--report-json",
        str(folder / _REPORT),
    ]
    command += [f"--input={text}" for text in plan.inputs]
    if plan.sequence_calls != SEQUENCE_CALLS:  # a locustfile of the project's own may not know it
        command += ["--sequence-calls", str(plan.sequence_calls)]
    if plan.outside:
        command += ["--outside"]
    if plan.tier is not None:
        command += ["--tier", plan.tier]
    if plan.report is not None:
        command += ["--html", str(folder / "report.html"), "--csv", str(folder / "locust")]
    if plan.http_address is None:
        return [*command, "TritonUser"]
    return [*command, "--http-host", plan.http_address, "TritonUser", "RestUser"]


def _run(command: list[str], plan: LoadPlan) -> tuple[int, str, bool]:
    """Exit code, standard error, and whether it was interrupted.

    Locust is in a process group of its own, so that it gets one interrupt, from here: a second one while it writes its
    report would lose the figures.
    """
    # A setting for another run of Locust must not change this one.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LOCUST_", "LOADTEST_"))}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=plan.root,
        env=env,
        process_group=0,
    ) as process:
        try:
            output = process.communicate(timeout=plan.duration_s + _MARGIN_S)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise TritonkitError(
                "Locust", found=f"still running {_MARGIN_S:.0f} s after the run should have ended"
            ) from None
        except KeyboardInterrupt:
            return process.returncode, _interrupt(process), True
        except BaseException:
            process.kill()
            raise
    return process.returncode, output, False


def _interrupt(process: subprocess.Popen[str]) -> str:
    """End Locust, which then counts up and writes its report; a second interrupt, or silence, ends it immediately."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=_STOP_S)[1]
    except subprocess.TimeoutExpired:
        return ""
    finally:
        process.kill()


def _failure(code: int, output: str) -> TritonkitError:
    """The error for a run without a report, with the locustfile's message if it printed one."""
    lines = output.strip().splitlines()
    reason = next((line for line in lines if line.startswith("error: ")), "")
    return _ERRORS.get(code, TritonkitError)(
        "Locust",
        found=reason.removeprefix("error: ") or f"it ended with exit code {code} and no report",
        details="" if reason else "\n".join(lines[-12:]),
    )
