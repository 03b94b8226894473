"""Pure: why one pod is not ready. The first rule that fires names the cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tritonkit.operate.deploy.cluster.look import NamespaceState, Object, condition

__all__ = ["POD_RULES", "Cause", "Subject"]

_LAST = 8
_SHM = re.compile(r"/dev/shm: .*\bMiB, and the repository.*")  # noqa: S108 (a log's words)
_LOAD = re.compile(r"failed to load '?([\w.-]+)'? version (\d+): ([^\"]*)")
_NOT_READY = re.compile(r"error: not ready: model ([\w.-]+): (.*)")
_DAMAGED = re.compile(
    r".*(?:not as it was published|half built|manifest|sha256|checksum|truncated|damaged|missing from the store).*",
    re.IGNORECASE,
)
_STORE = re.compile(
    r".*(?:connection refused|timed out|(?:could not|cannot) connect|no such host|name or service not known"
    r"|name resolution|the store (?:cannot be used|does not answer)|access is refused|no such bucket|access denied"
    r"|credentials|unreachable|(?:http|status|code|error)\W{0,3}50[0234]\b).*",
    re.IGNORECASE,
)
_STUB = re.compile(r".*\bstubs?\b.*", re.IGNORECASE)
_CHANGED = re.compile(r"error: .*(?:not as it was published|half built).*")
"""Message of entry.py about a repository that the init container found whole, or did not copy."""
_REBUILD = "tritonkit build, and make the models' image (or copy) again"


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why something is not as it should be.

    Args:
        cause: its name.
        where: pod and container, or Deployment.
        found, wanted, todo: sentences for the observation, the expected state and the remedy.
        details: the last lines of a log, where they are the evidence.
        pods: the pods that it holds up.
        owner: the ReplicaSet or Deployment; pods of the same one are reported together.
    """

    cause: str
    where: str
    found: str
    wanted: str
    todo: str
    details: str = ""
    pods: tuple[str, ...] = ()
    owner: str = ""


@dataclass(frozen=True)
class Subject:
    """A pod, and the state of its namespace."""

    pod: Object
    state: NamespaceState

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])

    @property
    def ready(self) -> bool:
        """Whether Kubernetes sends it traffic."""
        return bool(condition(self.pod, "Ready").get("status") == "True")

    def containers(self) -> Iterator[Object]:
        """The statuses, init containers first."""
        status = self.pod["status"]
        yield from status.get("initContainerStatuses", [])
        yield from status.get("containerStatuses", [])

    def spec(self, container: str) -> Object:
        """A container's specification."""
        spec = self.pod["spec"]
        every = spec.get("initContainers", []) + spec["containers"]
        return dict(next(entry for entry in every if entry["name"] == container))

    def log(self, container: str) -> str:
        """The lines that were read of a container, or ""."""
        return self.state.logs.get((self.name, container), "")

    def events(self, *reasons: str) -> list[str]:
        """Messages of the pod's events with one of the reasons, newest last."""
        ours = [
            event
            for event in self.state.events
            if event.get("involvedObject", {}).get("name") == self.name and event.get("reason") in reasons
        ]
        ours.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        return [str(event.get("message", "")) for event in ours]

    def cause(self, cause: str, container: str, found: str, wanted: str, todo: str, details: str = "") -> Cause:
        """A cause at this pod, or at a container of it."""
        owners = self.pod["metadata"].get("ownerReferences", [])
        where = f"pod/{self.name}" + (f" container {container}" if container else "")
        owner = owners[0]["name"] if owners else self.name
        return Cause(cause, where, found, wanted, todo, details, (self.name,), owner)


def _evicted(it: Subject) -> Cause | None:
    status = it.pod["status"]
    if status.get("reason") != "Evicted":
        return None
    return it.cause(
        "evicted",
        "",
        str(status.get("message", "the node took it away")),
        "a node with enough ephemeral storage and memory",
        "kubectl describe node says what it lacks; models and /tmp are the pod's volumes, whose sizes are rendered",
    )


def _node(it: Subject) -> Cause | None:
    for node in it.state.nodes:
        ready = condition(node, "Ready")
        if node["metadata"]["name"] == it.pod["spec"].get("nodeName") and ready.get("status") != "True":
            return it.cause(
                "node not ready",
                "",
                f"node {node['metadata']['name']}: {ready.get('message') or ready.get('reason')}",
                "a node whose kubelet answers",
                "repair or remove the node; Kubernetes starts the pod elsewhere after 5 minutes by default",
            )
    return None


def _unschedulable(it: Subject) -> Cause | None:
    scheduled = condition(it.pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    text = str(scheduled.get("message", ""))
    short = [what.rstrip(".,") for what in re.findall(r"Insufficient (\S+)", text)]
    if "persistentvolumeclaim" in text.lower():
        failed = [
            str(e.get("message"))
            for e in it.state.events
            if e.get("involvedObject", {}).get("kind") == "PersistentVolumeClaim" and e.get("type") == "Warning"
        ]
        return it.cause(
            "volume claim not bound",
            "",
            "; ".join([text, *failed[-1:]]),
            "a bound PersistentVolumeClaim",
            "kubectl get pvc,storageclass; make the claim, or name another in values.yaml",
        )
    if short:
        what = sorted(set(short))
        gpu = any("gpu" in resource for resource in what)
        todo = (
            "add a GPU node and its device plugin, or use the overlay cpu"
            if gpu
            else "add nodes, or lower `cpu` or `replicas` in values.yaml; an update wants room for one pod more"
        )
        requests = [
            f"{container['name']} asks for {value} of {key}"
            for container in it.pod["spec"]["containers"]
            for key, value in container.get("resources", {}).get("requests", {}).items()
            if key in what
        ]
        return it.cause(f"no node with enough {', '.join(what)}", "", text, "; ".join(requests), todo)
    return it.cause(
        "no node fits",
        "",
        text or "the scheduler has not said why",
        "a node that meets selector, affinity, taints and spread",
        "kubectl describe nodes; a nodeSelector or tolerations belong in an overlay of your own",
    )


def _volume(it: Subject) -> Cause | None:
    failed = it.events("FailedMount", "FailedAttachVolume")
    began = any("waiting" not in container.get("state", {}) for container in it.containers())
    if it.ready or began or not failed:
        return None
    return it.cause(
        "volume not mounted",
        "",
        failed[-1],
        "all volumes of the pod",
        "make the Secret, ConfigMap or claim that is named above",
    )


def _image(it: Subject) -> Cause | None:
    for container in it.containers():
        waiting = container.get("state", {}).get("waiting", {})
        reason, image = waiting.get("reason", ""), it.spec(container["name"])["image"]
        policy = it.spec(container["name"]).get("imagePullPolicy", "IfNotPresent")
        if reason == "ErrImageNeverPull":
            return it.cause(
                "image absent",
                container["name"],
                f"{image} is not on the node, and the policy is {policy}",
                "the image on every node",
                "load it there (kind load, ctr -n k8s.io images import), or push it to a"
                " registry; the rendered policy is IfNotPresent",
            )
        if reason in {"ErrImagePull", "ImagePullBackOff", "InvalidImageName"}:
            failures = [text for text in it.events("Failed") if "pull image" in text]
            return it.cause(
                "image cannot be pulled",
                container["name"],
                failures[-1] if failures else f"{image}: {waiting.get('message', reason)}",
                f"{image} in a registry that the node reaches, or on the node (policy {policy})",
                "push it, correct `images` or `models` in values.yaml, or load it on each node",
            )
        if reason in {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}:
            return it.cause(
                "container not created",
                container["name"],
                str(waiting.get("message", reason)),
                "a container that can be started",
                "make what the message names",
            )
    return None


def _memory(it: Subject) -> Cause | None:
    for container in it.containers():
        ends = [container.get(key, {}).get("terminated", {}) for key in ("state", "lastState")]
        if any(end.get("reason") == "OOMKilled" for end in ends):
            limit = it.spec(container["name"]).get("resources", {}).get("limits", {}).get("memory", "none")
            return it.cause(
                "out of memory",
                container["name"],
                f"OOMKilled at its limit of {limit}, {container.get('restartCount', 0)} restarts",
                "a limit above what models, Python stubs, arena and /dev/shm take together",
                "tritonkit deploy --check: the limit is computed from the repository that it was rendered for",
            )
    return None


def _init(it: Subject) -> Cause | None:
    for container in it.pod["status"].get("initContainerStatuses", []):
        if _code(container) == 0:
            continue
        name, log = container["name"], it.log(container["name"])
        last = _tail(log)
        # First: what a store that is down says may name a manifest.
        if store := _STORE.search(log):
            return it.cause(
                "store down",
                name,
                store[0].strip(),
                "a store that the pod reaches",
                "check models: in values.yaml, the store's credentials and the NetworkPolicy",
                last,
            )
        if damaged := _DAMAGED.search(log):
            return it.cause(
                "damaged repository", name, damaged[0].strip(), "every file as its manifest says", _REBUILD, last
            )
        return it.cause(
            "models not fetched",
            name,
            f"exit code {_code(container)}",
            "exit code 0",
            "read its last lines",
            last or "no log was kept",
        )
    return None


def _said(it: Subject, pattern: re.Pattern[str], name: str, wanted: str, todo: str) -> Cause | None:
    if it.ready:
        return None
    for container in it.pod["status"].get("containerStatuses", []):
        if match := pattern.search(it.log(container["name"])):
            return it.cause(name, container["name"], match[0].strip(), wanted, todo)
    return None


def _model(it: Subject) -> Cause | None:
    if it.ready:
        return None
    for container in it.pod["status"].get("containerStatuses", []):
        if match := _LOAD.search(it.log(container["name"])):
            return it.cause(
                "model failed to load",
                container["name"],
                f"model {match[1]} version {match[2]}: {match[3].strip()}",
                "every model ready",
                "fix and rebuild the model, tritonkit verify, and make the model image again",
            )
        if match := _NOT_READY.search(it.log(container["name"])):
            return it.cause(
                "model failed to load",
                container["name"],
                f"model {match[1]}: {match[2].strip()}",
                "every model ready",
                "fix and rebuild the model, tritonkit verify, and make the model image again",
            )
    return None


def _stub(it: Subject) -> Cause | None:
    if it.ready:
        return None
    for text in reversed(it.events("Unhealthy")):
        if "Readiness" in text and _STUB.search(text):
            return it.cause(
                "Python stub died",
                "triton",
                text.strip(),
                "all stubs alive",
                "kubectl logs --previous; more memory or /dev/shm where it was killed",
            )
    return None


def _probe(it: Subject, kind: str, todo: str) -> Cause | None:
    if it.ready:
        return None
    # A container killed for its probe is waiting, ended or runs again; for readiness it only runs.
    failures = [text for text in it.events("Unhealthy") if text.startswith(f"{kind} probe")]
    if not failures or (kind != "Readiness" and not any(e.get("restartCount") for e in it.containers())):
        return None
    slow = "timed out" in failures[-1] or "deadline exceeded" in failures[-1]
    name = f"{kind.lower()} probe " + ("times out" if slow else "fails")
    return it.cause(name, "", failures[-1].strip(), "a probe that is answered in time", todo)


def _crash(it: Subject) -> Cause | None:
    if it.ready:
        return None
    for container in it.containers():
        if code := _code(container):
            return it.cause(
                "crash loop" if container.get("restartCount") else "ended",
                container["name"],
                f"exit code {code}, {container.get('restartCount', 0)} restarts",
                "a container that keeps running",
                "read the last lines of its log; the whole log: kubectl logs --previous",
                _tail(it.log(container["name"])) or "no log was kept",
            )
    return None


def _starting(it: Subject) -> Cause | None:
    if it.ready:
        return None
    return it.cause(
        "starting",
        "",
        f"phase {it.pod['status'].get('phase')}, and nothing failed yet",
        "a ready pod",
        "wait; kubectl logs shows how far it is",
    )


def _code(status: Object) -> int:
    """The exit code of the run that ended last; 0 if none ended, or if a later one ended well."""
    for key in ("state", "lastState"):
        ended = status.get(key, {}).get("terminated")
        if ended:
            return int(ended.get("exitCode", 0))
    return 0


def _tail(log: str) -> str:
    return "\n".join(log.splitlines()[-_LAST:])


POD_RULES: tuple[Callable[[Subject], Cause | None], ...] = (
    _evicted,
    _node,
    _unschedulable,
    _volume,
    _image,
    _memory,
    _init,
    partial(
        _said,
        pattern=_SHM,
        name="shared memory too small",
        wanted="room for the Python stubs",
        todo="tritonkit deploy --check: /dev/shm is computed from the repository that it was rendered for",
    ),
    partial(
        _said, pattern=_CHANGED, name="damaged repository", wanted="every file as its manifest says", todo=_REBUILD
    ),
    _model,
    _stub,
    partial(_probe, kind="Liveness", todo="raise `cpu` in values.yaml; kubectl logs --previous"),
    partial(_probe, kind="Startup", todo="kubectl logs --previous says what it waits for"),
    _crash,
    partial(_probe, kind="Readiness", todo="kubectl logs; the text above is the probe's own"),
    _starting,
)
"""Rules in the order of cause and effect."""
