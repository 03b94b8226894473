"""The chat template of a checkpoint, tried before it is published: by the module that renders it in a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.resources import shipped_modules

__all__ = ["check_chat"]

_BACKEND = "python_backends/backends/llm"
_TALKS = (("user",), ("system", "user"), ("user", "assistant", "user"), ("system", "user", "assistant", "user"))


def check_chat(folder: Path, settings: Mapping[str, Any]) -> None:
    """Compile a checkpoint's template, and render short chats with it. A template may refuse these chats, since it may
    accept others.

    Args:
        folder: the checkpoint's folder, after its checks.
        settings: the content of its tokenizer_config.json.

    Raises:
        BuildError: the template does not compile, or needs more steps or memory than a server allows.
    """
    rendering, budget = shipped_modules([_BACKEND], "llm_template", "llm_budget")
    file = folder / "chat_template.jinja"
    if file.exists():
        where, source = str(file), _text(file)
    else:
        where = f"{folder / 'tokenizer_config.json'} chat_template"
        source = rendering.template_of(settings) or ""
    from jinja2.exceptions import TemplateError

    try:
        template = rendering.ChatTemplate(source)
        for roles in _TALKS:
            _try(template, roles, rendering.special_of(settings), budget.Exhausted)
    except budget.Exhausted as error:
        raise BuildError(
            where,
            found=f"for a chat of a few words, {error}",
            wanted="a template that ends after a bounded number of steps",
            todo="correct the template, or remove it: the model then takes text alone",
        ) from None
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise BuildError(
            where,
            found=f"it does not compile: {error.message}" + (f" (line {line})" if line else ""),
            wanted="a template in Jinja, as transformers takes it",
            todo="correct the template, or remove it: the model then takes text alone",
        ) from None


def _try(template: Any, roles: tuple[str, ...], special: Mapping[str, str], exhausted: Any) -> None:
    """Render a chat. A template may refuse it, but must end within its budget."""
    from jinja2.exceptions import TemplateError

    try:
        template.render([{"role": role, "content": "word"} for role in roles], special)
    except exhausted:
        raise
    except TemplateError:
        return


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(str(file), found=f"it cannot be read: {error}", wanted="text in UTF-8") from None
