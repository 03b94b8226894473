"""Messages of a chat: texts, calls of tools, and what tools answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tritonkit.openai.tool_bodies import StrictBody, ToolCalls

__all__ = ["Message"]

_LONGEST_NAME = 256
_EMPTY_PARTS = ("annotations", "audio", "function_call", "refusal")
"""Lists that are empty in a message which a client returns as it got it; null members are removed earlier."""

_OTHER_PARTS = {"image_url": "images", "input_audio": "sound", "file": "files", "video_url": "videos"}


def _other_part(part: Any) -> str:
    """The reason why a part of a message is refused."""
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in _OTHER_PARTS:
        return f"a part has the type {kind}; the language models behind this server read text, not {_OTHER_PARTS[kind]}"
    return "only parts of type text are supported"


def _joined(value: Any) -> Any:
    """A message's content: a text, or parts that are texts."""
    if not isinstance(value, list):
        return value
    for part in value:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise ValueError(_other_part(part))
        if not isinstance(part.get("text"), str) or len(part) != 2:
            raise ValueError('a part is {"type": "text", "text": "..."}')
    return "".join(part["text"] for part in value)


def _plain_message(value: Any) -> Any:
    """A message without empty parts and without its author's name, which templates do not know."""
    if not isinstance(value, dict):
        return value
    for name in _EMPTY_PARTS:
        if value.get(name):
            raise ValueError(f"{name} is not supported")
    name = value.get("name", "")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        raise ValueError(f"name is a text of at most {_LONGEST_NAME} characters")
    message = {name: part for name, part in value.items() if name not in (*_EMPTY_PARTS, "name")}
    if message.get("tool_calls"):
        if message.get("role") != "assistant":
            raise ValueError("only the assistant has tool_calls")
        message.setdefault("content", "")
    if (message.get("role") == "tool") != ("tool_call_id" in message):
        raise ValueError("tool_call_id belongs to a message of the role tool, and to no other")
    return message


class _Message(StrictBody):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(_joined)]
    tool_calls: ToolCalls = []
    tool_call_id: Annotated[str, Field(max_length=_LONGEST_NAME)] | None = None

    def shown(self) -> dict[str, Any]:
        """The message as templates know it; they know the older name of a role."""
        more = self.model_dump(exclude_defaults=True, include={"tool_calls", "tool_call_id"})
        return {"role": "system" if self.role == "developer" else self.role, "content": self.content} | more


Message = Annotated[_Message, BeforeValidator(_plain_message)]
