"""The commands that serve a repository and install the server."""

from __future__ import annotations

__all__: list[str] = []
