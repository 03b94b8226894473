"""Start of a function: check every file, load the libraries and models."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tritonkit_lambda.errors import StartError
from tritonkit_lambda.integrity import Damage, verify_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np

    from tritonkit_lambda.models import ModelStep
    from tritonkit_lambda.protocol import CheckedRequest, ModelSignature

MIB_OF_A_CORE = 1769
"""Memory that comes with one vCPU: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html"""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Function:
    """A model that answers. `times_ms` says what its start took."""

    signature: ModelSignature
    steps: Sequence[ModelStep]
    about: str
    threads: int
    times_ms: dict[str, float]

    def run(self, request: CheckedRequest) -> dict[str, np.ndarray]:
        """The outputs that a request wants."""
        from tritonkit_lambda.models import run

        return run(self.steps, request.inputs, list(request.outputs))


def start(folder: Path) -> Function:
    """Open the function in a folder.

    Raises:
        StartError: a file is not as its manifest says, or a model cannot be opened.
    """
    # ONNX Runtime's wheels carry Microsoft's telemetry, which this keeps off if it is set before the first import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    times: dict[str, float] = {}
    check = _Check(folder)
    check.start()  # files are hashed while the libraries load, which come from elsewhere
    with _timed(times, "libraries"):
        import numpy  # noqa: F401
        import onnxruntime  # noqa: F401
    with _timed(times, "files_after_libraries"):
        check.join()
    times["files"] = check.ms
    if check.findings:
        for finding in check.findings:
            _log.error("%s", finding)
        raise StartError(
            f"{len(check.findings)} files are not as they were packaged; the first: {check.findings[0]}."
            " Build the image again: tritonkit deploy --target lambda"
        )
    with _timed(times, "models_python"):
        signature, steps, about = _read(folder)
    threads = vcpus()
    with _timed(times, "models"):
        for step in steps:
            step.model.open(threads)
    rounded = {name: round(took, 1) for name, took in times.items()}
    record = {"function": signature.name, "about": about, "threads": threads, "ms": rounded}
    print(json.dumps(record), flush=True)  # noqa: T201 - Lambda's log
    return Function(signature, steps, about, threads, times)


def vcpus() -> int:
    """Whole vCPUs of this function, which follow from its memory; without that setting, the cores it may use."""
    cores = len(os.sched_getaffinity(0))
    memory = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    if not memory.isdecimal():
        return cores
    return max(1, min(cores, round(int(memory) / MIB_OF_A_CORE)))


class _Check(threading.Thread):
    """`verify_folder` in a thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="verify", daemon=True)
        self._folder = folder
        # What could not be checked does not count as whole.
        self.findings = [Damage("", folder, "it was not verified", "a whole function")]
        self.ms = 0.0

    def run(self) -> None:
        """Run the thread's work; called by `start`."""
        began = time.perf_counter()
        self.findings = verify_folder(self._folder)
        self.ms = (time.perf_counter() - began) * 1000


def _read(folder: Path) -> tuple[ModelSignature, list[ModelStep], str]:
    """The facts of function.json, with the models' Python imported."""
    from tritonkit_lambda.models import VERSION, LoadedModel, ModelStep
    from tritonkit_lambda.protocol import ModelSignature

    facts: dict[str, Any] = json.loads((folder / "function.json").read_text(encoding="utf-8"))
    models = {}
    for part in facts["models"]:
        name = part["config"]["name"]
        own = folder / "models" / name
        file = folder / "backend" / "model.py" if part["backend"] else own / VERSION / "model.py"
        models[name] = LoadedModel(own, file, part["config"])
    steps = [ModelStep(models[step["model"]], step["inputs"], step["outputs"]) for step in facts["steps"]]

    def tensors(entries: list[dict[str, Any]]) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {entry["name"]: (entry["datatype"], tuple(entry["dims"])) for entry in entries}

    signature = ModelSignature(
        facts["name"], VERSION, facts["max_batch_size"], tensors(facts["inputs"]), tensors(facts["outputs"])
    )
    return signature, steps, f"{facts['variant']}, tritonkit {facts['tritonkit']}"


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    times[name] = (time.perf_counter() - began) * 1000
