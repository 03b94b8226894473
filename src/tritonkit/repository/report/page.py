"""Reports as one HTML page: values in, text out. Whatever came from elsewhere is escaped."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import tritonkit
from tritonkit.repository.report.collect import ModelReport
from tritonkit.repository.report.rows import figure
from tritonkit.repository.report.sections import section

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["Machine", "environment", "render", "this_machine"]


@dataclass(frozen=True)
class Machine:
    """A processor's name, the cores that may be used, the system."""

    processor: str
    cores: int
    system: str


def this_machine(cores: int, cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """What Linux says of the processor; the architecture where it says nothing."""
    name = platform.machine()
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                name = value.strip()
                break
    return Machine(name, cores, platform.platform(aliased=True, terse=True))


def render(reports: Sequence[ModelReport], machine: Machine, written: str) -> str:
    """The page: text that needs no other file and no address to be shown.

    Args:
        machine: the one that measured.
        written: when, for people.
    """
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            sections=[section(report) for report in reports],
            machine=machine,
            written=written,
            version=tritonkit.__version__,
            tools=_tools(reports),
        )
    )


def _tools(reports: Sequence[ModelReport]) -> dict[str, str]:
    """Versions of what made the variants, several where they differ."""
    versions: dict[str, list[str]] = {}
    for report in reports:
        for result in report.results:
            for name, version in (result.artifact.tools if result.artifact else {}).items():
                known = versions.setdefault(name, [])
                known += [] if version in known else [version]
    return {name: ", ".join(found) for name, found in sorted(versions.items())}


@cache
def environment(folder: Path | None = None) -> Environment:
    """What pages are written with: the templates of this room, and those of a folder beside them."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    own = Path(__file__).parent / "templates"
    made = Environment(
        loader=FileSystemLoader([own] if folder is None else [folder, own]),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"breakable": _breakable, "figure": figure, "percent": _percent}
    return made


def _breakable(variant: str) -> Markup:
    """A variant's name that may go on in the next line after its plus, escaped."""
    from markupsafe import Markup, escape

    return Markup("+<wbr>").join(map(escape, variant.split("+")))


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %") if share >= 0.0005 or share == 0 else "< 0.1 %"
