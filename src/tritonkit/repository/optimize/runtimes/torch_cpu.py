"""PyTorch on the CPU: TorchScript files and compiled packages, as their Triton models run them."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.samples import Batch, cannot_run
from tritonkit.repository.optimize.runner import OperatorTime
from tritonkit.text import first_line

__all__ = ["open_runner"]


class _Function:
    """A network that takes and gives tensors in the order of `inputs` and `outputs`."""

    def __init__(self, call: Any, inputs: list[str], outputs: list[str], threads: int, where: str) -> None:
        self._call = call
        self._inputs = inputs
        self._outputs = outputs
        self._threads = threads
        self._where = where
        self._torch = need("torch", "build")

    def run(self, batch: Batch) -> Batch:
        """Outputs by name."""
        tensors = [self._torch.from_numpy(batch[name]) for name in self._inputs]
        try:
            with self._on_threads(), self._torch.inference_mode():
                returned = self._call(*tensors)
        except Exception as error:  # RuntimeError mostly, and whatever an operator raises
            raise cannot_run(self._where, "PyTorch", batch, first_line(error)) from error
        results = list(returned) if isinstance(returned, tuple | list) else [returned]
        return {n: r.numpy() for n, r in zip(self._outputs, results, strict=True)}

    def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
        """Mean own time of each operator, slowest first, by torch.profiler.

        Operators of one name are added up, because neither format keeps the names of layers.
        """
        self.run(batch)
        # Otherwise it prints to standard error when it starts and stops (libkineto, its level USDT is 5).
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            profiler = need("torch.profiler", "build")
            activities = [profiler.ProfilerActivity.CPU]
            with profiler.profile(activities=activities) as record:
                for _ in range(repeats):
                    self.run(batch)
            averages = record.key_averages()
        times = [
            OperatorTime(average.key, _kind(average.key), average.self_cpu_time_total / 1000 / repeats)
            for average in averages
            if average.self_cpu_time_total > 0
        ]
        return sorted(times, key=lambda operator: -operator.ms)

    @contextlib.contextmanager
    def _on_threads(self) -> Iterator[None]:
        """Set PyTorch's number of threads, which holds for the whole process, and restore it afterwards."""
        before = self._torch.get_num_threads()
        self._torch.set_num_threads(self._threads)
        try:
            yield
        finally:
            self._torch.set_num_threads(before)


def _kind(key: str) -> str:
    """The operator's kind: `aten::conv2d` -> conv2d, `cpp_fused_relu_3` -> cpp_fused_relu."""
    return key.rpartition("::")[2].rstrip("0123456789").rstrip("_")


def open_runner(folder: Path, threads: int, where: str) -> _Function:
    """The model.pt or model.pt2 in `folder`."""
    torch = need("torch", "build")
    names = json.loads((folder / "tensors.json").read_text())
    script, package = folder / "model.pt", folder / "model.pt2"
    file = script if script.is_file() else package
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that TorchScript is deprecated
            if file == script:
                call = torch.jit.load(file, map_location="cpu")
            else:
                call = need("torch._inductor", "build").aoti_load_package(str(file))
    except Exception as error:
        raise BuildError(
            where,
            found=f"PyTorch {torch.__version__} cannot load {file.name}: {first_line(error)}",
            wanted="the version and a processor like those it was made with",
            todo="build it again with --force",
        ) from error
    return _Function(call, names["inputs"], names["outputs"], threads, where)
