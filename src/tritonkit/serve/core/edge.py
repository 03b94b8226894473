"""Envoy's settings for a listener that trusts none of its callers: no header changes what Envoy does."""

from __future__ import annotations

from typing import Any

__all__ = ["no_trust"]

_MUTATION = "envoy.http.early_header_mutation.header_mutation"
_TYPE = "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
_OBEYED = (
    "x-envoy-",  # Envoy: retries, timeouts, names of metrics, the path in its logs
    "x-forwarded-",  # addresses, hosts and certificates of others
    "triton-grpc-protocol-",  # Triton: the admin key
)
"""Prefixes of the names of headers that Envoy or Triton obeys."""
_OBEYED_NAMES = ("admin-key", "forwarded", "x-client-trace-id", "x-request-id")
_NOBODY = {"address_prefix": "255.255.255.255", "prefix_len": 32}


def no_trust() -> dict[str, Any]:
    """Options of an HTTP connection manager.

    Envoy obeys `x-envoy-*` of internal addresses. An empty list of these means loopback and the private networks, where
    Docker's bridge and pods put every caller, so the list has the broadcast address, which sends no packets. The
    headers are removed too, by their prefixes, because releases differ in which headers they obey, and from whom.
    """
    obeyed = [*({"prefix": name} for name in _OBEYED), *({"exact": name} for name in _OBEYED_NAMES)]
    mutations = [{"remove_on_match": {"key_matcher": matcher}} for matcher in obeyed]
    return {
        "use_remote_address": True,
        "skip_xff_append": True,
        "internal_address_config": {"unix_sockets": False, "cidr_ranges": [_NOBODY]},
        "early_header_mutation_extensions": [
            {"name": _MUTATION, "typed_config": {"@type": _TYPE, "mutations": mutations}}
        ],
    }
