"""Reports as one HTML page: values in, text out. All text from elsewhere is escaped."""

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
from tritonkit.repository.report.graph import PipelineGraph, draw
from tritonkit.repository.report.rows import figure
from tritonkit.repository.report.sections import section

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["Machine", "environment", "render", "this_machine"]


@dataclass(frozen=True)
class Machine:
    """Name of the processor, number of usable cores, and the system."""

    processor: str
    cores: int
    system: str


def this_machine(cores: int, cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """The processor's name from Linux, or the architecture without one."""
    name = platform.machine()
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                name = value.strip()
                break
    return Machine(name, cores, platform.platform(aliased=True, terse=True))


def render(reports: Sequence[ModelReport], machine: Machine, written: str, graphs: Sequence[PipelineGraph] = ()) -> str:
    """The page, which needs no other file and no address to be shown.

    Args:
        machine: the machine that measured.
        written: the time of writing, for people.
        graphs: the pipelines to draw.
    """
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            sections=[section(report) for report in reports],
            drawings=[draw(graph) for graph in graphs],
            machine=machine,
            written=written,
            version=tritonkit.__version__,
            tools=_tools(reports),
        )
    )


def _tools(reports: Sequence[ModelReport]) -> dict[str, str]:
    """Versions of the libraries that made the variants, several where they differ."""
    versions: dict[str, list[str]] = {}
    for report in reports:
        for result in report.results:
            for name, version in (result.artifact.tools if result.artifact else {}).items():
                listed = versions.setdefault(name, [])
                listed += [] if version in listed else [version]
    return {name: ", ".join(several) for name, several in sorted(versions.items())}


@cache
def environment(folder: Path | None = None) -> Environment:
    """The environment that renders pages: templates of this room, and those of another folder."""
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
    """A variant's name, escaped, that may break the line after its plus."""
    from markupsafe import Markup, escape

    return Markup("+<wbr>").join(map(escape, variant.split("+")))


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %") if share >= 0.0005 or share == 0 else "< 0.1 %"
