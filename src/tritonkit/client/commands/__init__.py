"""The commands that call, list and reload models."""

from __future__ import annotations

__all__: list[str] = []
