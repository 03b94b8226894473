"""The gateway's protection of its memory and connections: the less is left, the sooner it ends calls."""

from __future__ import annotations

from typing import Any

from tritonkit.operate.gateway.spec import GatewayLimits
from tritonkit.serve.core import overload

__all__ = ["BUFFER_BYTES", "memory_allocator", "memory_notes", "overload_manager"]

BUFFER_BYTES = 1 << 20
"""Buffer size for an answer that its caller does not read; the replica holds back the rest."""

_BURST_MIB = 256
"""MiB held in a measured burst of 10,000 streams on many connections; with 64 MiB others' calls were refused."""
_CONTAINER_MIB, _BESIDE_MIB = 1280, 256
"""The memory of the gateway's container in docker compose by default, and the part of it that is not the heap's."""


def memory_notes(limits: GatewayLimits) -> list[str]:
    """Advice on `memory_mib`; usually empty."""
    taken, needed = _heap_bytes(limits) >> 20, _BESIDE_MIB + (_heap_bytes(limits) >> 20)
    notes = []
    if limits.memory_mib < taken:
        notes.append(f"memory_mib is {limits.memory_mib}, less than four of the largest requests: {taken} MiB are used")
    if taken < _BURST_MIB:
        notes.append(
            f"with a memory_mib of {taken}, a burst of calls makes it refuse others; {_BURST_MIB} or more avoids that"
        )
    if needed > _CONTAINER_MIB:
        notes.append(f"in docker compose this needs GATEWAY_MEMORY={needed}m or more")
    return notes


def overload_manager(limits: GatewayLimits) -> dict[str, Any]:
    """An `envoy.config.overload.v3.OverloadManager`; a caller needs no key to make the gateway hold refusals."""
    return overload.overload_manager(_heap_bytes(limits), limits.connections, closes=True)


def memory_allocator(limits: GatewayLimits) -> dict[str, Any]:
    """Envoy's `envoy.config.bootstrap.v3.MemoryAllocatorManager` for these limits."""
    return overload.memory_allocator(_heap_bytes(limits))


def _heap_bytes(limits: GatewayLimits) -> int:
    return max(limits.memory_mib, 4 * limits.request_mib) << 20
