"""A chat's messages as one prompt, by the template that comes with the tokenizer, as transformers does it.

The template is the model's own; what is put into it is a stranger's. It runs in Jinja's sandbox, where neither can
change or reach anything.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from backend_config import ModelError
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from llm_config import read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jinja2 import Template


class ChatError(Exception):
    """The template refuses these messages; the text says why."""


class Chat:
    """A compiled chat template.

    Args:
        source: the template's text.
        special: its values `bos_token`, `eos_token` and so on.
    """

    def __init__(self, source: str, special: dict[str, str]) -> None:
        self._template = _compile(source)
        self._special = special

    def prompt(self, messages: Sequence[Any]) -> str:
        """The prompt that these messages make, up to where the answer begins.

        Raises:
            ChatError: the template does not take these messages.
        """
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=True,
                tools=None,
                documents=None,
                **self._special,
            )
        # A template indexes and adds whatever it finds: any error of these is one of the messages.
        except (
            TemplateError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:
            raise ChatError(str(error) or type(error).__name__) from error


def read_chat(folder: Path) -> Chat | None:
    """The template of a version's folder: chat_template.jinja, else that of tokenizer_config.json; None: no chat."""
    told = read_json(folder / "tokenizer_config.json")
    file = folder / "chat_template.jinja"
    source = file.read_text("utf-8") if file.exists() else _default(told.get("chat_template"))
    if source is None:
        return None
    try:
        return Chat(source, _special(told))
    except TemplateError as error:
        raise ModelError(f"{folder}: the chat template does not compile: {error}") from error


def _default(template: Any) -> str | None:
    """One template, or the one named `default` of several."""
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _special(told: dict[str, Any]) -> dict[str, str]:
    """Special tokens as texts; some files have them as objects."""
    tokens = {}
    for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = told.get(key)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[key] = value
    return tokens


def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def _tojson(value: Any, indent: int | None = None) -> str:
    """Jinja's own would write `<` as for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
