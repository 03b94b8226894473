"""The configurations in a repository: each model's `config.pbtxt`, and those for servers with fewer cores.

This file uses the standard library only, because the server's image has it without tritonkit.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["HEADER", "config_for", "config_name", "named_config", "rendered_cores"]

HEADER = re.compile(
    r"# Rendered by tritonkit from models/(?P<folder>[^/]+)/model\.yaml( (?P<entry>[\w-]+))?"
    r" \(target (?P<target>\w+), cores (?P<cores>\d+)\)"
)
"""The first line of a `config.pbtxt` that tritonkit wrote; `entry` is a spec in the pipeline of that model.yaml."""


def config_name(cores: int) -> str:
    """The name of a model's configuration for this number of cores (Triton's `--model-config-name`)."""
    return f"cores-{cores}"


def named_config(name: str) -> str:
    """The file in which Triton looks for a configuration of that name, before it takes `config.pbtxt`."""
    return f"configs/{name}.pbtxt"


def rendered_cores(repository: Path) -> int | None:
    """The most cores that any model of a repository was rendered for; None where tritonkit wrote none."""
    headers = [HEADER.match(_text(file)) for file in repository.glob("*/config.pbtxt")]
    return max((int(header["cores"]) for header in headers if header), default=None)


def config_for(repository: Path, cores: int, part: int) -> str:
    """The name of the configurations for this number of cores, or for the next lower one; empty if `config.pbtxt`
    applies.

    Args:
        part: of the numbers that configurations are made for (`machine.parts_of`) the largest within these cores.
    """
    built = rendered_cores(repository)
    # A model without a file of that name has the same configuration for this number of cores as for all.
    return config_name(part) if built and cores < built else ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    except OSError:
        return ""
