"""Replicas, gateway, Prometheus and Redis on one machine, without containers.

    from tritonkit.operate.stack import Stack, StackSettings

    with Stack(StackSettings(root, root / "model_repository", replicas=2)) as stack:
        stack.run_until_signal()

A public name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonkit.operate.stack.stack import Stack
    from tritonkit.operate.stack.state import read_state, stop_running
    from tritonkit.operate.stack.values import StackEvent, StackPart, StackSettings

__all__ = ["Stack", "StackEvent", "StackPart", "StackSettings", "read_state", "stop_running"]

_HOMES = {
    "stack": ("Stack",),
    "state": ("read_state", "stop_running"),
    "values": ("StackEvent", "StackPart", "StackSettings"),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
