"""Bounds on the length of a text that a tokenizer makes before it cuts it, from its file, which may come from anywhere.

tritonkit checks tokenizers with this module, too: it imports the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_GROWTH = 64
_MOST_ADDED = 1024
"""Bytes that stand before each text."""


def refusal(facts: Mapping[str, Any]) -> str:
    """The reason why a tokenizer.json cannot be served; empty if it can."""
    for part in ("normalizer", "decoder"):
        growth = 1
        for step in _steps(facts.get(part)):
            growth *= _growth(step)
            if growth > _MOST_GROWTH:
                return f"{part}: it makes texts {growth:,} times as long; at most {_MOST_GROWTH} are taken"
            if len(str(step.get("prepend", "")).encode("utf-8", "replace")) > _MOST_ADDED:
                return f"{part}: it puts more than {_MOST_ADDED} bytes before each text"
    return ""


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a part of a tokenizer: a `Sequence` has several, and may lie in another one."""
    left = [part]
    while left:
        step = left.pop()
        if isinstance(step, dict):
            yield step
            left += [*(step.get("normalizers") or ()), *(step.get("decoders") or ())]


def _growth(step: Mapping[str, Any]) -> int:
    """Most bytes that may replace one byte."""
    if step.get("type") != "Replace":
        return 1
    pattern, content = step.get("pattern"), str(step.get("content", ""))
    sought = pattern.get("String") if isinstance(pattern, dict) else None
    written = len(content.encode("utf-8", "replace"))
    # An expression, and a text without letters, are found between any two characters.
    if not isinstance(sought, str) or not sought:
        return 1 + written
    return max(1, -(-written // len(sought.encode("utf-8", "replace"))))
