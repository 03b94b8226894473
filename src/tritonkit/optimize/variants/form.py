"""What an optimized form of a network is: how it is made, and through what it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritonkit.export.job import Job

__all__ = ["Form"]


@dataclass(frozen=True)
class Form:
    """One line of the table of variants.

    `make` writes the files into an empty folder and returns notes for people, such as the layers that
    stayed FP32. `runtime` is the key of `RUNTIMES` that measures it, and the one that will serve it;
    None where it cannot run on this machine. `extra` is the pip extra that has what both need.
    `lossless` forms are held to `quality.tolerance` besides the metric. `by_cpu` ones depend on the kind
    of CPU they are made on.
    """

    make: Callable[[Job, Path], tuple[str, ...]]
    runtime: str | None
    extra: str = "build"
    lossless: bool = False
    by_cpu: bool = False
