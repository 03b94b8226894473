"""A plan as the text of `config.pbtxt`, held against what was asked before anybody sees it."""

from __future__ import annotations

from tritonkit.errors import RenderError
from tritonkit.render.compare import first_difference
from tritonkit.render.message import expected_message, parse_text
from tritonkit.render.text import config_text
from tritonkit.render.values import ModelPlan

__all__ = ["check_text", "render_config"]


def render_config(plan: ModelPlan, *, source: str, target: str, cores: int) -> str:
    """The text for one Triton model: template -> text -> parsed by Triton's schema -> compared.

    `source` is the path of model.yaml below the project's folder, for the header. Raises
    RenderError, naming the first field, if the text says anything else than the plan.
    """
    text = config_text(plan, source=source, target=target, cores=cores)
    check_text(text, plan)
    return text


def check_text(text: str, plan: ModelPlan) -> None:
    """RenderError unless a `config.pbtxt` says what the plan asks for, and nothing more."""
    where = f"{plan.name}/config.pbtxt"
    difference = first_difference(parse_text(text, where), expected_message(plan))
    if difference is not None:
        raise RenderError(
            where,
            found=difference,
            wanted="a text that says what the spec asks for, and nothing more",
            todo="render it again, or correct templates/config.pbtxt.j2",
        )
