"""What `values.yaml` says of the gateway before the pods."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tritonkit.spec.base import Strict

__all__ = ["LEAVE_S", "Gateway"]

LEAVE_S = 10
"""For preStop of a gateway's pod: until its address has left every list, and its callers' connections have ended."""
DRAIN_S = 30
"""What gateway.py gives to requests under way after SIGTERM."""
_MARGIN_S = 10
_OVERHEAD_MIB = 256


class Gateway(Strict):
    """Of the component `gateway`."""

    replicas: Annotated[int, Field(ge=1, le=100, strict=True)] = 2
    cpu: Annotated[int, Field(ge=1, le=64, strict=True)] = 1
    """Cores that a pod may use, each with a thread of Envoy."""
    memory_mib: Annotated[int, Field(ge=64, le=1_000_000, strict=True)] = 1024
    """As `limits: memory_mib` of gateway.yaml, or more."""
    service: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """How it is reached: ClusterIP from the cluster alone."""

    @property
    def limit_mib(self) -> int:
        """The limit of a pod's memory."""
        return self.memory_mib + _OVERHEAD_MIB

    @property
    def leave_s(self) -> int:
        """For preStop."""
        return LEAVE_S

    @property
    def drain_s(self) -> int:
        """For requests under way after SIGTERM."""
        return DRAIN_S

    @property
    def grace_s(self) -> int:
        """From the order to end until the kubelet kills."""
        return LEAVE_S + DRAIN_S + _MARGIN_S
