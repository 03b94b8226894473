"""The commands that make a model's folder and the repository."""

from __future__ import annotations

__all__: list[str] = []
