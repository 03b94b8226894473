"""Triton's configurations for the cores that a container may use, and one log line about them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from configurations import config_for, named_config, rendered_cores
from core.flags import flag_values
from machine import cores, cores_within

__all__ = ["config_flag", "cores_line"]

_FLAG = "model-config-name"


def config_flag(repository: Path, arguments: Sequence[str]) -> list[str]:
    """Triton takes the models' configurations for the cores there are, unless these arguments name others."""
    name = "" if _named(arguments) else _usual(repository)
    # An older server does not know the flag; a repository for it has no such files.
    has = name and any(repository.glob(f"*/{named_config(name)}"))
    return [f"--{_FLAG}={name}"] if has else []


def cores_line(repository: Path, arguments: Sequence[str]) -> str:
    """Cores that may be used, those that the kernel shows, and the configurations that follow."""
    own, built = cores(), rendered_cores(repository)
    if named := _named(arguments):
        taken = f"{named}, as asked"
    elif built is None:
        taken = "as they are"
    else:
        taken = f"for {cores_within(own) if own < built else built}"
    return f"cores: {own} allowed of {os.cpu_count()} seen; configurations {taken}"


def _usual(repository: Path) -> str:
    own = cores()
    return config_for(repository, own, cores_within(own))


def _named(arguments: Sequence[str]) -> str:
    """The configurations that arguments name; empty where they name none."""
    return ["", *flag_values(arguments, _FLAG)][-1]
