"""The rate of each subject of JSON Web Tokens: Envoy's local rate limit with a bucket per subject."""

from __future__ import annotations

from typing import Any

from tritonkit.operate.gateway.rates import bucket
from tritonkit.operate.gateway.spec import Jwt

__all__ = ["METADATA", "SUBJECT_RATE", "subject_rates", "token_rate_filter"]

SUBJECT_RATE = "tritonkit.token_rate"
"""The filter's name."""
METADATA = "subject"
"""Field of a request's metadata with `jwt:` and its token's subject, if subjects have a rate (`admission.lua`)."""
_TYPE = "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
_DESCRIPTOR = "subject"
_SUBJECTS = 10_000
"""Largest number of buckets; beyond it, the least recently used one is forgotten, and later begins full."""


def token_rate_filter(jwt: Jwt, space: str) -> dict[str, Any]:
    """The HTTP filter, in addition to the one for keys; only for a `jwt` that has a rate.

    Args:
        space: the namespace of the request's metadata.
    """
    return {"name": SUBJECT_RATE, "typed_config": subject_rates(jwt, space)}


def subject_rates(jwt: Jwt, space: str, least: int = 1) -> dict[str, Any]:
    """The filter's configuration for all routes or for one.

    Args:
        space: the namespace of the request's metadata.
        least: the least number of tokens that a bucket holds.
    """
    subject = {"key": space, "path": [{"key": METADATA}]}
    action = {"descriptor_key": _DESCRIPTOR, "source": "DYNAMIC", "metadata_key": subject}
    every = {"default_value": {"numerator": 100}}
    of_each = bucket(jwt.rate_per_s or 1.0, max(jwt.tokens, least))
    return {
        "@type": _TYPE,
        "stat_prefix": "tokens",
        # Of requests without a bucket of their own: as many as there may be.
        "token_bucket": bucket(1e6, 1_000_000),
        "filter_enabled": every,
        "filter_enforced": every,
        "status": {"code": "TooManyRequests"},
        "rate_limited_as_resource_exhausted": True,
        "rate_limits": [{"actions": [{"metadata": action}]}],
        "descriptors": [{"entries": [{"key": _DESCRIPTOR}], "token_bucket": of_each}],
        "max_dynamic_descriptors": _SUBJECTS,
    }
