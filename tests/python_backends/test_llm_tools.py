"""Chats with tools as prompts: as transformers renders them, and refused by templates without tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from llm_chat import Chat, ChatError, read_chat
from llm_template import ChatTemplate
from llm_text import AnswerText

from tests.python_backends.llm_network import CHAT, chat_tokenizer
from tests.python_backends.tool_templates import HERMES, LLAMA, MISTRAL

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
SCHEMA = {"type": "object", "properties": {"place": {"type": "string", "description": "Größe & <b>"}}}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "It's the weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "stop"}},
]
CALLS = [{"id": "a1b2c3d4e", "type": "function", "function": {"name": "weather", "arguments": {"place": "Zürich"}}}]
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Which weather?"},
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "content": "sun", "tool_call_id": "a1b2c3d4e"},
    {"role": "assistant", "content": "Sun."},
    {"role": "user", "content": "And now?"},
]


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["without", "with"])
@pytest.mark.parametrize("source", [HERMES, MISTRAL, LLAMA], ids=["hermes", "mistral", "llama"])
def test_prompts_are_those_of_transformers(source: str, tools: Any) -> None:
    """Letter for letter."""
    transformers = pytest.importorskip("transformers")
    reference = transformers.PreTrainedTokenizerFast(tokenizer_object=chat_tokenizer(), chat_template=source, **SPECIAL)
    expected = reference.apply_chat_template(HISTORY, tools=tools, tokenize=False, add_generation_prompt=True)
    assert ChatTemplate(source).render(HISTORY, SPECIAL, tools) == expected
    assert "Zürich" in expected


@pytest.mark.parametrize(("messages", "tools"), [(HISTORY, None), (HISTORY[:1], TOOLS)], ids=["history", "tools"])
def test_a_template_without_tools_refuses_them(messages: Any, tools: Any) -> None:
    """It would leave them out without a word."""
    with pytest.raises(ChatError, match="no place for tools"):
        Chat(CHAT, {}).prompt(messages, tools)
    assert Chat(CHAT, {}).prompt(HISTORY[:1])


def test_the_template_for_tools_is_chosen_where_there_are_tools(tmp_path: Path) -> None:
    """Some checkpoints have two."""
    templates = [{"name": "default", "template": CHAT}, {"name": "tool_use", "template": HERMES}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    chat = read_chat(tmp_path)
    assert chat is not None
    assert chat.prompt(HISTORY[:1]) == Chat(CHAT, {}).prompt(HISTORY[:1])
    assert chat.prompt(HISTORY[:1], TOOLS) == Chat(HERMES, {}).prompt(HISTORY[:1], TOOLS)
    assert chat.call_form == "tags"


def test_a_mark_of_calls_is_text_where_tools_were_offered() -> None:
    """Its tokenizer counts it as special and leaves it out."""
    tokens = [*chat_tokenizer().encode("é").ids, 257, *chat_tokenizer().encode("[]").ids]
    assert AnswerText(chat_tokenizer(), (256,)).add(tokens) == "é[]"
    assert AnswerText(chat_tokenizer(), (256,), (), {257: "[TOOL_CALLS]"}).add(tokens) == "é[TOOL_CALLS][]"
