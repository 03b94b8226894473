"""Objects of a real API server as causes, and the errors of a command that reaches no cluster."""

from __future__ import annotations

import copy
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tritonkit.errors import ServerUnavailable, UsageError
from tritonkit.operate.deploy.cluster import causes_of
from tritonkit.operate.deploy.cluster.client import connect
from tritonkit.operate.deploy.cluster.look import NamespaceState, look

OBJECTS = json.loads((Path(__file__).parent / "objects.json").read_text())


def state_of(name: str, **changed: Any) -> NamespaceState:
    """A recorded namespace."""
    parts = copy.deepcopy(OBJECTS[name]) | changed
    logs = {tuple(key.split("/")): text for key, text in parts.pop("logs").items()}
    return NamespaceState("tritonkit", logs=logs, **parts)


def only(deployment: str) -> NamespaceState:
    """One Deployment of the broken namespace."""
    parts = OBJECTS["broken"]
    pods = [pod for pod in parts["pods"] if pod["metadata"]["name"].startswith(f"{deployment}-")]
    deployments = [resource for resource in parts["deployments"] if resource["metadata"]["name"] == deployment]
    return state_of("broken", pods=copy.deepcopy(pods), deployments=copy.deepcopy(deployments))


@pytest.mark.parametrize(
    ("deployment", "cause", "words"),
    [
        ("cpu", "no node with enough cpu", "2 Insufficient cpu"),
        ("memory", "no node with enough memory", "2 Insufficient memory"),
        ("gpu", "no node with enough nvidia.com/gpu", "Insufficient nvidia.com/gpu"),
        ("pvc", "volume claim not bound", 'storageclass.storage.k8s.io "nosuch" not found'),
        ("never", "image absent", "tritonkit/none:9 is not on the node, and the policy is Never"),
        ("pull", "image cannot be pulled", "registry-1.docker.io"),
        ("oom", "out of memory", "OOMKilled at its limit of 32Mi"),
        ("manifest", "damaged repository", "sha256 differs"),
        ("shm", "shared memory too small", "64 MiB"),
        ("model", "model failed to load", "model digits version 1: Internal: onnx runtime error 7"),
        ("ready", "Python stub died", "the Python stub of sentences died"),
        ("live", "liveness probe times out", "timed out after 1s"),
        ("crash", "crash loop", "exit code 1"),
    ],
)
def test_each_broken_pod_has_its_cause(deployment: str, cause: str, words: str) -> None:
    """The first cause of each recorded Deployment is what was broken in it, and says what to do."""
    first = causes_of(only(deployment))[0]
    assert first.cause == cause
    assert words in first.found
    assert first.wanted
    assert first.todo


LOGS = [
    ("triton-load", "model", "triton", "model failed to load", "model digits_network version 3: Invalid argument"),
    ("entry-not-ready", "model", "triton", "model failed to load", "model digits_network: Invalid argument"),
    ("entry-damaged", "model", "triton", "damaged repository", "tokenizer.json: 5 bytes"),
    ("entry-shm", "model", "triton", "shared memory too small", "8 MiB"),
    ("fetch-damaged", "manifest", "models", "damaged repository", "model.onnx: 5 bytes"),
    ("store-http-down", "manifest", "models", "store down", "Cannot connect to host"),
    ("store-s3-down", "manifest", "models", "store down", "Could not connect"),
]
"""Messages of Triton, entry.py, fetch.py and `tritonkit restore` about faults made on purpose, recorded in logs/."""


@pytest.mark.parametrize(("name", "deployment", "container", "cause", "words"), LOGS)
def test_the_programs_own_words_are_understood(
    name: str, deployment: str, container: str, cause: str, words: str
) -> None:
    """Each log gives its cause, with the reason that stands in it."""
    state, log = only(deployment), (Path(__file__).parent / "logs" / f"{name}.log").read_text()
    state.logs = {(pod["metadata"]["name"], container): log for pod in state.pods}
    first = causes_of(state)[0]
    assert first.cause == cause
    assert words in first.found


def test_a_probe_that_counts_dead_stubs_names_the_cause() -> None:
    """health.py says how many."""
    state = only("ready")
    for event in state.events:
        if event["reason"] == "Unhealthy":
            event["message"] = "Readiness probe failed: 2 Python stubs have died\n"
    assert causes_of(state)[0].cause == "Python stub died"


def test_a_crash_shows_the_last_lines() -> None:
    """If no rule knows the text, the text itself is the evidence."""
    assert causes_of(only("crash"))[0].details.endswith("last line")


@pytest.mark.parametrize(("name", "cause"), [("quota", "quota exceeded"), ("strict", "Pod Security")])
def test_pods_that_may_not_be_made(name: str, cause: str) -> None:
    """A quota and the Pod Security Standard come before their effect, the rollout that is stuck."""
    assert [finding.cause for finding in causes_of(state_of(name))] == [cause, "rollout stuck"]


def test_healthy_pods_have_no_cause() -> None:
    """Ready pods of a complete rollout: nothing to say."""
    assert causes_of(only("healthy")) == []


def test_a_node_that_is_away_explains_its_pods() -> None:
    """Pods on a node that is not ready are one entry, and the node is the cause."""
    state = only("healthy")
    for node in state.nodes:
        for one in node["status"]["conditions"]:
            if one["type"] == "Ready":
                one |= {"status": "Unknown", "message": "Kubelet stopped posting node status."}
    causes = causes_of(state)
    assert {cause.cause for cause in causes} == {"node not ready"}
    assert sum(len(cause.pods) for cause in causes) == 2


def test_a_stuck_rollout_names_who_keeps_serving() -> None:
    """Ready pods of the revision before are named."""
    state = only("healthy")
    deployment = state.deployments[0]
    deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    for one in deployment["status"]["conditions"]:
        if one["type"] == "Progressing":
            one |= {"status": "False", "reason": "ProgressDeadlineExceeded"}
    for replica_set in state.replica_sets:
        replica_set["metadata"].setdefault("annotations", {})["deployment.kubernetes.io/revision"] = "1"
    (stuck,) = causes_of(state)
    assert stuck.cause == "rollout stuck"
    assert "the old version keeps serving: healthy-" in stuck.found


def kubeconfig(folder: Path, server: str) -> Path:
    """A kubeconfig for an address."""
    file = folder / "config"
    file.write_text(
        f"apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: '{server}'}}}}]\n"
        "users: [{name: a, user: {}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
    )
    return file


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, an unknown context, a file that is none, a cluster that is away: one message each."""
    pytest.importorskip("kubernetes")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="no such file"):
        connect(None, "tritonkit")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(UsageError, match="'b' is not in"):
        connect("b", "tritonkit")
    with pytest.raises(ServerUnavailable, match="refused"):
        look(connect(None, "tritonkit"))
    file.write_text("{")
    with pytest.raises(UsageError, match="cannot be used"):
        connect(None, "tritonkit")
