"""Pure: objects, events and logs as causes, by a table of rules in the order of cause and effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from tritonkit.operate.deploy.cluster.look import NamespaceState, Object, condition, revision_of
from tritonkit.operate.deploy.cluster.pods import POD_RULES, Cause, Subject

__all__ = ["Cause", "causes_of", "to_dict"]


def causes_of(state: NamespaceState) -> list[Cause]:
    """Causes of everything that is not as it should be; causes that explain others come first.

    Each pod has one cause: that of the first rule that fires. Pods of one Deployment with the same cause
    are one entry.
    """
    causes = [cause for deployment in state.deployments for rule in _BEFORE if (cause := rule(deployment, state))]
    ranked: list[tuple[int, Cause]] = []
    for pod in state.pods:
        if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") == "Succeeded":
            continue
        subject = Subject(pod, state)
        for rank, rule in enumerate(POD_RULES):
            if cause := rule(subject):
                ranked.append((rank, cause))
                break
    ranked.sort(key=lambda entry: entry[0])
    for _, cause in ranked:
        _join(causes, cause)
    causes += [cause for deployment in state.deployments for rule in _AFTER if (cause := rule(deployment, state))]
    return causes


def to_dict(cause: Cause) -> dict[str, Any]:
    """Plain values for JSON."""
    return asdict(cause)


def _join(causes: list[Cause], cause: Cause) -> None:
    for index, other in enumerate(causes):
        if (other.cause, other.owner, other.found) == (cause.cause, cause.owner, cause.found):
            causes[index] = replace(other, pods=other.pods + cause.pods)
            return
    causes.append(cause)


def _not_created(deployment: Object, _: NamespaceState) -> Cause | None:
    """The cause that a ReplicaSet may not make the pods: a quota, or the namespace's Pod Security."""
    failed = condition(deployment, "ReplicaFailure")
    if failed.get("status") != "True":
        return None
    name, text = deployment["metadata"]["name"], str(failed.get("message", ""))
    where = f"deployment/{name}"
    if "exceeded quota" in text:
        return Cause(
            "quota exceeded",
            where,
            text.partition("forbidden: ")[2] or text,
            wanted="a quota with room for all replicas and one more while it rolls",
            todo="kubectl describe quota; raise it, or lower replicas or cpu in values.yaml",
            owner=name,
        )
    if "violates PodSecurity" in text:
        return Cause(
            "Pod Security",
            where,
            text.partition("forbidden: ")[2] or text,
            wanted="pods that keep the namespace's Pod Security Standard",
            todo="undo what was changed of the rendered securityContext: tritonkit deploy --check shows it",
            owner=name,
        )
    return Cause(
        "pods not created",
        where,
        text,
        wanted="pods of the new revision",
        todo="read the reason above: an admission webhook or a missing ServiceAccount, most often",
        owner=name,
    )


def _stuck(deployment: Object, state: NamespaceState) -> Cause | None:
    """The effect: a rollout that does not go on, and the pods that serve meanwhile."""
    if condition(deployment, "Progressing").get("reason") != "ProgressDeadlineExceeded":
        return None
    name = deployment["metadata"]["name"]
    newest = deployment["metadata"].get("annotations", {}).get("deployment.kubernetes.io/revision")
    old = [
        pod["metadata"]["name"]
        for pod in state.pods
        if _belongs(pod, name, state)
        and revision_of(state, pod) not in (newest, "-")
        and condition(pod, "Ready").get("status") == "True"
    ]
    if old:
        serves = f"the old version keeps serving: {', '.join(old)}"
    elif deployment.get("status", {}).get("availableReplicas", 0):
        serves = "what is ready keeps serving, with fewer replicas than wanted"
    else:
        serves = "no pod is ready: nothing serves"
    return Cause(
        "rollout stuck",
        f"deployment/{name}",
        f"revision {newest} made no progress in time; {serves}",
        wanted="all pods of the new revision ready",
        todo=f"fix the causes above, or go back: kubectl rollout undo deployment/{name} -n {state.namespace}",
        owner=name,
    )


def _belongs(pod: Object, deployment: str, state: NamespaceState) -> bool:
    sets = {
        replica_set["metadata"]["name"]
        for replica_set in state.replica_sets
        if any(o["name"] == deployment for o in replica_set["metadata"].get("ownerReferences", []))
    }
    return any(owner["name"] in sets for owner in pod["metadata"].get("ownerReferences", []))


_Rule = Callable[[Object, NamespaceState], Cause | None]
_BEFORE: tuple[_Rule, ...] = (_not_created,)
_AFTER: tuple[_Rule, ...] = (_stuck,)
