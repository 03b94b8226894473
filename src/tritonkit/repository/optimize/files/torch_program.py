"""A program of torch.export: names, types and shapes are in its archive, and a model.py next to it serves it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tritonkit.datatypes import DATATYPES, DataType
from tritonkit.extras import need
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.modelspec.base import MAX_SIZE
from tritonkit.repository.optimize.files.program_checks import hold_to_program
from tritonkit.repository.optimize.files.ready import Place, first_axis_missing, told
from tritonkit.repository.optimize.files.torch_archive import Archive
from tritonkit.repository.optimize.runner import Runner
from tritonkit.repository.optimize.runtimes.pytorch import function_of
from tritonkit.repository.optimize.variants.torch_export import PROGRAM, copy_server, write_names
from tritonkit.text import first_line
from tritonkit.watched import step

__all__ = ["ProgramFile"]

_MODEL = "models/model.json"
_OUTPUT = "output_{}"
_SYMBOL = re.compile(r"(?:Symbol\()?'?([a-z]+\d+)'?[^()]*\)?")


@dataclass(frozen=True)
class ProgramFile:
    """A program whose archive tells its inputs and outputs; it has no names for outputs."""

    place: Place
    tells = True

    def signature(self, batched: bool) -> Signature:
        """Inputs as forward names them; outputs as the spec names them, else output_0 and so on."""
        return told(self.place, *self._tensors, batched)

    def batch_axis_missing(self) -> str:
        """A sentence about a tensor without a free first axis."""
        return first_axis_missing(*self._tensors)

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The bounds of each symbol (torch.export.Dim)."""
        with self._archive.as_written():
            return {
                name: (one["min_val"] or 1, min(one["max_val"] or MAX_SIZE, MAX_SIZE))
                for name, one in self._program["range_constraints"].items()
            }

    @property
    def most_items(self) -> int:
        """The upper bound of the first axis; 0 where it has none."""
        first = {tensor.axis_names[0] for tensor in self._tensors[0] if tensor.shape}
        most = min((high for name, (_, high) in self.ranges.items() if name in first), default=MAX_SIZE)
        return 0 if most == MAX_SIZE else most

    def open(self, threads: int) -> Runner:
        """The program on the CPU."""
        return function_of(self._call, *self._names, threads, self.place.where)

    def write(self, folder: Path) -> tuple[str, ...]:
        """program.pt2, and the Python that serves it."""
        copy_file(self.place.path, folder / PROGRAM)
        copy_server("torch_export", folder)
        write_names(*self._names, folder)
        return ()

    @property
    def _names(self) -> tuple[list[str], list[str]]:
        inputs, outputs = self._tensors
        return [tensor.name for tensor in inputs], [tensor.name for tensor in outputs]

    @cached_property
    def _call(self) -> Any:
        _ = self._program  # checked before anything is loaded
        torch = need("torch", "build")
        try:
            with quiet(), step(f"PyTorch opens {self.place.name}"):
                return torch.export.load(self.place.path).module()
        except Exception as error:  # about the version, an operator or the file
            raise self.place.refusal(
                found=f"PyTorch {torch.__version__} cannot load {self.place.name}: {first_line(error)}",
                wanted="a program of this version, with PyTorch's own operators",
                todo="export it again with this PyTorch",
            ) from error

    @cached_property
    def _archive(self) -> Archive:
        return Archive(self.place)

    @cached_property
    def _program(self) -> Any:
        hold_to_program(self.place, self._archive)
        if _MODEL not in self._archive.names:
            models = sorted(name for name in self._archive.names if name.startswith("models/"))
            raise self.place.refusal(
                found=f"{self.place.name} holds {', '.join(models) or 'no program'}",
                wanted="one program, as torch.export.save writes it",
                todo="export it again: torch.export.save(program, FILE)",
            )
        return self._archive.read_json(_MODEL)

    @cached_property
    def _tensors(self) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
        with self._archive.as_written():
            return self._described(self._program["graph_module"])

    def _described(self, module: Any) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
        """Inputs and outputs in the JSON of a graph."""
        signature, values = module["signature"], module["graph"]["tensor_values"]
        inputs = [one["user_input"]["arg"] for one in signature["input_specs"] if "user_input" in one]
        outputs = [one["user_output"]["arg"] for one in signature["output_specs"] if "user_output" in one]
        own = list(self.place.spec.model.network.outputs)
        names = own if len(own) == len(outputs) else [_OUTPUT.format(place) for place in range(len(outputs))]
        given = [self._name(argument) for argument in inputs]
        made = [self._name(argument) for argument in outputs]
        return (
            tuple(self._tensor(values[name], name) for name in given),
            tuple(self._tensor(values[inner], name) for inner, name in zip(made, names, strict=True)),
        )

    def _name(self, argument: Any) -> str:
        if "as_tensor" not in argument:
            kind = ", ".join(argument)
            raise self.place.refusal(
                found=f"{self.place.name} takes or gives something else than a tensor ({kind})",
                wanted="tensors alone",
                todo="export it again within a module that takes and returns tensors",
            )
        return str(argument["as_tensor"]["name"])

    def _tensor(self, value: Any, name: str) -> TensorInfo:
        sizes: Sequence[Any] = value["sizes"]
        return TensorInfo(
            name,
            self._dtype(value["dtype"], name),
            tuple(size.get("as_int", -1) for size in sizes),
            tuple(_symbol(size["as_expr"]["expr_str"]) if "as_expr" in size else "" for size in sizes),
        )

    def _dtype(self, number: int, name: str) -> DataType:
        scalar = need("torch._export.serde.schema", "build").ScalarType(number).name
        for row in DATATYPES.values():
            if row.torch is not None and _SCALARS.get(scalar) == row.torch:
                return row.name
        raise self.place.refusal(
            found=f"{name} of {self.place.name} is {scalar}",
            wanted=f"one of {', '.join(_SCALARS)}",
            todo="convert it in the network, and export it again",
        )


def _symbol(expression: str) -> str:
    """The name of a size that is a symbol; empty for one that is computed."""
    symbol = _SYMBOL.fullmatch(expression)
    return symbol[1] if symbol else ""


_SCALARS = {
    "BOOL": "bool",
    "BYTE": "uint8",
    "CHAR": "int8",
    "SHORT": "int16",
    "INT": "int32",
    "LONG": "int64",
    "HALF": "float16",
    "FLOAT": "float32",
    "DOUBLE": "float64",
}
"""Names of torch.export's types -> those of PyTorch."""
