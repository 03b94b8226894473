"""Inputs of a network as `--input` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import ValidationError

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.errors import UsageError
from tritonkit.repository.modelspec import FreeAxis, Tensor

__all__ = ["DTYPE_NAMES", "as_usage_error", "parse_input", "parse_inputs"]

_INPUT = re.compile(r"(?P<name>[^=]+)=(?P<dtype>[A-Z0-9]+):(?P<shape>.*)")
_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)\((?P<min>\d+)-(?P<max>\d+)(/(?P<of>\d+))?\)")

DTYPE_NAMES = {name: dtype for dtype, name in NUMPY_DTYPES.items()} | {"bfloat16": "BF16"}
"""Type of torch or numpy -> Triton's."""


def parse_inputs(texts: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, FreeAxis]]:
    """The inputs by name, and their free axes by name.

    Raises:
        UsageError: no input is given, an input cannot be read, or two inputs contradict each other.
    """
    if not texts:
        raise UsageError(
            "--input", found="none is given", wanted="the inputs of the network, such as --input pixels=FP32:3,224,224"
        )
    tensors: dict[str, Tensor] = {}
    axes: dict[str, FreeAxis] = {}
    for text in texts:
        name, tensor, own_axes = parse_input(text)
        if name in tensors or any(axes.get(axis, size) != size for axis, size in own_axes.items()):
            raise UsageError(
                f"--input {text}",
                found="its name, or one of its axes with another range, was given before",
                wanted="each input once, and one range for a free axis",
            )
        tensors[name] = tensor
        axes |= own_axes
    return tensors, axes


def parse_input(text: str) -> tuple[str, Tensor, dict[str, FreeAxis]]:
    """Name, tensor without the batch axis, and free axes of an input: `pixels=FP32:3,224,224`,
    `ids=INT64:length(2-256)` or `pixels=FP32:3,H(32-640/32),8`."""
    match = _INPUT.fullmatch(text)
    if match is None or match["dtype"] not in DTYPE_NAMES.values():
        raise UsageError(
            f"--input {text}",
            found="it cannot be read",
            wanted="NAME=DTYPE:SHAPE, such as pixels=FP32:3,224,224 or ids=INT64:length(2-256)",
        )
    shape: list[int | str] = []
    axes: dict[str, FreeAxis] = {}
    with as_usage_error(f"--input {text}"):
        for size in filter(None, match["shape"].split(",")):
            axis = _AXIS.fullmatch(size.strip())
            if axis is not None:
                axes[axis["name"]] = FreeAxis(
                    min=int(axis["min"]), max=int(axis["max"]), multiple_of=int(axis["of"] or 1)
                )
                shape.append(axis["name"])
            elif size.strip().isdecimal():
                shape.append(int(size))
            else:
                raise UsageError(
                    f"--input {text}",
                    found=f"size {size!r}",
                    wanted="a number, or NAME(MIN-MAX) or NAME(MIN-MAX/MULTIPLE) for a free axis",
                )
        return match["name"], Tensor(dtype=match["dtype"], shape=tuple(shape)), axes  # type: ignore[arg-type]


@contextmanager
def as_usage_error(where: str) -> Iterator[None]:
    """Turn a refusal by the spec's rules into a mistake on the command line."""
    try:
        yield
    except ValueError as error:  # pydantic's ValidationError is one
        problems = error.errors() if isinstance(error, ValidationError) else [{"msg": str(error)}]
        problem, _, expected = str(problems[0]["msg"]).removeprefix("Value error, ").partition("; wanted ")
        raise UsageError(where, found=problem, wanted=expected or "a value that model.yaml allows") from None
