"""Changes of the network itself: each makes another trained module, from which any form can be made."""

from __future__ import annotations

__all__: list[str] = []
