"""Cached answers: in this process, and in Redis for all processes.

`PredictionCache` puts the parts together: `keys` (which calls are the same), `local` (this process),
`redis_store` (Redis), `single_flight` (one call for all who make the same), `codec` (an answer as bytes).
Importing this loads neither cachetools nor redis: making a `PredictionCache` does.
"""

from tritonkit.client.cache.entry import Entry
from tritonkit.client.cache.prediction import PredictionCache
from tritonkit.client.cache.settings import Cache

__all__ = ["Cache", "Entry", "PredictionCache"]
