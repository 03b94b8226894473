"""Reads what is there: objects, events, logs, and from each ready pod the models it serves."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import Any

from tritonkit.errors import ClientError, UsageError
from tritonkit.extras import need_package
from tritonkit.operate.deploy.cluster.client import EXTRA, Cluster, Forbidden, NotThere

__all__ = ["PART_OF", "Seen", "logs_of", "look", "pods_of", "served_by", "served_in"]

PART_OF = "app.kubernetes.io/part-of=tritonkit"
_METRICS_PORT = 8002
_TAIL = 200
_MODEL = re.compile(r"^nv_inference_request_success\{([^}]*)\}", re.MULTILINE)
_FORWARD_S = 5.0

Object = dict[str, Any]
"""One of Kubernetes' objects, as the API server's JSON."""


@dataclass
class Seen:
    """What the API server said; lists of its objects.

    `logs` has the last lines by (pod, container); `notes` say what could not be read.
    """

    namespace: str
    deployments: list[Object] = field(default_factory=list)
    replica_sets: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    autoscalers: list[Object] = field(default_factory=list)
    scaled_objects: list[Object] = field(default_factory=list)
    budgets: list[Object] = field(default_factory=list)
    claims: list[Object] = field(default_factory=list)
    nodes: list[Object] = field(default_factory=list)
    logs: dict[tuple[str, str], str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def look(cluster: Cluster) -> Seen:
    """Read the namespace.

    Raises:
        UsageError: the namespace is missing, or nothing of tritonkit is in it.
        ClientError: the API server cannot be asked, or gives no right to pods or Deployments.
    """
    seen = Seen(cluster.namespace)
    seen.deployments = cluster.items("deployments", PART_OF)
    seen.pods = cluster.items("pods", PART_OF)
    if not seen.deployments and not seen.pods:
        raise _nothing(cluster)
    seen.replica_sets = _optional(cluster, seen, "replicasets", PART_OF)
    seen.events = _optional(cluster, seen, "events")
    seen.autoscalers = _optional(cluster, seen, "horizontalpodautoscalers")
    seen.scaled_objects = _optional(cluster, seen, "scaledobjects")
    seen.budgets = _optional(cluster, seen, "poddisruptionbudgets", PART_OF)
    seen.claims = _optional(cluster, seen, "persistentvolumeclaims")
    seen.nodes = _optional(cluster, seen, "nodes")
    return seen


def pods_of(cluster: Cluster) -> list[Object]:
    """The pods alone.

    Raises:
        UsageError: the namespace is missing, or no pod of tritonkit is in it.
        ClientError: the API server cannot be asked, or gives no right to it.
    """
    if pods := cluster.items("pods", PART_OF):
        return pods
    raise _nothing(cluster)


def _optional(cluster: Cluster, seen: Seen, resource: str, selector: str = "") -> list[Object]:
    try:
        return cluster.items(resource, selector)
    except NotThere:  # a kind that this cluster lacks, as KEDA's
        return []
    except Forbidden as error:
        seen.notes.append(f"not read: {error.found}")
        return []


def _nothing(cluster: Cluster) -> UsageError:
    there = True
    with contextlib.suppress(Forbidden):
        there = cluster.has_namespace()
    if not there:
        return UsageError(
            f"namespace {cluster.namespace}",
            found="the cluster has no such namespace",
            wanted="the one that was deployed to",
            todo="--namespace NAME; kubectl get namespaces",
        )
    return UsageError(
        f"namespace {cluster.namespace}",
        found=f"nothing in it has the label {PART_OF}",
        wanted="what tritonkit deploy renders",
        todo="kubectl apply -k deploy/kubernetes/overlays/cpu, or another --namespace",
    )


def logs_of(cluster: Cluster, seen: Seen) -> None:
    """Fill `seen.logs` with the last lines of containers that are not ready or were restarted."""
    for pod in seen.pods:
        name, status = pod["metadata"]["name"], pod["status"]
        for each in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
            state, restarted = each.get("state", {}), each.get("restartCount", 0) > 0
            if restarted or (not each.get("ready") and "waiting" not in state):
                try:
                    seen.logs[name, each["name"]] = _ended_log(cluster, name, each, restarted)
                except ClientError as error:
                    seen.notes.append(f"log of {name}/{each['name']}: {error.found}")


def _ended_log(cluster: Cluster, pod: str, status: Object, restarted: bool) -> str:
    """Of the run that ended: one that runs again says little yet of why the one before it ended."""
    for previous in (True, False) if restarted else (False,):
        try:
            lines = list(cluster.log(pod, status["name"], tail_lines=_TAIL, previous=previous))
        except ClientError:
            if not previous:
                raise
            continue
        # The kubelet answers with this, and not with an error, where it has removed the log.
        if not (lines and lines[0].startswith("unable to retrieve container logs")):
            return "\n".join(lines)
    return ""


def served_by(cluster: Cluster, pod: str) -> list[str]:
    """The models a pod serves, as `name:version`, from Triton's metrics through a port-forward.

    Raises:
        ClientError: no right to pods/portforward, or no answer.
    """
    client = need_package("kubernetes.client", EXTRA)
    stream = need_package("kubernetes.stream", EXTRA)

    core = client.CoreV1Api(cluster.api)
    with cluster.translated("create", "", "pods/portforward"):
        forward = stream.portforward(
            core.connect_get_namespaced_pod_portforward,
            pod,
            cluster.namespace,
            ports=str(_METRICS_PORT),
            _request_timeout=_FORWARD_S,
        )
    try:
        link = forward.socket(_METRICS_PORT)
        link.settimeout(_FORWARD_S)
        link.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        got = bytearray()
        while piece := link.recv(65536):
            got += piece
    except OSError as error:
        raise ClientError(f"{pod}:{_METRICS_PORT}", found=f"no metrics: {error}") from error
    finally:
        forward.close()
    if refused := forward.error(_METRICS_PORT):
        raise ClientError(f"{pod}:{_METRICS_PORT}", found=f"no metrics: {refused}")
    return served_in(got.decode(errors="replace"))


def served_in(metrics: str) -> list[str]:
    """`name:version` of each model in Triton's metrics."""
    found = set()
    for labels in _MODEL.findall(metrics):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if "model" in pairs and "version" in pairs:
            found.add(f"{pairs['model']}:{pairs['version']}")
    return sorted(found)
