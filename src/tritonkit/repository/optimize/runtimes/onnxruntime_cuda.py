"""ONNX Runtime's CUDA provider, in a process of the server environment: the library and the options that will serve."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import IO, Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.samples import Batch, cannot_run
from tritonkit.repository.optimize.gpu import CudaEnvironment
from tritonkit.resources import shipped, shipped_modules
from tritonkit.watched import step

__all__ = ["CudaRunner"]

_FOLDER = "python_backends/judging"
_SCRIPT = "cuda_session"
_PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONPATH")
"""Variables that would bring this environment's packages into the server's."""


class CudaRunner:
    """An ONNX file on the GPU; its process ends with this object.

    `version` is ONNX Runtime's, and `graphs` tells whether timed runs replay a CUDA graph.
    """

    def __init__(
        self,
        environment: CudaEnvironment,
        file: Path,
        options: Mapping[str, str],
        where: str,
        *,
        entries: Mapping[str, str] = MappingProxyType({}),
        operators: Sequence[Path] = (),
        graphs: bool,
    ) -> None:
        self._where = where
        self._errors: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  read when it fails
        self._process = subprocess.Popen(
            [environment.python, "-s", shipped(_FOLDER) / f"{_SCRIPT}.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={name: value for name, value in os.environ.items() if name not in _PYTHON_VARIABLES},
        )
        self._end = weakref.finalize(self, _end, self._process, self._errors)
        request: dict[str, Any] = {"file": str(file), "options": dict(options), "entries": dict(entries)}
        request["libraries"] = list(environment.libraries)
        request["operators"] = list(map(str, operators))
        with step(f"ONNX Runtime opens {file.name} on the GPU"):
            answer, _ = self._ask({"kind": "open", **request, "graphs": graphs}, {})
        if "error" in answer:
            raise BuildError(
                where,
                found=f"ONNX Runtime cannot open {file.name} on {environment.gpu}: {answer['error']}",
                wanted="a CUDA provider that loads, and a network that it takes",
                todo="tritonkit doctor shows whether the provider loads; or choose another variant",
                details=self._log(),
            )
        self.version: str = answer["version"]
        self.graphs: bool = answer["graphs"]

    def run(self, batch: Batch) -> Batch:
        """Outputs by name."""
        with step("ONNX Runtime runs the network on the GPU"):
            answer, outputs = self._ask({"kind": "run"}, batch)
        self._hold(answer, batch)
        return outputs

    def times_ms(self, batch: Batch, **limits: float) -> list[float]:
        """Milliseconds of runs, measured in the process that runs them."""
        with step("ONNX Runtime runs the network on the GPU"):
            answer, _ = self._ask({"kind": "times", **limits}, batch)
        self._hold(answer, batch)
        times: list[float] = answer["times_ms"]
        return times

    def _ask(self, request: dict[str, Any], arrays: Batch) -> tuple[dict[str, Any], Batch]:
        messages = _messages()
        assert self._process.stdin is not None  # noqa: S101  made with pipes
        assert self._process.stdout is not None  # noqa: S101
        received = None
        with contextlib.suppress(BrokenPipeError):
            messages.send(self._process.stdin, request, arrays)
            received = messages.receive(self._process.stdout)
        if received is None:
            code = self._process.wait()
            raise BuildError(
                self._where,
                found=f"the process that runs the network on the GPU ended with {code}",
                wanted="an answer to each request",
                todo="read its log below; the server with this network would end too",
                details=self._log(),
            )
        answer: tuple[dict[str, Any], Batch] = received
        return answer

    def _hold(self, answer: Mapping[str, Any], batch: Batch) -> None:
        if "error" in answer:
            raise cannot_run(self._where, "ONNX Runtime on the GPU", batch, answer["error"])

    def _log(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:].strip()


def _end(process: subprocess.Popen[bytes], errors: IO[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    process.kill()
    process.wait()
    errors.close()


def _messages() -> ModuleType:
    """The module of the process, whose messages are written and read here too."""
    (module,) = shipped_modules([_FOLDER], _SCRIPT)
    return module
