"""Pure: the API server's objects as rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tritonkit.operate.deploy.cluster.look import Object, Seen

__all__ = ["autoscaler_rows", "budget_rows", "condition", "pod_rows", "revision_of", "rollout_rows"]

_ZONE = "topology.kubernetes.io/zone"
_REVISION = "deployment.kubernetes.io/revision"
_HASH = "pod-template-hash"


def pod_rows(seen: Seen, now: datetime, served: Mapping[str, Sequence[str]] | None = None) -> list[dict[str, str]]:
    """One row a pod; `served` has the models by the pod's name."""
    zones = {node["metadata"]["name"]: node["metadata"].get("labels", {}).get(_ZONE, "-") for node in seen.nodes}
    rows = []
    for pod in sorted(seen.pods, key=lambda each: str(each["metadata"]["name"])):
        meta, containers = pod["metadata"], pod["status"].get("containerStatuses", [])
        node = pod["spec"].get("nodeName", "-")
        ready = sum(bool(each.get("ready")) for each in containers)
        began = datetime.fromisoformat(meta["creationTimestamp"])
        rows.append(
            {
                "pod": meta["name"],
                "ready": f"{ready}/{len(pod['spec']['containers'])}",
                "state": pod_state(pod),
                "restarts": str(sum(each.get("restartCount", 0) for each in containers)),
                "age": _age((now - began).total_seconds()),
                "node": node,
                "zone": zones.get(node, "-"),
                "revision": revision_of(seen, pod),
                "serves": " ".join((served or {}).get(meta["name"], [])) or "-",
            }
        )
    return rows


def pod_state(pod: Object) -> str:
    """One word, as kubectl's STATUS."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = pod["status"]
    for each in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        state = each.get("state", {})
        for kind in ("waiting", "terminated"):
            reason = state.get(kind, {}).get("reason", "")
            if reason and reason not in {"Completed", "PodInitializing"}:
                return str(reason)
    return str(status.get("reason") or status.get("phase", "-"))


def revision_of(seen: Seen, pod: Object) -> str:
    """The Deployment's revision that a pod belongs to, or "-"."""
    owners = {each["name"] for each in pod["metadata"].get("ownerReferences", [])}
    for each in seen.replica_sets:
        if each["metadata"]["name"] in owners:
            return str(each["metadata"].get("annotations", {}).get(_REVISION, "-"))
    return "-"


def rollout_rows(seen: Seen) -> list[dict[str, str]]:
    """One row a Deployment: how far its rollout is."""
    rows = []
    for each in seen.deployments:
        status, wanted = each.get("status", {}), each["spec"].get("replicas", 1)
        updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
        old = status.get("replicas", 0) - updated
        if condition(each, "Progressing").get("reason") == "ProgressDeadlineExceeded":
            progress = "stuck"
        elif updated < wanted or old > 0 or available < wanted:
            progress = "in progress"
        else:
            progress = "complete"
        rows.append(
            {
                "deployment": each["metadata"]["name"],
                "rollout": progress,
                "wanted": str(wanted),
                "updated": str(updated),
                "old": str(max(old, 0)),
                "available": str(available),
            }
        )
    return rows


def autoscaler_rows(seen: Seen) -> list[dict[str, str]]:
    """One row a HorizontalPodAutoscaler or ScaledObject: what it sees, wants, and whether it can."""
    rows = []
    for each in seen.autoscalers:
        spec, status = each["spec"], each.get("status", {})
        metrics = [_metric(one) for one in status.get("currentMetrics") or []]
        targets = [_metric(one, "target") for one in spec.get("metrics", [])]
        rows.append(
            {
                "autoscaler": f"hpa/{each['metadata']['name']}",
                "sees": ", ".join(metrics) or "nothing",
                "target": ", ".join(targets) or "-",
                "replicas": str(status.get("currentReplicas", "-")),
                "wants": str(status.get("desiredReplicas", "-")),
                "bounds": f"{spec.get('minReplicas', 1)}..{spec['maxReplicas']}",
                "says": _says(each),
            }
        )
    for each in seen.scaled_objects:
        spec = each["spec"]
        rows.append(
            {
                "autoscaler": f"keda/{each['metadata']['name']}",
                "sees": "-",
                "target": ", ".join(str(one.get("type")) for one in spec.get("triggers", [])),
                "replicas": "-",
                "wants": "-",
                "bounds": f"{spec.get('minReplicaCount', 0)}..{spec.get('maxReplicaCount', 100)}",
                "says": _says(each),
            }
        )
    return rows


def budget_rows(seen: Seen) -> list[dict[str, str]]:
    """One row a PodDisruptionBudget."""
    return [
        {
            "budget": each["metadata"]["name"],
            "healthy": str(each.get("status", {}).get("currentHealthy", "-")),
            "needed": str(each.get("status", {}).get("desiredHealthy", "-")),
            "may go": str(each.get("status", {}).get("disruptionsAllowed", "-")),
        }
        for each in seen.budgets
    ]


def condition(each: Object, kind: str) -> dict[str, Any]:
    """A condition of an object, or {}."""
    for one in each.get("status", {}).get("conditions") or []:
        if one.get("type") == kind:
            return dict(one)
    return {}


def _says(each: Object) -> str:
    """The conditions that are not as they should be; "-" where all is well."""
    bad = []
    for kind, well in (
        ("AbleToScale", "True"),
        ("ScalingActive", "True"),
        ("ScalingLimited", "False"),
        ("Ready", "True"),
        ("Fallback", "False"),
    ):
        one = condition(each, kind)
        if one and one["status"] not in (well, "Unknown"):
            bad.append(f"{one.get('reason', kind)}: {one.get('message', '')}")
    return "; ".join(bad) or "-"


def _metric(one: Object, side: str = "current") -> str:
    """A metric as `name value`: utilization in percent, else the average or the value."""
    body: Object = next((value for key, value in one.items() if key != "type"), {})
    name = body.get("name") or body.get("metric", {}).get("name", "?")
    values = body.get(side, {})
    if "averageUtilization" in values:
        return f"{name} {values['averageUtilization']}%"
    return f"{name} {values.get('averageValue', values.get('value', '?'))}"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
