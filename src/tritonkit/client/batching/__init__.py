"""Calls of many threads or tasks joined into one request, without a background thread."""

from __future__ import annotations

from tritonkit.client.batching.batcher import Batcher
from tritonkit.client.batching.independence import CheckedItem, Joining, JoiningState, Trial
from tritonkit.client.batching.item import Item, join_items, layout, split_outputs
from tritonkit.client.batching.pool import BatcherPool
from tritonkit.client.batching.settings import Adaptive

__all__ = [
    "Adaptive",
    "Batcher",
    "BatcherPool",
    "CheckedItem",
    "Item",
    "Joining",
    "JoiningState",
    "Trial",
    "join_items",
    "layout",
    "split_outputs",
]
