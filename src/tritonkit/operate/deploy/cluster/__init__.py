"""Causes why pods in a cluster are not ready."""

from __future__ import annotations

from tritonkit.operate.deploy.cluster.causes import Cause, causes_of
from tritonkit.operate.deploy.cluster.client import Cluster, connect
from tritonkit.operate.deploy.cluster.look import PART_OF, NamespaceState, logs_of, look

__all__ = [
    "PART_OF",
    "Cause",
    "Cluster",
    "NamespaceState",
    "causes_of",
    "connect",
    "logs_of",
    "look",
]
