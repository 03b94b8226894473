"""A plan as the text of `config.pbtxt`: template -> text -> parsed by Triton's schema -> compared with the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.datatypes import DATATYPES
from tritonkit.errors import RenderError
from tritonkit.repository.modelspec.serving import ControlInput, Direct, Optimization
from tritonkit.repository.render.compare import first_difference
from tritonkit.repository.render.message import expected_message, merged_message, parse_text
from tritonkit.repository.render.values import ModelPlan

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["check_text", "quote", "render_config"]

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def render_config(plan: ModelPlan, *, source: str, target: str, cores: int) -> str:
    """The text for one Triton model, ending in a line break.

    `source` is the path of model.yaml below the project's folder, for the header. Raises
    RenderError, naming the first field, if the text says anything else than the plan.
    """
    text = _template().render(plan=plan, source=source, target=target, cores=cores)
    _compare(text, expected_message(plan), plan)
    if not plan.config.strip():
        return text
    head = text.partition("\n")[0]
    merged = f"{head}\n{_with_spec_text(plan)}"
    check_text(merged, plan)
    return merged


def _with_spec_text(plan: ModelPlan) -> str:
    """A configuration with the spec's own text merged into it is in protobuf's layout."""
    from google.protobuf import text_format

    return text_format.MessageToString(merged_message(plan), as_utf8=True)


def check_text(text: str, plan: ModelPlan) -> None:
    """RenderError unless a `config.pbtxt` says what the plan asks for, and nothing more."""
    _compare(text, merged_message(plan), plan)


def _compare(text: str, message: Any, plan: ModelPlan) -> None:
    where = f"{plan.name}/config.pbtxt"
    difference = first_difference(parse_text(text, where), message)
    if difference is not None:
        raise RenderError(
            where,
            found=difference,
            wanted="a text that says what the spec asks for, and nothing more",
            todo="render it again, or correct templates/config.pbtxt.j2",
        )


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
    return f"[ {', '.join(map(str, values))} ]".replace("[  ]", "[ ]")


def _control_values(control: ControlInput) -> list[float]:
    """The values for no and yes, whole numbers where the tensor holds such."""
    return [int(v) if control.dtype == "INT32" else v for v in control.false_true]


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
    filters: dict[str, Callable[..., Any]] = {
        "quote": quote,
        "dtype": lambda name: DATATYPES[name].config,
        "numbers": _numbers,
        "control_values": _control_values,
        "base_name": lambda path: Path(path).name,
    }
    environment.filters |= filters
    environment.globals |= {"default_direct": Direct(), "default_optimization": Optimization()}
    return environment.get_template("config.pbtxt.j2")
