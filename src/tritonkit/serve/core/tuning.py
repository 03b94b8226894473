"""Triton's own flags that depend on the machine: only those whose gain `python -m bench flags` shows.

Triton 2.51 has no flag for the threads of gRPC. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["chosen_flags", "described"]


def chosen_flags(cores: int) -> dict[str, str]:
    """By name, without dashes, what a server on so many cores is told."""
    return {}


def described(flags: Mapping[str, str], cores: int) -> str:
    """The flags in words, for whoever watches the start."""
    words = " ".join(f"--{name}={value}" for name, value in flags.items())
    return f"{words or 'no flags of its own'}, for {cores} core{'' if cores == 1 else 's'}"
