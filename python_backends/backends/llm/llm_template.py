"""Chat templates as transformers renders them, within a budget of steps and bytes.

A template comes with a checkpoint from anywhere, and its input comes from a stranger. It runs in a sandbox, where
neither can change or reach anything (`llm_sandbox`), nor run forever (`llm_budget`).

tritonkit reads templates with this module, too: it imports nothing but Jinja and its siblings.
"""

from __future__ import annotations

import traceback
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables
from llm_budget import Budget, Exhausted, spending
from llm_sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MOST_CHARACTERS = 1 << 17
"""Most characters of a template; those of models have about 20,000."""
_LONGEST_MESSAGE = 500
_FILE = "<chat template>"


class RenderError(TemplateError):
    """The template refuses these messages; the text says why."""


class ChatTemplate:
    """A compiled template.

    Args:
        source: the template's text.

    Raises:
        TemplateError: the text does not compile, or is too large.
    """

    def __init__(self, source: str) -> None:
        self._template = _compiled(source)
        self.takes_tools = "tools" in find_undeclared_variables(_sandbox().parse(source))
        """Whether the template reads a list of tools."""

    def render(self, messages: Sequence[Any], special: Mapping[str, str], tools: Sequence[Any] | None = None) -> str:
        """The prompt of these messages, up to the start of the answer.

        Args:
            messages: objects with a role and a content.
            special: the values `bos_token`, `eos_token` and so on.
            tools: the tools that the chat offers.

        Raises:
            Exhausted: the template needs more steps or memory than the budget has.
            RenderError: the template refuses the messages, or fails over them.
        """
        given = {"messages": messages, "add_generation_prompt": True, "tools": tools, "documents": None, **special}
        try:
            with spending(Budget(given)) as budget:
                return "".join(_paid_for(self._template.generate(given), budget))
        except Exhausted as error:
            raise Exhausted(f"{error}{_line_of(error)}") from None
        # A template indexes and adds any values, so every error counts as one of the messages.
        except Exception as error:
            message = str(error) or type(error).__name__
            raise RenderError(message[:_LONGEST_MESSAGE]) from error


def template_of(config: Mapping[str, Any], name: str = "default") -> str | None:
    """The template in a tokenizer_config.json: the only one, or the one of this name of several."""
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry for entry in template if isinstance(entry, dict)}
        template = named.get(name, {}).get("template")
    return template if isinstance(template, str) else None


def special_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens of a tokenizer_config.json as texts; some files have them as objects."""
    tokens = {}
    for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(key)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[key] = value
    return tokens


def _paid_for(pieces: Iterable[str], budget: Budget) -> Iterator[str]:
    for piece in pieces:
        budget.hold(piece)
        yield piece


def _line_of(error: Exception) -> str:
    """Place in the template at which an error happened, as far as Python knows."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == _FILE]
    return f" (line {lines[-1]})" if lines else ""


def _compiled(source: str) -> Any:
    if len(source) > MOST_CHARACTERS:
        problem = f"it has {len(source):,} characters; at most {MOST_CHARACTERS:,} are taken"
        raise TemplateSyntaxError(problem, 1)
    sandbox = _sandbox()
    try:
        code = sandbox.compile(sandbox.tree_of(source), filename=_FILE)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        message = str(error) or type(error).__name__
        raise TemplateSyntaxError(f"Python cannot compile it: {message[:_LONGEST_MESSAGE]}", 1) from None
    return sandbox.template_class.from_code(sandbox, code, sandbox.make_globals(None))


@cache
def _sandbox() -> Sandbox:
    return Sandbox()
