"""Read a namespace: objects, events and logs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from tritonkit.errors import ClientError, UsageError
from tritonkit.operate.deploy.cluster.client import Cluster, Forbidden, NotThere

__all__ = ["PART_OF", "NamespaceState", "condition", "logs_of", "look", "revision_of"]

PART_OF = "app.kubernetes.io/part-of=tritonkit"
_TAIL = 200
_REVISION = "deployment.kubernetes.io/revision"

Object = dict[str, Any]
"""One of Kubernetes' objects, as the API server's JSON."""


@dataclass
class NamespaceState:
    """State of a namespace: lists of the API server's objects.

    `logs` has the last lines by (pod, container); `notes` say what could not be read.
    """

    namespace: str
    deployments: list[Object] = field(default_factory=list)
    replica_sets: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    claims: list[Object] = field(default_factory=list)
    nodes: list[Object] = field(default_factory=list)
    logs: dict[tuple[str, str], str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def look(cluster: Cluster) -> NamespaceState:
    """Read the namespace.

    Raises:
        UsageError: the namespace is missing, or holds nothing of tritonkit.
        ClientError: the API server does not answer, or does not let the caller read pods or Deployments.
    """
    state = NamespaceState(cluster.namespace)
    state.deployments = cluster.items("deployments", PART_OF)
    state.pods = cluster.items("pods", PART_OF)
    if not state.deployments and not state.pods:
        raise _nothing(cluster)
    state.replica_sets = _optional(cluster, state, "replicasets", PART_OF)
    state.events = _optional(cluster, state, "events")
    state.claims = _optional(cluster, state, "persistentvolumeclaims")
    state.nodes = _optional(cluster, state, "nodes")
    return state


def _optional(cluster: Cluster, state: NamespaceState, resource: str, selector: str = "") -> list[Object]:
    try:
        return cluster.items(resource, selector)
    except NotThere:  # a kind that this cluster lacks, as KEDA's
        return []
    except Forbidden as error:
        state.notes.append(f"not read: {error.found}")
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


def logs_of(cluster: Cluster, namespace_state: NamespaceState) -> None:
    """Fill `seen.logs` with the last lines of containers that are not ready or were restarted."""
    for pod in namespace_state.pods:
        name, status = pod["metadata"]["name"], pod["status"]
        for container in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
            state, restarted = container.get("state", {}), container.get("restartCount", 0) > 0
            if restarted or (not container.get("ready") and "waiting" not in state):
                try:
                    namespace_state.logs[name, container["name"]] = _ended_log(cluster, name, container, restarted)
                except ClientError as error:
                    namespace_state.notes.append(f"log of {name}/{container['name']}: {error.found}")


def _ended_log(cluster: Cluster, pod: str, status: Object, restarted: bool) -> str:
    """The log of the run that ended: a run that has just begun says little about why the one before it ended."""
    for previous in (True, False) if restarted else (False,):
        try:
            lines = cluster.log(pod, status["name"], tail_lines=_TAIL, previous=previous)
        except ClientError:
            if not previous:
                raise
            continue
        # The kubelet answers with this, and not with an error, where it has removed the log.
        if not (lines and lines[0].startswith("unable to retrieve container logs")):
            return "\n".join(lines)
    return ""


def revision_of(state: NamespaceState, pod: Object) -> str:
    """The Deployment's revision that a pod belongs to, or "-"."""
    owners = {owner["name"] for owner in pod["metadata"].get("ownerReferences", [])}
    for replica_set in state.replica_sets:
        if replica_set["metadata"]["name"] in owners:
            return str(replica_set["metadata"].get("annotations", {}).get(_REVISION, "-"))
    return "-"


def condition(resource: Object, kind: str) -> dict[str, Any]:
    """A condition of an object, or {}."""
    for one in resource.get("status", {}).get("conditions") or []:
        if one.get("type") == kind:
            return dict(one)
    return {}
