"""`torchscript`: traced and frozen; `torch-compile`: compiled ahead of time by AOTInductor.

Triton's native pytorch backend serves TorchScript. A compiled package is faster, but bound to the
version of torch and the processor it was made with. A model.py next to it serves it under Triton's
python backend, because the native backend does not batch such packages.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.datatypes import DATATYPES
from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.export.torch_module import outputs_of, to_tensors
from tritonkit.repository.export.torch_onnx import dynamic_shapes, explain
from tritonkit.repository.modelspec import Spec
from tritonkit.resources import shipped
from tritonkit.text import first_line

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["TENSORS", "make_compiled", "make_torchscript"]

TENSORS = "tensors.json"
"""File with the names of the inputs and outputs in the order of forward, which neither model file has."""


def make_torchscript(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.pt: the network traced at a batch of 3 and frozen, for any batch size."""
    torch, spec = need("torch", "build"), job.spec
    _check_dtypes(job)
    module = _positional(torch, job.module())
    try:
        # TorchScript is deprecated, and still what Triton's pytorch backend loads; tracing warns about every
        # size it reads, which the comparison with the reference judges better.
        with quiet(), torch.no_grad():
            traced = torch.jit.trace(module, to_tensors(job.spec, job.example), check_trace=False)
            frozen = torch.jit.freeze(traced.eval())
    except (RuntimeError, ValueError, TypeError) as error:
        raise BuildError(
            f"{spec.file} network.torch",
            found=f"torch.jit.trace could not follow it: {first_line(error)}",
            wanted="a network of tensors without control flow on their values",
            todo="choose a variant made from ONNX",
        ) from error
    arguments = [argument.name for argument in frozen.forward.schema.arguments[1:]]
    _check_names(spec, list(spec.model.network.inputs), arguments, "inputs")
    _check_names(spec, list(spec.model.network.outputs), (), "outputs")
    content = io.BytesIO()
    with quiet():
        torch.jit.save(frozen, content)
    # Written by Python, which raises OSError on a full disk: torch's own writer ends the process there.
    (folder / "model.pt").write_bytes(content.getbuffer())
    _write_tensors(spec, folder)
    return (f"traced by PyTorch {torch.__version__}, with the batch size free",)


def make_compiled(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.pt2, and the Python that serves it."""
    torch, spec = need("torch", "build"), job.spec
    _check_dtypes(job)
    _check_compiler(spec)
    module, example = _positional(torch, job.module()), to_tensors(job.spec, job.example)
    shapes = (dynamic_shapes(torch, spec, job.batched),)  # of *inputs, one argument
    job.say("exporting")
    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(module, example, dynamic_shapes=shapes)
    except Exception as error:
        raise explain(spec, error) from error
    job.say("compiling")
    package, content = folder / "model.pt2", io.BytesIO()
    with quiet(), torch.no_grad(), _compiler_blamed(spec):
        need("torch._inductor", "build").aoti_compile_and_package(
            program, package_path=content, inductor_configs=_CONFIG
        )
    package.write_bytes(content.getbuffer())  # written by Python, as above
    _write_tensors(spec, folder)
    _copy_server(folder)
    described = need("torch._inductor", "build").aoti_load_package(str(package)).get_metadata()
    return (
        f"compiled by PyTorch {torch.__version__} for {described.get('AOTI_CPU_ISA', 'this processor')}:"
        " it runs under that version, on such processors",
    )


_CONFIG = {
    # Weights are constants: normalization folds into them, and they are packed once.
    "freezing": True,
    # The server sets the threads, not the machine that compiled.
    "cpp.dynamic_threads": True,
    # Names for the profiler; without one running they cost nothing that could be measured.
    "cpp.enable_kernel_profile": True,
}


def _positional(torch: Any, module: Any) -> Any:
    """The module with a tensor or a tuple of tensors as its result, as both formats require."""

    class Positional(torch.nn.Module):  # type: ignore[misc]  # torch comes in through `need`
        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, *inputs: Any) -> Any:
            outputs = outputs_of(self.network, inputs)
            return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return Positional().eval()


def _check_dtypes(job: Job) -> None:
    carried = sorted(row.name for row in DATATYPES.values() if row.torch is not None)
    for tensor in (*job.signature.inputs, *job.signature.outputs):
        if DATATYPES[tensor.dtype].torch is None:
            raise BuildError(
                f"{job.spec.file} network",
                found=f"{tensor.name} is {tensor.dtype}",
                wanted=f"one of {', '.join(carried)}: what Triton's pytorch backend has tensors for",
                todo="convert it in the network, or choose a variant made from ONNX",
            )


def _check_names(spec: Spec, names: list[str], arguments: Sequence[str], side: str) -> None:
    """Refuse names that Triton's pytorch backend would assign to another position.

    Its rule (GetNamingConvention): if all names are arguments of forward, they are matched by name. If all
    end in `__N`, they go to position N. Otherwise their order counts.
    """
    places = list(range(len(names)))
    parts = [name.partition("__") for name in names]
    if set(names) <= set(arguments):
        places = [arguments.index(name) for name in names]
    elif all(mark and not rest.strip("0123456789") for _, mark, rest in parts):
        places = [int(rest or 0) for _, _, rest in parts]
    if places != list(range(len(names))):
        raise BuildError(
            f"{spec.file} network.{side}",
            found=f"{names}, which Triton's pytorch backend takes for numbers {places}",
            wanted="names other than those of other arguments, and no __N except the argument's own position",
            todo="rename them",
        )


def _check_compiler(spec: Spec) -> None:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BuildError(
            f"{spec.file} variant torch-compile",
            found=f"there is no C++ compiler {compiler!r}, which AOTInductor compiles with",
            todo="apt-get install g++ (Debian and Ubuntu), or name one with CXX",
        )


@contextlib.contextmanager
def _compiler_blamed(spec: Spec) -> Iterator[None]:
    """Raise BuildError with the C++ compiler's message, which torch reports below its command line."""
    try:
        yield
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if " error: " in line]
        if not lines:
            raise
        raise BuildError(
            f"{spec.file} variant torch-compile",
            found=f"the C++ compiler failed: {lines[0]}",
            wanted="a C++20 compiler, and disk space for its files",
            todo="free space, set TMPDIR to a larger disk, or name another compiler with CXX",
            details="\n".join(lines[1:5]),
        ) from error


def _write_tensors(spec: Spec, folder: Path) -> None:
    network = spec.model.network
    names = {"inputs": list(network.inputs), "outputs": list(network.outputs)}
    (folder / TENSORS).write_text(json.dumps(names) + "\n")


def _copy_server(folder: Path) -> None:
    """Copy model.py for Triton's python backend with the modules it imports; a published model needs nothing else."""
    python = shipped("python_backends")
    backends = python / "backends"
    modules = (*backends.glob("backend_*.py"), *backends.glob("pytorch/pytorch_*.py"))
    for file in (python / "torch_compile" / "model.py", *modules):
        shutil.copyfile(file, folder / file.name)
