"""The parts of `values.yaml` about the gateway and its routes to the pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tritonkit.operate.gateway.routes import GRPC_MODEL_METHODS
from tritonkit.repository.modelspec.base import Strict

if TYPE_CHECKING:
    from tritonkit.operate.deploy.scaling_values import Scaling

__all__ = ["DRAIN_S", "LEAVE_S", "Gateway", "GatewayApi", "Kserve"]

LEAVE_S = 10
"""Seconds of a gateway's preStop: until its address has left every list, and its callers' connections have ended."""
DRAIN_S = 30
"""Seconds that gateway.py gives to requests in flight after SIGTERM."""
_MARGIN_S = 10
_OVERHEAD_MIB = 256
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
Label = Annotated[str, Field(pattern=f"^{_LABEL}$")]
Host = Annotated[str, Field(pattern=rf"^{_LABEL}(\.{_LABEL})+$", max_length=253)]
"""A DNS name with a dot."""


class Gateway(Strict):
    """Values of the component `gateway`."""

    replicas: Annotated[int, Field(ge=1, le=100, strict=True)] = 2
    cpu: Annotated[int, Field(ge=1, le=64, strict=True)] = 1
    """Cores that a pod may use, each with a thread of Envoy."""
    memory_mib: Annotated[int, Field(ge=64, le=1_000_000, strict=True)] = 1024
    """At least `limits: memory_mib` of gateway.yaml."""
    service: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service; ClusterIP is reachable from the cluster only."""

    @property
    def limit_mib(self) -> int:
        """The limit of a pod's memory."""
        return self.memory_mib + _OVERHEAD_MIB

    @property
    def leave_s(self) -> int:
        """Seconds of preStop."""
        return LEAVE_S

    @property
    def drain_s(self) -> int:
        """Seconds for requests in flight after SIGTERM."""
        return DRAIN_S

    @property
    def grace_s(self) -> int:
        """Seconds from the order to end until the kubelet kills."""
        return LEAVE_S + DRAIN_S + _MARGIN_S


class GatewayApi(Strict):
    """Values of the component `gateway-api`: routes of an existing Gateway."""

    gateway: Label
    """Name of the Gateway."""
    namespace: Label | None = None
    """The Gateway's namespace; None: that of the pods."""
    section: Label | None = None
    """A listener of the Gateway; None: all listeners that take the hosts."""
    grpc_host: Host
    http_host: Host
    """Host names by which gRPC and REST are called."""

    @property
    def of_a_model(self) -> tuple[str, ...]:
        """Methods of gRPC whose calls may go to a canary."""
        return (*GRPC_MODEL_METHODS, "ModelStreamInfer")

    @property
    def of_the_server(self) -> tuple[str, ...]:
        """The other open methods of gRPC, which are about the server."""
        return ("ServerLive", "ServerReady", "ServerMetadata", "ModelStatistics")

    @model_validator(mode="after")
    def _two(self) -> Self:
        if self.grpc_host == self.http_host:
            raise ValueError(
                f"grpc_host and http_host are both {self.grpc_host}; wanted two names:"
                " a GRPCRoute and an HTTPRoute cannot share one"
            )
        return self


class Kserve(Strict):
    """Values of the overlay `kserve`."""

    mode: Literal["Standard", "Knative"] = "Standard"
    """KServe's mode: pods of a Deployment, or of revisions of Knative. Only revisions have canaries."""
    scale_metric: Literal["cpu", "memory", "concurrency", "rps"] | None = None
    """Metric that scaling follows; None: `cpu`, and `concurrency` with Knative."""
    scale_target: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = None
    """Target of that metric; None: the target from `scaling`."""

    @property
    def knative(self) -> bool:
        """Whether pods are revisions of Knative."""
        return self.mode == "Knative"

    @property
    def metric(self) -> str:
        """The metric that scaling follows."""
        return self.scale_metric or ("concurrency" if self.knative else "cpu")

    def target(self, scaling: Scaling) -> int:
        """The target: percent of CPU, or requests per pod; Knative also counts those in progress."""
        usual = scaling.cpu_percent if self.metric == "cpu" else max(1, round(scaling.pending))
        return self.scale_target or usual

    def container(self, of_pod: Mapping[str, Any]) -> dict[str, Any]:
        """Triton's container with the name that KServe wants; Knative accepts no lifecycle and only one port."""
        container = {**of_pod, "name": "kserve-container"}
        if self.knative:
            del container["lifecycle"]
            container["ports"] = [{"name": "h2c", "containerPort": 8001, "protocol": "TCP"}]
        return container

    @model_validator(mode="after")
    def _has(self) -> Self:
        if self.metric not in (("concurrency", "rps") if self.knative else ("cpu", "memory")):
            raise ValueError(
                f"scale_metric is {self.metric}, mode {self.mode}; wanted cpu or memory with Standard,"
                " concurrency or rps with Knative"
            )
        if self.metric in ("memory", "rps") and self.scale_target is None:
            raise ValueError(f"scale_metric is {self.metric}; wanted scale_target with it")
        return self
