"""Chats as prompts for engines that take only text, made with the checkpoint's own template as transformers does.

The template comes from the checkpoint, and its values come from strangers. The module of the backend `llm` that also
renders it in a server (llm_template.py) does so in a sandbox and within a budget. Nothing else of a checkpoint is run.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError

from tritonkit.errors import BuildError, SpecError, UsageError
from tritonkit.openai.problems import invalid
from tritonkit.resources import shipped_modules

__all__ = ["Chat", "Chats", "find_checkpoints", "read_chat", "read_chats"]

_MOST_BYTES = 64 << 20
"""Largest file in bytes: a tokenizer of 250,000 tokens has some 20 MiB."""
_BACKEND = "python_backends/backends/llm"


class Chat:
    """A compiled chat template.

    Args:
        source: the template's text.
        special: values for the template, such as `bos_token` and `eos_token`.
        added: text that the engine's tokenizer itself puts before every prompt; it is omitted here.

    Raises:
        TemplateError: the template does not compile.
    """

    def __init__(self, source: str, special: Mapping[str, str] | None = None, added: str = "") -> None:
        self._template = _rendering().ChatTemplate(source)
        self._special = dict(special or {})
        self._added = added

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt that these messages make, up to where the answer begins.

        Raises:
            Problem: the template does not accept these messages, or exceeds its budget.
        """
        try:
            text: str = self._template.render(messages, self._special)
        except TemplateError as error:
            raise invalid(f"messages: {error}", "messages", "invalid_value") from None
        if self._added:
            text = text.removeprefix(self._added)
        if not text:
            raise invalid("messages: they make an empty prompt", "messages", "invalid_value")
        return text


@dataclass(frozen=True)
class Chats:
    """The templates of models that take no messages themselves.

    Args:
        named: templates by model.
        other: the template of all other models.
    """

    named: Mapping[str, Chat]
    other: Chat | None = None

    def of(self, model: str) -> Chat | None:
        """The model's template, if there is one."""
        return self.named.get(model, self.other)


def read_chats(options: Sequence[str], checkpoints: Mapping[str, Path]) -> Chats:
    """The templates that `--chat-template` names, and those of a project's checkpoints.

    Args:
        options: `PATH`, for every model without its own, or `MODEL=PATH`.
        checkpoints: folders by model; one without a readable template is skipped.

    Raises:
        UsageError: a path without a template.
    """
    named: dict[str, Chat] = {}
    for model, folder in checkpoints.items():
        try:
            named[model] = read_chat(folder)
        except UsageError:
            continue
    other = None
    for text in options:
        model, separator, path = text.partition("=")
        if separator and model and "/" not in model:
            named[model] = read_chat(Path(path))
        elif other is None:
            other = read_chat(Path(text))
        else:
            raise UsageError(
                f"--chat-template {text}",
                found="a second one for all models",
                wanted="one, or MODEL=PATH for each",
                todo=f"give --chat-template MODEL={text}",
            )
    return Chats(named, other)


def find_checkpoints(root: Path) -> dict[str, Path]:
    """The folders of checkpoints in a project, by model; specs that cannot be read are skipped."""
    from tritonkit.repository.modelspec import load

    folders = {}
    for file in sorted((root / "models").glob("*/model.yaml")):
        with contextlib.suppress(SpecError):
            spec = load(file.parent, root)
            network = spec.model.network
            if network is not None and network.llm is not None and network.llm.checkpoint:
                folders[spec.name] = spec.folder / network.llm.checkpoint
    return folders


def read_chat(path: Path) -> Chat:
    """The template in a file, or in a checkpoint's folder: chat_template.jinja, else that in tokenizer_config.json.

    Raises:
        UsageError: there is none, or it does not compile.
    """
    where = f"chat template {path}"
    if path.is_dir():
        for name in ("tokenizer_config.json", "chat_template.jinja", "tokenizer.json"):
            _stay(path / name, path)
        reading = _rendering()
        config = _object(path / "tokenizer_config.json")
        file = path / "chat_template.jinja"
        source = _text(file) if file.exists() else reading.template_of(config)
        special = reading.special_of(config)
        added = special.get("bos_token", "") if _adds_first(path, config, special) else ""
    else:
        source, special, added = _text(path), {}, ""
    if source is None:
        raise UsageError(
            where,
            found="neither chat_template.jinja nor a chat_template in tokenizer_config.json",
            wanted="a checkpoint that was made for chats, or a file with a template in Jinja",
        )
    try:
        return Chat(source, special, added)
    except TemplateError as error:
        raise UsageError(where, found=f"it does not compile: {error}") from None


def _adds_first(folder: Path, config: Mapping[str, Any], special: Mapping[str, str]) -> bool:
    """Whether the tokenizer puts the first token before every text, which a template might otherwise repeat."""
    if not special.get("bos_token"):
        return False
    if isinstance(config.get("add_bos_token"), bool):
        return bool(config["add_bos_token"])
    processor = _object(folder / "tokenizer.json").get("post_processor")
    parts = processor.get("processors", [processor]) if isinstance(processor, dict) else []
    for part in parts if isinstance(parts, list) else []:
        single = part.get("single") if isinstance(part, dict) else None
        first = single[0] if isinstance(single, list) and single else None
        token = first.get("SpecialToken") if isinstance(first, dict) else None
        if isinstance(token, dict) and token.get("id") == special["bos_token"]:
            return True
    return False


def _stay(file: Path, folder: Path) -> None:
    """Refuse a checkpoint's file that leads elsewhere: its content may be sent to any caller."""
    if os.path.lexists(file):
        from tritonkit.repository.export.plain_files import plain_file

        try:
            plain_file(file, folder, _MOST_BYTES)
        except BuildError as error:
            raise UsageError(error.where, found=error.found, wanted=error.wanted) from None


def _text(file: Path) -> str:
    try:
        if file.exists() and not file.is_file():
            raise UsageError(str(file), found="it is not a regular file", wanted="a file in UTF-8")
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UsageError(str(file), found=f"more than {_MOST_BYTES >> 20} MiB", wanted="a smaller file")
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UsageError(str(file), found=f"it cannot be read: {reason}") from None


def _object(file: Path) -> dict[str, Any]:
    """The object of a JSON file; empty if there is no file."""
    if not file.exists():
        return {}
    try:
        value = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise UsageError(str(file), found=f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(str(file), found=type(value).__name__, wanted="a JSON object")
    return value


@cache
def _rendering() -> Any:
    """The module that also renders templates in a server."""
    [module] = shipped_modules([_BACKEND], "llm_template")
    return module
