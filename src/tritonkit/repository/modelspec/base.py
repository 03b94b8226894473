"""The base of every part of a spec: strict keys, names, and paths that stay inside the model's folder."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tritonkit.datatypes import DataType

__all__ = [
    "HOOK_PATTERN",
    "MAX_SIZE",
    "FileReference",
    "Hook",
    "InnerPath",
    "ModelName",
    "PackageFile",
    "Strict",
    "Target",
    "Tensor",
    "inside",
]

MAX_SIZE = 2**31 - 1  # sizes and counts are 32-bit numbers in most of Triton's configuration

Target = Literal["cpu", "gpu", "nvidia"]
"""The kind of server that a repository is rendered for: tritonkit's own on a CPU, tritonkit's own on a GPU, or NVIDIA's
image."""


class Strict(BaseModel):
    """A frozen section of a spec that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


def inside(path: str) -> str:
    """Refuse absolute paths and `..`; symbolic links are followed and checked when the file is read."""
    parts = PurePosixPath(path).parts
    if "\0" in path:
        raise ValueError(f"{path!r} is not a file name; wanted a path inside the model's folder")
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts:
        raise ValueError(f"{path!r} leaves the model's folder; wanted a path inside it")
    return path


InnerPath = Annotated[str, AfterValidator(inside)]
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=128)]
HOOK_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*:[A-Za-z_][A-Za-z0-9_]*$"
Hook = Annotated[
    str,
    Field(
        pattern=HOOK_PATTERN,
        description="module:function, a Python file of the model's folder and a name in it",
        examples=["network:build"],
    ),
]


class PackageFile(Strict):
    """A file that an installed Python package carries."""

    package: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Import name of the package."""
    file: InnerPath
    """Path inside the package."""


FileReference = InnerPath | PackageFile


class Tensor(Strict):
    """One input or output, without the batch axis."""

    dtype: DataType
    shape: tuple[Annotated[int, Field(ge=-1, le=MAX_SIZE, strict=True)] | str, ...]
    """Sizes; a name stands for an axis whose size changes from request to request."""
    optional: bool = False
    """Whether a request may leave it out; only for inputs of a Python model."""

    @model_validator(mode="after")
    def _no_empty_axis(self) -> Self:
        if 0 in self.shape:
            raise ValueError(f"shape is {list(self.shape)}; wanted sizes of at least 1, or -1")
        return self

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as Triton writes it: -1 for an axis of free size."""
        return tuple(size if isinstance(size, int) else -1 for size in self.shape)
