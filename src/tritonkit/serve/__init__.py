"""Drives a `tritonserver` process over a model repository: ready means that every model has answered.

Nothing heavy is imported: the server is another process, in a Python environment of its own.
"""

from __future__ import annotations

from tritonkit.serve.doctor import Check, doctor
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
