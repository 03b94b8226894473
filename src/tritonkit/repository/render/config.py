"""The text of `config.pbtxt`: plan -> message of Triton's schema -> text, which is parsed again."""

from __future__ import annotations

from tritonkit.errors import RenderError
from tritonkit.repository.render.layout import write
from tritonkit.repository.render.message import merged_message, parse_text
from tritonkit.repository.render.values import ModelPlan

__all__ = ["render_config"]


def render_config(plan: ModelPlan, *, source: str, target: str, cores: int) -> str:
    """The text for one Triton model, ending in a line break.

    Args:
        source: the path of model.yaml below the project's folder, for the header.

    Raises:
        RenderError: the spec's own `config` text contradicts the plan; a field is newer than the release that is to
            serve the model; or Triton's parser reads another configuration from the text.
    """
    where = f"{plan.name}/config.pbtxt"
    message = merged_message(plan)
    text = (
        f"# Rendered by tritonkit from {source} (target {target}, cores {cores})."
        f" Do not edit: change the spec and run tools/build_repo.py.\n{write(message)}"
    )
    if parse_text(text, where) != message:
        raise RenderError(
            where,
            found=f"a text that says something else than the spec: {text}",
            wanted="a text from which Triton's parser reads the same configuration",
            todo="report this together with model.yaml",
        )
    return text
