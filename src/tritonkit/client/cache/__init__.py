"""Answers kept: in this process, and in Redis for all processes.

`PredictionCache` puts the parts together: `keys` (which calls are the same), `memory` (this process),
`shared` (Redis), `flight` (one call for many who ask the same), `layout` (an answer as bytes).
Importing this loads neither cachetools nor redis: making a `PredictionCache` does.
"""

from tritonkit.client.cache.entry import Kept
from tritonkit.client.cache.prediction import PredictionCache
from tritonkit.client.cache.settings import Cache

__all__ = ["Cache", "Kept", "PredictionCache"]
