"""Calls of many threads or tasks joined into one request, without a thread of its own."""

from __future__ import annotations

from tritonkit.client.batching.arrays import apart, layout, together
from tritonkit.client.batching.batcher import Batcher, Retired, SendMany
from tritonkit.client.batching.item import Item
from tritonkit.client.batching.keyed import Batchers
from tritonkit.client.batching.settings import Adaptive

__all__ = [
    "Adaptive",
    "Batcher",
    "Batchers",
    "Item",
    "Retired",
    "SendMany",
    "apart",
    "layout",
    "together",
]
