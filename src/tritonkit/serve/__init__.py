"""Drives a `tritonserver` process over a model repository: ready means that every model has answered.

A public name is loaded on first use, with numpy; the server is another process, in a Python environment of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonkit.serve.checks import Check, doctor
    from tritonkit.serve.install import ServerInstallation, find_server
    from tritonkit.serve.repository import ServedModel, read_models
    from tritonkit.serve.server import Server, serve
    from tritonkit.serve.shm import ShmPlan, StubMemory, plan
    from tritonkit.serve.values import Endpoint, Ports, ServeEvent

__all__ = [
    "Check",
    "Endpoint",
    "Ports",
    "ServeEvent",
    "ServedModel",
    "Server",
    "ServerInstallation",
    "ShmPlan",
    "StubMemory",
    "doctor",
    "find_server",
    "plan",
    "read_models",
    "serve",
]

_HOMES = {
    "checks": ("Check", "doctor"),
    "install": ("ServerInstallation", "find_server"),
    "repository": ("ServedModel", "read_models"),
    "server": ("Server", "serve"),
    "shm": ("ShmPlan", "StubMemory", "plan"),
    "values": ("Endpoint", "Ports", "ServeEvent"),
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"tritonkit.serve.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
