"""`network` in model.yaml: the source of a network, its tensors and its free axes."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tritonkit.repository.modelspec.base import (
    MAX_SIZE,
    FileReference,
    Hook,
    InnerPath,
    ModelName,
    Strict,
    Tensor,
)
from tritonkit.repository.modelspec.language import LanguageModel

__all__ = ["SOURCES", "FreeAxis", "Network"]


class FreeAxis(Strict):
    """Sizes that a free axis may take."""

    min: Annotated[int, Field(ge=1, le=MAX_SIZE, strict=True)] = 1
    max: Annotated[int, Field(ge=2, le=MAX_SIZE, strict=True)]
    multiple_of: Annotated[int, Field(ge=1, le=MAX_SIZE, strict=True)] = 1
    """A number that divides every size, for networks that halve an image several times; min defaults to it."""
    warm: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Sizes that warm-up covers; by default min and max."""
    pad: dict[str, int | float] = {}
    """Values that fill up inputs with this axis, by input. Requests of different sizes then share a batch as long as
    its longest request, and outputs with this axis are cut back. For targets cpu and gpu."""

    @model_validator(mode="before")
    @classmethod
    def _smallest_multiple(cls, given: Any) -> Any:
        if isinstance(given, dict) and "multiple_of" in given and "min" not in given:
            return {**given, "min": given["multiple_of"]}
        return given

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for name, size in (("min", self.min), ("max", self.max), *(("warm", w) for w in self.warm)):
            if size % self.multiple_of:
                raise ValueError(f"{name} has {size}; wanted a multiple of {self.multiple_of}")
        if self.min >= self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}; wanted min below max")
        if outside := [size for size in self.warm if not self.min <= size <= self.max]:
            raise ValueError(f"warm has {outside[0]}; wanted {self.min} to {self.max}")
        return self

    def at_least(self, size: int) -> int:
        """The smallest allowed size that is not below a given one, at most `max`."""
        return min(self.max, max(self.min, -(-size // self.multiple_of) * self.multiple_of))

    def at_most(self, size: int) -> int:
        """The largest allowed size that is not above a given one, at least `min`."""
        return max(self.min, min(self.max, size // self.multiple_of * self.multiple_of))


SOURCES = ("torch", "onnx", "python", "llm", "file", "folder")


class Network(Strict):
    """The source of the network: exactly one of torch, onnx, python, llm, file and folder."""

    torch: Hook | None = None
    """Function without arguments that returns a torch.nn.Module."""
    train: Hook | None = None
    """Function that takes the module and trains it in place; the build seeds every generator."""
    weights: FileReference | None = None
    """A .safetensors file, or a checkpoint read with weights_only."""
    onnx: FileReference | None = None
    """An existing ONNX file."""
    op_library: FileReference | Annotated[tuple[FileReference, ...], Field(min_length=1)] | None = None
    """Libraries (.so) with custom operators of the ONNX file, for ONNX Runtime. Their code runs in builds and in the
    server."""
    python: InnerPath | None = None
    """A model.py for Triton's Python backend, served unchanged."""
    files: tuple[FileReference, ...] = ()
    """More files for the version folder of a python model."""
    calls: tuple[ModelName, ...] | None = None
    """Models that a python model calls while it answers (BLS). They are loaded before it, and with it."""
    llm: LanguageModel | None = None
    """A causal language model; its inputs and outputs are always the same (docs/llm.md)."""
    file: FileReference | None = None
    """A network in another format, served as it is: TorchScript (.pt), torch.export (.pt2), OpenVINO (.xml next to its
    .bin), TensorRT (.plan)."""
    backend: Literal["openvino", "python", "pytorch", "tensorrt"] | None = None
    """The backend that serves `file`; needed only where neither its name nor its content tells."""
    folder: InnerPath | None = None
    """A folder with one model in Triton's layout (config.pbtxt, and a version's files in 1/), served as it is."""
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    free_axes: dict[str, FreeAxis] = {}
    """Axes named in a shape, with the sizes they may take."""
    fill: dict[str, bool | int | float] = {}
    """Inputs of an ONNX file that callers do not send, with the value that fills each, such as token_type_ids: 0."""
    opset: Annotated[int, Field(ge=17, le=23)] = 18

    @property
    def op_libraries(self) -> tuple[FileReference, ...]:
        """The libraries of `op_library` in the order in which they are loaded."""
        given = self.op_library
        return given if isinstance(given, tuple) else () if given is None else (given,)

    @property
    def op_library_names(self) -> tuple[str, ...]:
        """Names under which these libraries are published next to the network."""
        return tuple(PurePosixPath(one if isinstance(one, str) else one.file).name for one in self.op_libraries)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [key for key in SOURCES if getattr(self, key) is not None]
        if len(sources) != 1:
            named = f"{', '.join(SOURCES[:-1])} and {SOURCES[-1]}"
            raise ValueError(f"found {' and '.join(sources) or 'none'} of {named}; wanted one")
        if self.llm and (self.inputs or self.outputs or self.free_axes):
            raise ValueError("inputs, outputs and free_axes are given; wanted none of them for llm")
        if (self.train or self.weights) and not self.torch:
            raise ValueError("train and weights belong to torch")
        if self.fill and not self.onnx:
            raise ValueError("fill belongs to onnx; wanted the input left out of inputs")
        if both := sorted(set(self.fill) & set(self.inputs)):
            raise ValueError(f"fill and inputs both have {both[0]}; wanted it in one of them")
        if self.train and self.weights:
            raise ValueError("both train and weights are given; wanted one")
        if self.folder and (self.inputs or self.outputs or self.free_axes):
            raise ValueError(
                "inputs, outputs and free_axes are given; wanted none of them for folder: its config.pbtxt"
            )
        if self.op_library and not self.onnx:
            raise ValueError("op_library belongs to onnx")
        libraries = self.op_library_names
        if twice := next((name for name in libraries if libraries.count(name) > 1), ""):
            raise ValueError(f"op_library has {twice} twice; wanted distinct names, as all lie in one version folder")
        if self.backend and not self.file:
            raise ValueError("backend belongs to file")
        if sources[0] in ("torch", "python") and not self.inputs:
            raise ValueError(f"{sources[0]} needs inputs: names, dtypes and shapes")
        if self.calls is not None and not self.python:
            raise ValueError("calls belongs to python: no other network calls models")
        if self.python and not self.outputs:
            raise ValueError("python needs outputs: names, dtypes and shapes")
        if self.torch and not self.outputs:
            raise ValueError("torch needs outputs: names in the order the module returns them")
        if names := [name for name, tensor in self.outputs.items() if tensor.optional]:
            raise ValueError(f"output {names[0]} is optional; only inputs can be optional")
        names = [name for name, tensor in self.inputs.items() if tensor.optional]
        if names and not self.python:
            raise ValueError(
                f"input {names[0]} is optional; wanted that for a python network alone: the graph of"
                f" {sources[0]} needs all its inputs"
            )
        return self._axes_known()

    def _axes_known(self) -> Self:
        for name, tensor in self.inputs.items():
            for axis in tensor.shape:
                if isinstance(axis, str) and axis not in self.free_axes:
                    raise ValueError(f"input {name} has the axis {axis!r}; wanted it under free_axes")
                if axis == -1 and self.torch:
                    raise ValueError(f"input {name} has an axis -1; wanted a name described under free_axes")
        for axis in self.free_axes if self.torch else ():
            if not axis.isidentifier() or axis == "batch":
                raise ValueError(f"free_axes has the name {axis!r}; wanted letters, digits and _, and not `batch`")
        return self._padding_known()

    def _padding_known(self) -> Self:
        padded = [axis for axis, free in self.free_axes.items() if free.pad]
        if len(padded) > 1:
            raise ValueError(f"free_axes has pad for {' and '.join(padded)}; wanted one axis")
        if padded and self.python:
            raise ValueError("free_axes has pad; a python network forms its batches itself")
        for axis in padded if self.torch else ():
            having = [name for name, tensor in self.inputs.items() if axis in tensor.shape]
            if set(self.free_axes[axis].pad) != set(having):
                raise ValueError(
                    f"free_axes.{axis}.pad has {sorted(self.free_axes[axis].pad)}; wanted all inputs with that"
                    f" axis: {sorted(having)}"
                )
        return self
