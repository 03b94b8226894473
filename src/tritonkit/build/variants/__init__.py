"""The optimised forms a network can be built in: a module behind one Protocol each, in a table.

A new variant is a new module with a `build` function and a line here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tritonkit.build.artifact import Measured, Signature
from tritonkit.build.variants import onnx_fp32
from tritonkit.spec import Spec

__all__ = ["VARIANTS", "Variant"]


class Variant(Protocol):
    """Builds one form of a network into a folder and measures it against the reference."""

    def __call__(self, spec: Spec, folder: Path) -> tuple[Signature, Measured]:
        """Write the variant's files into `folder`; what they take and give, and how good they are."""
        ...


VARIANTS: dict[str, Variant] = {"onnx-fp32": onnx_fp32.build}
