"""The commands that serve OpenAI's API."""

from __future__ import annotations

__all__: list[str] = []
