"""Envoy's defense of its memory and connections: the less is left, the sooner it ends requests."""

from __future__ import annotations

from typing import Any

__all__ = ["memory_allocator", "overload_manager"]

_MIB = 1 << 20
_MONITORS = "envoy.resource_monitors"
_MONITOR_TYPES = "type.googleapis.com/envoy.extensions.resource_monitors"
_TIMERS = "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig"
_HEAP = f"{_MONITORS}.fixed_heap"
_CONNECTIONS = f"{_MONITORS}.global_downstream_max_connections"
_SHORTEST = {
    "HTTP_DOWNSTREAM_STREAM_FLUSH": "0.250s",
    "HTTP_DOWNSTREAM_STREAM_IDLE": "5s",
    "HTTP_DOWNSTREAM_CONNECTION_IDLE": "1s",
    "TRANSPORT_SOCKET_CONNECT": "2s",
}
"""Timeouts that are shortened under pressure, and their shortest values."""
_TRACKED_POWER = 14
"""Requests whose buffers hold 16 KiB or more can be ended, because many small ones need as much as a few large ones."""


def overload_manager(heap_bytes: int, connections: int, *, closes: bool = False) -> dict[str, Any]:
    """An `envoy.config.overload.v3.OverloadManager`.

    Most memory that a caller can make Envoy hold is answers that nobody reads, so their time is cut first. Next, the
    requests that hold most are ended, then new ones are refused. Last, the connections whose refusals would still fill
    the memory are closed.

    Args:
        heap_bytes: the largest heap.
        connections: the number of concurrent connections.
        closes: whether connections are closed at the end. Otherwise all callers get an error message, and something
            else must bound the refusals that nobody reads.
    """
    closing = [
        _shed("hcm_ondata_creating_codec", _threshold(_HEAP, 0.9)),
        _shed("http2_server_go_away_and_close_on_dispatch", _threshold(_HEAP, 0.95)),
    ]
    return {
        "refresh_interval": "0.050s",
        "resource_monitors": [
            _monitor("fixed_heap", "fixed_heap.v3.FixedHeapConfig", max_heap_size_bytes=heap_bytes),
            _monitor(
                "global_downstream_max_connections",
                "downstream_connections.v3.DownstreamConnectionsConfig",
                max_active_downstream_connections=connections,
            ),
        ],
        "actions": [
            _action("reduce_timeouts", _scaled(_HEAP, 0.3, 0.6), _scaled(_CONNECTIONS, 0.7, 0.95))
            | {
                "typed_config": {
                    "@type": _TIMERS,
                    "timer_scale_factors": [
                        {"timer": timer, "min_timeout": shortest} for timer, shortest in _SHORTEST.items()
                    ],
                }
            },
            _action("reset_high_memory_stream", _scaled(_HEAP, 0.75, 0.95)),
            _action("stop_accepting_requests", _threshold(_HEAP, 0.9)),
        ],
        **({"loadshed_points": closing} if closes else {}),
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": _TRACKED_POWER},
    }


def memory_allocator(heap_bytes: int) -> dict[str, Any]:
    """An `envoy.config.bootstrap.v3.MemoryAllocatorManager`, without which the allocator keeps the memory of a peak.

    Free memory goes back to the system: immediately above the soft limit, below it within minutes in the background.
    """
    return {"soft_memory_limit_bytes": heap_bytes // 4, "bytes_to_release": 64 * _MIB, "memory_release_interval": "1s"}


def _monitor(name: str, kind: str, **options: int) -> dict[str, Any]:
    return {"name": f"{_MONITORS}.{name}", "typed_config": {"@type": f"{_MONITOR_TYPES}.{kind}", **options}}


def _action(name: str, *triggers: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"envoy.overload_actions.{name}", "triggers": list(triggers)}


def _shed(name: str, trigger: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"envoy.load_shed_points.{name}", "triggers": [trigger]}


def _scaled(resource: str, begins: float, ends: float) -> dict[str, Any]:
    """A trigger whose action grows between two fractions of the resource's limit."""
    return {"name": resource, "scaled": {"scaling_threshold": begins, "saturation_threshold": ends}}


def _threshold(resource: str, part: float) -> dict[str, Any]:
    return {"name": resource, "threshold": {"value": part}}
