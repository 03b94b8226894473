"""The TensorRT library of this machine: `tensorrt` with a GPU, or `tensorrt_rtx`, which builds ahead of time."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.optimize.gpu import find_gpu, why_no_gpu

__all__ = ["FP8_CAPABILITY", "Library", "Log", "choose_library", "serves_here"]

_OLDEST_CAPABILITY = 80  # Turing (7.5) has no FP32 matrix product in TensorRT-RTX
FP8_CAPABILITY = 89
"""The oldest compute capability with FP8: Ada. TensorRT-RTX refuses to build for older ones."""


@dataclass(frozen=True)
class Library:
    """A TensorRT library: `module` has the same API for both, and `gpu` is None if it builds ahead of time.

    A plan built ahead of time is for TensorRT-RTX's own runtime, and for the named compute capabilities.
    """

    module: Any
    gpu: str | None
    oldest: int = _OLDEST_CAPABILITY
    """The oldest compute capability to build for ahead of time, as 10 times the number."""

    @property
    def name(self) -> str:
        """Name and version, for people."""
        return f"{self.module.__name__} {self.module.__version__}"

    @property
    def file(self) -> str:
        """The plan's file name; Triton's tensorrt backend knows only model.plan."""
        return "model.plan" if self.gpu else "model.rtxplan"

    @property
    def capabilities(self) -> tuple[Any, ...]:
        """Compute capabilities to build for ahead of time: all that TensorRT-RTX supports from `oldest` on."""
        if self.gpu:
            return ()
        members = self.module.ComputeCapability.__members__.values()
        return tuple(member for member in members if int(member) >= self.oldest)


def serves_here() -> bool:
    """Whether plans made here run here, and in Triton's tensorrt backend on this machine."""
    return find_spec("tensorrt") is not None and find_gpu() is not None


def choose_library() -> Library:
    """The library that builds plans on this machine; BuildError that names the extra if there is none."""
    if serves_here():
        return Library(need("tensorrt", "tensorrt"), find_gpu())
    if find_spec("tensorrt_rtx") is None:
        gpu = find_gpu()
        raise BuildError(
            "import tensorrt" if gpu else "import tensorrt_rtx",
            found=f"TensorRT is not installed for the {gpu}"
            if gpu
            else f"there is no GPU ({why_no_gpu()}), and TensorRT-RTX, which needs none, is not installed",
            wanted="`tensorrt` on a machine with a GPU, `tensorrt_rtx` on any other",
            todo="pip install tensorrt" if gpu else "pip install 'tritonkit[tensorrt]'",
        )
    return Library(need("tensorrt_rtx", "tensorrt"), None)


class Log:
    """TensorRT's log, which keeps errors for a message to a person and drops all else."""

    def __init__(self, trt: Any) -> None:
        self.errors: list[str] = []
        errors = self.errors

        class Logger(trt.ILogger):  # type: ignore[misc]  # the library's classes have no types
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if int(severity) <= int(trt.ILogger.ERROR):
                    errors.append(message)

        self.logger = Logger()

    @property
    def first(self) -> str:
        """The first error, in one line; later errors are mostly its consequences."""
        return next(iter(self.errors[0].splitlines()), "") if self.errors else "no reason was given"

    @property
    def text(self) -> str:
        """The first errors, for the details of a message."""
        return "\n".join(line for error in self.errors for line in error.splitlines()[:4])[:2000]
