"""`tritonkit deploy status`: what runs in the cluster, what it serves, what the autoscaler wants."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritonkit.cli.options import AsJson
from tritonkit.cli.output import note, print_json, print_line, print_table
from tritonkit.errors import ClientError

if TYPE_CHECKING:
    from tritonkit.operate.deploy.cluster import Cluster, Seen

__all__ = ["Context", "Namespace", "command"]

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Where it was deployed to.")]
Context = Annotated[str | None, typer.Option(metavar="NAME", help="Of the kubeconfig; its current one by default.")]


def command(namespace: Namespace = "tritonkit", context: Context = None, as_json: AsJson = False) -> None:
    """Show what runs in a cluster: rollout, pods, the versions that each replica serves, autoscalers.

    It reads the cluster that KUBECONFIG names. What a replica serves comes from its metrics, through a
    port-forward.

    Example: tritonkit deploy status --namespace tritonkit
    """
    from tritonkit.operate.deploy.cluster import autoscaler_rows, budget_rows, connect, look, pod_rows, rollout_rows

    cluster = connect(context, namespace)
    seen = look(cluster)
    served = _served(cluster, seen)
    parts = {
        "rollout": rollout_rows(seen),
        "pods": pod_rows(seen, datetime.now(UTC), served),
        "autoscalers": autoscaler_rows(seen),
        "disruption budgets": budget_rows(seen),
    }
    if as_json:
        print_json({"namespace": namespace, "notes": seen.notes} | parts)
        return
    for number, (title, rows) in enumerate((k, v) for k, v in parts.items() if v):
        if number:
            print_line()
        print_table(title, list(rows[0]), [list(row.values()) for row in rows])
    for text in seen.notes:
        note(f"note: {text}")


def _served(cluster: Cluster, seen: Seen) -> dict[str, list[str]]:
    """By pod; a pod that does not answer is a note, and so is a missing right, once."""
    from tritonkit.operate.deploy.cluster import served_by
    from tritonkit.operate.deploy.cluster.client import Forbidden

    found: dict[str, list[str]] = {}
    for pod in seen.pods:
        name: str = pod["metadata"]["name"]
        labels: dict[str, Any] = pod["metadata"].get("labels", {})
        states = [each.get("state", {}) for each in pod["status"].get("containerStatuses", [])]
        running = any("running" in each for each in states)
        if labels.get("app.kubernetes.io/name") != "triton" or not running:
            continue
        try:
            found[name] = served_by(cluster, name)
        except Forbidden as error:
            seen.notes.append(f"what replicas serve is not known: {error.found}")
            break
        except ClientError as error:
            seen.notes.append(f"what {name} serves is not known: {error.found}")
    return found
