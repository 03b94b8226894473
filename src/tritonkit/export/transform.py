"""What a change of the network itself is: another module, trained, from which any form can be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonkit.export.job import Job

__all__ = ["Transform"]


@dataclass(frozen=True)
class Transform:
    """One line of the table of transforms.

    `make` returns a trained torch.nn.Module in evaluation mode, and notes for people; it is held
    against `Job.teacher`. `extra` is the pip extra that has what it needs.
    """

    make: Callable[[Job], tuple[Any, tuple[str, ...]]]
    extra: str = "build"
