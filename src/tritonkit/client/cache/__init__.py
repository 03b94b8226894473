"""Cached answers: in this process, and in Redis for all processes.

Importing this loads neither cachetools nor redis: making a `PredictionCache` does.
"""

from tritonkit.client.cache.entry import Entry
from tritonkit.client.cache.prediction import PredictionCache
from tritonkit.client.cache.settings import Cache

__all__ = ["Cache", "Entry", "PredictionCache"]
