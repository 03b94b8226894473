"""Rates of keys: Envoy's local rate limit, with a token bucket for each key that has a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tritonkit.operate.keys import ApiKey

__all__ = ["ABOUT_BURST", "LOCAL_RATE", "bucket", "key_rates"]

LOCAL_RATE = "envoy.filters.http.local_ratelimit"
ABOUT_BURST = 32
"""The least size of a bucket for calls that only ask about a model. A client makes two such calls before its first
request, so a key with a low rate could otherwise never send one."""
_TYPE = "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"


def key_rates(keys: Sequence[ApiKey], space: str, least: int = 1) -> dict[str, Any]:
    """The filter's configuration for a route or host; keys without a rate have no bucket.

    Args:
        keys: the accepted keys.
        space: the namespace of the request's metadata.
        least: the least number of tokens that a bucket holds.
    """
    descriptors = [
        {"entries": [{"key": "key", "value": key.name}], "token_bucket": bucket(key.rate_per_s, max(key.burst, least))}
        for key in keys
        if key.rate_per_s is not None
    ]
    key_of = {
        "descriptor_key": "key",
        "source": "DYNAMIC",
        "default_value": "-",
        "metadata_key": {"key": space, "path": [{"key": "key"}]},
    }
    return {
        "@type": _TYPE,
        "stat_prefix": "gateway",
        # Of requests without a bucket of their own: as many as there may be.
        "token_bucket": bucket(1e6, 1_000_000),
        "filter_enabled": {"default_value": {"numerator": 100}},
        "filter_enforced": {"default_value": {"numerator": 100}},
        "status": {"code": "TooManyRequests"},
        "rate_limited_as_resource_exhausted": True,
        "rate_limits": [{"actions": [{"metadata": key_of}]}],
        "descriptors": descriptors,
    }


def bucket(rate_per_s: float, burst: int) -> dict[str, Any]:
    """An `envoy.type.v3.TokenBucket`, filled token by token as far as Envoy's shortest interval allows."""
    few = max(1, math.ceil(rate_per_s / 20))  # Envoy's shortest interval is 50 ms
    return {"max_tokens": max(burst, few), "tokens_per_fill": few, "fill_interval": f"{few / rate_per_s:.9f}s"}
