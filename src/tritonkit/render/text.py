"""The template, and how its values are written in protobuf's text format."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tritonkit.datatypes import DATATYPES
from tritonkit.render.values import ModelPlan
from tritonkit.spec.serving import ControlInput, Direct, Optimization

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["config_text", "quote"]

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def config_text(plan: ModelPlan, *, source: str, target: str, cores: int) -> str:
    """The text of `config.pbtxt`, ending in a line break; unchecked."""
    return _template().render(plan=plan, source=source, target=target, cores=cores)


def quote(text: str) -> str:
    """A protobuf text string: UTF-8 as it is, quotes, backslashes and control characters escaped."""
    return '"' + "".join(map(_escape, str(text))) + '"'


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if ord(character) < 0x20 or ord(character) == 0x7F:
        return f"\\{ord(character):03o}"
    return character


def _numbers(values: Iterable[float]) -> str:
    return f"[ {', '.join(map(str, values))} ]"


def _control_values(control: ControlInput) -> list[float]:
    """The values for no and yes, whole numbers where the tensor holds such."""
    return [int(v) if control.dtype == "INT32" else v for v in control.false_true]


def _base_name(path: str) -> str:
    return PurePosixPath(path).name


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 (the text is protobuf's, not HTML)  # nosec B701
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "quote": quote,
        "dtype": lambda name: DATATYPES[name].config,
        "numbers": _numbers,
        "control_values": _control_values,
        "base_name": _base_name,
    }
    environment.globals |= {
        "default_direct": Direct(),
        "default_optimization": Optimization(),
    }
    return environment.get_template("config.pbtxt.j2")
