"""The gateway before the replicas: an Envoy that checks callers, their rights and their rates.

from tritonkit.operate.gateway import Places, Replica, read_gateway, write_gateway
"""

from tritonkit.operate.gateway.bootstrap import Places
from tritonkit.operate.gateway.clusters import Split, Upstream
from tritonkit.operate.gateway.follow import GatewayFiles, GatewaySources
from tritonkit.operate.gateway.render import gateway_command, write_clusters, write_gateway, write_routes
from tritonkit.operate.gateway.spec import GatewaySpec, SharedLimits, read_gateway

__all__ = [
    "GatewayFiles",
    "GatewaySources",
    "GatewaySpec",
    "Places",
    "SharedLimits",
    "Split",
    "Upstream",
    "gateway_command",
    "read_gateway",
    "write_clusters",
    "write_gateway",
    "write_routes",
]
