"""PyTorch: TorchScript files, exported programs and compiled packages, as their Triton models run them.

All run on the CPU, except for packages that were compiled for a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.samples import Batch, cannot_run
from tritonkit.repository.optimize.runner import OperatorTime
from tritonkit.repository.optimize.variants.torch_compile import PACKAGE, package_notes
from tritonkit.repository.optimize.variants.torch_export import PROGRAM, TENSORS
from tritonkit.text import first_line

__all__ = ["function_of", "open_runner"]


@dataclass(frozen=True)
class _Function:
    """A network that takes and gives tensors in the order of `inputs` and `outputs`, on a device."""

    torch: Any
    call: Any
    inputs: list[str]
    outputs: list[str]
    threads: int
    where: str
    device: str

    def run(self, batch: Batch) -> Batch:
        """Outputs by name."""
        try:
            with self._settings(), self.torch.inference_mode():
                tensors = [self.torch.from_numpy(batch[name]).to(self.device) for name in self.inputs]
                returned = self.call(*tensors)
                results = list(returned) if isinstance(returned, tuple | list) else [returned]
                arrays = [result.cpu().numpy() for result in results]
        except Exception as error:  # RuntimeError mostly, and whatever an operator raises
            raise cannot_run(self.where, "PyTorch", batch, first_line(error)) from error
        if len(arrays) != len(self.outputs):
            raise BuildError(
                self.where,
                found=f"the network gives {len(arrays)} outputs, and {len(self.outputs)} are named: {self.outputs}",
                wanted="a name for each output, in the order in which it gives them",
                todo="correct network.outputs",
            )
        return dict(zip(self.outputs, arrays, strict=True))

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
            kinds = profiler.ProfilerActivity
            activities = [kinds.CPU] if self.device == "cpu" else [kinds.CUDA]
            with profiler.profile(activities=activities) as record:
                for _ in range(repeats):
                    self.run(batch)
            averages = record.key_averages()
        total = "self_cpu_time_total" if self.device == "cpu" else "self_device_time_total"
        times = [
            OperatorTime(average.key, _kind(average.key), getattr(average, total) / 1000 / repeats)
            for average in averages
            if getattr(average, total) > 0
        ]
        return sorted(times, key=lambda operator: -operator.ms)

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        """Set PyTorch's number of threads, and FP32 products as FP32; both hold for the process, so restore them."""
        threads, libraries = self.torch.get_num_threads(), (self.torch.backends.cuda.matmul, self.torch.backends.cudnn)
        before = [library.allow_tf32 for library in libraries]
        self.torch.set_num_threads(self.threads)
        for library in libraries:
            library.allow_tf32 = False
        try:
            yield
        finally:
            self.torch.set_num_threads(threads)
            for library, allowed in zip(libraries, before, strict=True):
                library.allow_tf32 = allowed


def _kind(key: str) -> str:
    """The operator's kind: `aten::conv2d` -> conv2d, `cpp_fused_relu_3` -> cpp_fused_relu."""
    return key.rpartition("::")[2].rstrip("0123456789").rstrip("_")


def function_of(call: Any, inputs: list[str], outputs: list[str], threads: int, where: str) -> _Function:
    """A loaded network on the CPU, which takes and gives tensors in the order of these names."""
    return _Function(need("torch", "build"), call, inputs, outputs, threads, where, "cpu")


def open_runner(folder: Path, threads: int, where: str) -> _Function:
    """The model's file in `folder`: the first of `_LOADERS` that is there."""
    torch = need("torch", "build")
    names = json.loads((folder / TENSORS).read_text())
    file = next(folder / name for name in _LOADERS if (folder / name).is_file())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that TorchScript is deprecated
            call, device = _LOADERS[file.name](torch, file)
    except Exception as error:
        raise BuildError(
            where,
            found=f"PyTorch {torch.__version__} cannot load {file.name}: {first_line(error)}",
            wanted="the version and a processor like those it was made with",
            todo="build it again with --force",
        ) from error
    return _Function(torch, call, names["inputs"], names["outputs"], threads, where, device)


def _script(torch: Any, file: Path) -> tuple[Any, str]:
    return torch.jit.load(file, map_location="cpu"), "cpu"


def _program(torch: Any, file: Path) -> tuple[Any, str]:
    return torch.export.load(file).module(), "cpu"


def _package(torch: Any, file: Path) -> tuple[Any, str]:
    """The package's function, and the device that it was compiled for."""
    package = torch._C._aoti.AOTIModelPackageLoader(str(file), "model", False, 1, -1)
    return lambda *tensors: package.boxed_run(list(tensors)), package_notes(torch, file)["AOTI_DEVICE_KEY"]


_LOADERS = {"model.pt": _script, PROGRAM: _program, PACKAGE: _package}
"""Names of files -> functions that give the network of one, and its device."""
