"""What `values.yaml` says of the gateway before the pods."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tritonkit.operate.gateway.routes import GRPC_MODEL_METHODS
from tritonkit.spec.base import Strict

__all__ = ["DRAIN_S", "LEAVE_S", "Gateway", "GatewayApi"]

LEAVE_S = 10
"""For preStop of a gateway's pod: until its address has left every list, and its callers' connections have ended."""
DRAIN_S = 30
"""What gateway.py gives to requests under way after SIGTERM."""
_MARGIN_S = 10
_OVERHEAD_MIB = 256
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
Label = Annotated[str, Field(pattern=f"^{_LABEL}$")]
Host = Annotated[str, Field(pattern=rf"^{_LABEL}(\.{_LABEL})+$", max_length=253)]
"""A DNS name with a dot."""


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


class GatewayApi(Strict):
    """Of the component `gateway-api`: routes of a Gateway that there is already."""

    gateway: Label
    """Its name."""
    namespace: Label | None = None
    """Its namespace; None: that of the pods."""
    section: Label | None = None
    """One of its listeners; None: all that take the hosts."""
    grpc_host: Host
    http_host: Host
    """Under which gRPC and REST are called."""

    @property
    def of_a_model(self) -> tuple[str, ...]:
        """Methods of gRPC whose calls may go to a canary."""
        return (*GRPC_MODEL_METHODS, "ModelStreamInfer")

    @property
    def of_the_server(self) -> tuple[str, ...]:
        """The others that are open."""
        return ("ServerLive", "ServerReady", "ServerMetadata", "ModelStatistics")

    @model_validator(mode="after")
    def _two(self) -> Self:
        if self.grpc_host == self.http_host:
            raise ValueError(
                f"grpc_host and http_host are both {self.grpc_host}; wanted two names:"
                " a GRPCRoute and an HTTPRoute may not share one"
            )
        return self
