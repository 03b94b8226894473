"""A chat's messages as one prompt, by the template that comes with the tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backend_config import ModelError
from jinja2.exceptions import TemplateError
from llm_config import read_json
from llm_template import ChatTemplate, special_of, template_of
from llm_tools import form_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_MOST_BYTES = 1 << 19


class ChatError(Exception):
    """The template refuses these messages; the text says why."""


class Chat:
    """A compiled chat template.

    Args:
        source: the template's text.
        special: its values `bos_token`, `eos_token` and so on.
        tool_source: the text of the template for chats with tools; None: the same.
    """

    def __init__(self, source: str, special: dict[str, str], tool_source: str | None = None) -> None:
        self._template = ChatTemplate(source)
        self._with_tools = ChatTemplate(tool_source) if tool_source else self._template
        self._special = special
        self.call_form = form_of(tool_source or source)
        """The form of calls in the template; see `form_of`."""

    def prompt(self, messages: Sequence[Any], tools: Sequence[Any] | None = None) -> str:
        """The prompt of these messages, up to the start of the answer.

        Raises:
            ChatError: the template refuses these messages, or needs too much work for them, or knows no tools.
        """
        needs_tools = tools or any(message["role"] == "tool" or message.get("tool_calls") for message in messages)
        if needs_tools and not self._with_tools.takes_tools:
            raise ChatError("it has no place for tools and their calls")
        try:
            return (self._with_tools if tools else self._template).render(messages, self._special, tools)
        except TemplateError as error:
            raise ChatError(str(error)) from error


def read_chat(folder: Path) -> Chat | None:
    """The template of a version's folder: chat_template.jinja, else that of tokenizer_config.json; None without one."""
    facts = read_json(folder / "tokenizer_config.json")
    file = folder / "chat_template.jinja"
    if file.exists() and (not file.is_file() or file.stat().st_size > _MOST_BYTES):
        raise ModelError(f"{file}: found no file, or more than {_MOST_BYTES} bytes, wanted a chat template")
    source = file.read_text("utf-8") if file.exists() else template_of(facts)
    several = not file.exists() and isinstance(facts.get("chat_template"), list)
    if source is None:
        return None
    try:
        return Chat(source, special_of(facts), template_of(facts, "tool_use") if several else None)
    except TemplateError as error:
        raise ModelError(f"{folder}: the chat template does not compile: {error}") from error
