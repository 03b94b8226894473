"""A deployment in the cluster that KUBECONFIG names, in a namespace that is gone at the end."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operate.deploy.cluster.images import delivery
from tests.operate.deploy.cluster.kubectl import Kubectl, Resource
from tests.operate.deploy.cluster.site import PATIENCE_S, Site

_CONTROL = "node-role.kubernetes.io/control-plane"
_HOST = "kubernetes.io/hostname"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test waits for a cluster, which takes its time."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(4 * PATIENCE_S))


def usable(node: Resource) -> bool:
    """Whether pods of any kind are placed there."""
    taints = node["spec"].get("taints", [])
    ready = [condition["status"] for condition in node["status"]["conditions"] if condition["type"] == "Ready"]
    return ready == ["True"] and not any(taint["effect"] != "PreferNoSchedule" for taint in taints)


@pytest.fixture(scope="session")
def nodes() -> list[Resource]:
    """The nodes that take pods; one of the control plane first, because the calls come from it."""
    usable_nodes = [node for node in Kubectl("default").items("nodes") if usable(node)]
    return sorted(usable_nodes, key=lambda node: _CONTROL not in node["metadata"]["labels"])


@pytest.fixture(scope="session")
def site(nodes: list[Resource], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two replicas with the models' first version, and a pod that calls them."""
    assert nodes, "no node of the cluster takes pods"
    kubectl = Kubectl(f"tritonkit-test-{secrets.token_hex(4)}")
    images = delivery(os.environ.get("TRITONKIT_CLUSTER_IMAGES") or "loaded")
    images.bring()
    labels = nodes[0]["metadata"]["labels"]
    site = Site(kubectl, tmp_path_factory.mktemp("cluster") / "tree", images, labels[_HOST])
    try:
        site.apply()
        site.rolled_out()
        site.start_caller()
        yield site
    finally:
        for node in nodes:
            kubectl.may_fail("uncordon", node["metadata"]["name"])
        kubectl("delete", "namespace", kubectl.namespace, "--ignore-not-found", "--timeout=900s")
        gone = kubectl.may_fail("get", "namespace", kubectl.namespace)
        assert "NotFound" in gone.stderr, f"{kubectl.namespace} is left behind: {gone.stderr}"


@pytest.fixture
def steady(site: Site) -> Site:
    """The deployment as it was at first: two ready replicas of the first version, no autoscaler."""
    site.kubectl.may_fail("delete", "scaledobjects", "--all")  # a kind that not every cluster has
    site.kubectl("delete", "horizontalpodautoscalers", "--all")
    beside = ("--selector", "tritonkit-test,app.kubernetes.io/name!=triton")
    site.kubectl("delete", "deployments,services,poddisruptionbudgets", *beside)
    site.apply()
    site.rolled_out()
    return site


@pytest.fixture
def other_node(nodes: list[Resource], steady: Site) -> str:
    """The name of a node with a replica, on which neither the caller nor a control plane is."""
    hosts = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    mine = {pod["spec"]["nodeName"] for pod in steady.pods()}
    free = [name for name, labels in hosts.items() if labels[_HOST] != steady.caller_node and _CONTROL not in labels]
    if not free:
        pytest.skip("the cluster has no second node that takes pods and has no control plane")
    if chosen := [name for name in free if name in mine]:
        return chosen[0]
    # Both replicas are on the caller's node: the spread requires no more than the scheduler can give.
    steady.kubectl("cordon", hosts_of(nodes, steady.caller_node))
    try:
        steady.kubectl("rollout", "restart", "deployment/triton")
        steady.rolled_out()
    finally:
        steady.kubectl("uncordon", hosts_of(nodes, steady.caller_node))
    return free[0]


def hosts_of(nodes: list[Resource], host: str) -> str:
    """The name of the node with that label."""
    return next(n["metadata"]["name"] for n in nodes if n["metadata"]["labels"][_HOST] == host)
