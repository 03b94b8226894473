"""The same repository on Kubernetes."""

from __future__ import annotations

__all__: list[str] = []
