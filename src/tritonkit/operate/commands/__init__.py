"""The commands that run, release, store and deploy what is served."""

from __future__ import annotations

__all__: list[str] = []
