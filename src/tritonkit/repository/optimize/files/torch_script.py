"""TorchScript: a traced or scripted module, whose file tells neither shapes nor types of its tensors."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.optimize.files.ready import NO_RANGES, Place, declared, names_of
from tritonkit.repository.optimize.files.torch_archive import Archive
from tritonkit.repository.optimize.runner import Runner
from tritonkit.repository.optimize.runtimes.pytorch import function_of
from tritonkit.repository.optimize.variants.torch_export import write_names
from tritonkit.text import first_line
from tritonkit.watched import step

__all__ = ["TorchScriptFile", "positions"]

_WRITES = re.compile(r"\btorch\.(save|from_file)\(")
"""Operators that write or map a file which the program names."""
_RETURNED = re.compile(r"Tensor|Tuple\[Tensor(, Tensor)*\]|List\[Tensor\]")


@dataclass(frozen=True)
class TorchScriptFile:
    """A module whose inputs and outputs the spec declares."""

    place: Place
    ranges = NO_RANGES
    most_items = 0
    tells = False

    def signature(self, batched: bool) -> Signature:
        """Inputs in the order of forward's arguments, and outputs in the order in which it returns them."""
        arguments = self.arguments
        told = f": its forward takes {', '.join(arguments) or 'nothing'}"
        signature = declared(self.place, batched, told)
        ordered = positions([tensor.name for tensor in signature.inputs], arguments)
        if sorted(ordered.values()) != list(range(len(signature.inputs))) or len(ordered) < self._required:
            raise BuildError(
                f"{self.place.spec.file} network.inputs",
                found=f"{list(ordered)}, and forward takes {arguments}",
                wanted="an input for each argument, by its name or in its order",
                todo="correct network.inputs",
            )
        outputs = positions([tensor.name for tensor in signature.outputs], ())
        return replace(
            signature, inputs=_sorted(signature.inputs, ordered), outputs=_sorted(signature.outputs, outputs)
        )

    def batch_axis_missing(self) -> str:
        """Empty: shapes are the spec's, without the batch axis."""
        return ""

    def open(self, threads: int) -> Runner:
        """The module on the CPU."""
        names = names_of(self.signature(batched=False))
        return function_of(self.module, *names, threads, self.place.where)

    def write(self, folder: Path) -> tuple[str, ...]:
        """model.pt."""
        copy_file(self.place.path, folder / "model.pt")
        write_names(*names_of(self.signature(batched=False)), folder)
        return ()

    @property
    def arguments(self) -> list[str]:
        """The names of forward's arguments."""
        return [argument.name for argument in self._schema.arguments[1:]]

    @property
    def _required(self) -> int:
        return sum(not argument.has_default_value() for argument in self._schema.arguments[1:])

    @cached_property
    def _schema(self) -> Any:
        schema = self.module.forward.schema
        kinds = [argument for argument in schema.arguments[1:] if "Tensor" not in str(argument.type)]
        if kinds and not all(argument.has_default_value() for argument in kinds):
            raise self._refused(f"its argument {kinds[0].name} is {kinds[0].type}", "tensors alone as arguments")
        if not schema.arguments[1:]:
            raise self._refused("its forward takes no argument", "a tensor as argument at least")
        returned = ", ".join(str(result.type) for result in schema.returns)
        if not _RETURNED.fullmatch(returned):
            raise self._refused(f"its forward returns {returned}", "a tensor, or a tuple or a list of tensors")
        return schema

    def _refused(self, found: str, wanted: str) -> BuildError:
        todo = "export it again within a module that takes and returns tensors"
        return self.place.refusal(f"{found} ({self.place.name})", wanted, todo)

    @cached_property
    def module(self) -> Any:
        """The loaded module, in evaluation mode."""
        self._hold_to_computing()
        torch = need("torch", "build")
        try:
            with warnings.catch_warnings(), step(f"PyTorch opens {self.place.name}"):
                warnings.simplefilter("ignore")  # that TorchScript is deprecated
                return torch.jit.load(self.place.path, map_location="cpu").eval()
        except Exception as error:  # RuntimeError mostly, about the version, an operator or the file
            raise self.place.refusal(
                found=f"PyTorch {torch.__version__} cannot load {self.place.name}: {first_line(error)}",
                wanted="a file of this version or an older one, with PyTorch's own operators",
                todo="export it again with this PyTorch; operators of other libraries (torchvision::nms) have to be"
                " replaced",
            ) from error

    def _hold_to_computing(self) -> None:
        """BuildError for a program that names a file which it reads or writes."""
        archive = Archive(self.place)
        for name in archive.names:
            if name.startswith("code/") and name.endswith(".py"):
                call = _WRITES.search(archive.read(name).decode(errors="replace"))
                if call is not None:
                    raise self._refused(
                        f"it calls torch.{call[1]}, which reads or writes a file of the server",
                        "a network that computes with its inputs and weights alone",
                    )


def positions(names: Sequence[str], arguments: Sequence[str]) -> dict[str, int]:
    """Position of each name, by the rule of Triton's pytorch backend (GetNamingConvention).

    If all names are arguments of forward, they are matched by name. If all end in `__N`, they go to position N.
    Otherwise their order counts.
    """
    if arguments and set(names) <= set(arguments):
        return {name: arguments.index(name) for name in names}
    parts = [name.partition("__") for name in names]
    if all(mark and not rest.strip("0123456789") for _, mark, rest in parts):
        return {"__".join(part[::2]): int(part[2] or 0) for part in parts}
    return {name: place for place, name in enumerate(names)}


def _sorted(tensors: Sequence[TensorInfo], places: dict[str, int]) -> tuple[TensorInfo, ...]:
    return tuple(sorted(tensors, key=lambda tensor: places[tensor.name]))
