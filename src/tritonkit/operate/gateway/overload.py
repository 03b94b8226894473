"""The gateway's defense of its memory and connections: what it ends, sooner the less is left."""

from __future__ import annotations

from typing import Any

from tritonkit.operate.gateway.spec import GatewayLimits
from tritonkit.serve.core import overload

__all__ = ["BUFFER_BYTES", "memory_allocator", "overload_manager"]

BUFFER_BYTES = 1 << 20
"""Of an answer, for a caller that does not read it: the replica waits with the rest."""


def overload_manager(limits: GatewayLimits) -> dict[str, Any]:
    """An `envoy.config.overload.v3.OverloadManager`; a caller needs no key to make the gateway hold refusals."""
    return overload.overload_manager(_heap_bytes(limits), limits.connections, closes=True)


def memory_allocator(limits: GatewayLimits) -> dict[str, Any]:
    """An `envoy.config.bootstrap.v3.MemoryAllocatorManager`."""
    return overload.memory_allocator(_heap_bytes(limits))


def _heap_bytes(limits: GatewayLimits) -> int:
    return max(limits.memory_mib, 4 * limits.request_mib) << 20
