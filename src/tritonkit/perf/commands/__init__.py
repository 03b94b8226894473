"""The commands that measure, tune, plan and diagnose."""

from __future__ import annotations

__all__: list[str] = []
