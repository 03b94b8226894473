"""`torchscript`: traced and frozen; `torch-export`: a program of torch.export.

Triton's native pytorch backend serves TorchScript, which PyTorch has deprecated. A program of torch.export is its
successor: a model.py next to it serves it under Triton's python backend.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
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

__all__ = [
    "PROGRAM",
    "TENSORS",
    "check_dtypes",
    "copy_server",
    "exported_program",
    "make_program",
    "make_torchscript",
    "write_names",
    "write_tensors",
]

PROGRAM = "program.pt2"

TENSORS = "tensors.json"
"""File with the names of the inputs and outputs in the order of forward, which neither model file has."""


def make_torchscript(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.pt: the network traced at a batch of 3 and frozen, for any batch size."""
    torch, spec = need("torch", "build"), job.spec
    check_dtypes(job)
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
    write_tensors(spec, folder)
    return (f"traced by PyTorch {torch.__version__}, with the batch size free",)


def make_program(job: Job, folder: Path) -> tuple[str, ...]:
    """Write program.pt2, and the Python that serves it on a CPU or a GPU."""
    torch = need("torch", "build")
    check_dtypes(job)
    program, content = exported_program(torch, job), io.BytesIO()
    program.example_inputs = None  # else they are written too
    with quiet():
        torch.export.save(program, content)
    (folder / PROGRAM).write_bytes(content.getbuffer())  # written by Python, as above
    write_tensors(job.spec, folder)
    copy_server("torch_export", folder)
    return (f"exported by PyTorch {torch.__version__}, with the batch size free",)


def exported_program(torch: Any, job: Job) -> Any:
    """The network as torch.export's ExportedProgram, with the batch and the spec's free axes free."""
    spec = job.spec
    module, example = _positional(torch, job.module()), to_tensors(spec, job.example)
    shapes = (dynamic_shapes(torch, spec, job.batched),)  # of *inputs, one argument
    job.say("exporting")
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(module, example, dynamic_shapes=shapes)
    except Exception as error:
        raise explain(spec, error) from error


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


def check_dtypes(job: Job) -> None:
    """BuildError for a tensor whose type PyTorch's backends do not have."""
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


def write_tensors(spec: Spec, folder: Path) -> None:
    """Write the names of inputs and outputs, which no file of PyTorch has."""
    write_names(list(spec.model.network.inputs), list(spec.model.network.outputs), folder)


def write_names(inputs: Sequence[str], outputs: Sequence[str], folder: Path) -> None:
    """Write these names, in the order of forward and of its results."""
    (folder / TENSORS).write_text(json.dumps({"inputs": inputs, "outputs": outputs}) + "\n")


def copy_server(name: str, folder: Path) -> None:
    """Copy a model.py of `python_backends` with the modules it imports; a published model needs nothing else."""
    python = shipped("python_backends")
    backends = python / "backends"
    modules = (*backends.glob("backend_*.py"), *backends.glob("pytorch/pytorch_*.py"))
    for file in (python / name / "model.py", *modules):
        shutil.copyfile(file, folder / file.name)
