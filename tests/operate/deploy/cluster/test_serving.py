"""Services that answer in the cluster, their names, and pods that the namespace refuses."""

from __future__ import annotations

import json

import pytest

from tests.operate.deploy.cluster.images import TOOLS
from tests.operate.deploy.cluster.kubectl import Kubectl
from tests.operate.deploy.cluster.site import Site, eventually, idle_pod

HEADLESS = "dns:triton:8001"
CLUSTER_IP = "triton-clusterip:8001"
_GET = (
    "import sys, urllib.request as http; asked = http.Request(sys.argv[1], headers={'Host': sys.argv[2]});"
    " print(http.urlopen(asked, timeout=30).status)"
)


def test_both_models_answer_from_every_replica_of_the_headless_service(steady: Site) -> None:
    """Its name stands for all ready pods, and the client spreads calls over them."""
    with steady.calling(HEADLESS, sentences=0.5) as calls:
        steady.inside("sleep", "10")
    calls.require_none_failed(least=10)
    assert len(calls.said["endpoints"]) == 2
    assert set(calls.said["by_model"]) == {"digits", "sentences"}


def test_both_models_answer_through_the_cluster_ip(steady: Site) -> None:
    """One address, for clients that know no other."""
    with steady.calling(CLUSTER_IP, sentences=0.5) as calls:
        steady.inside("sleep", "10")
    calls.require_none_failed(least=10)
    assert set(calls.said["by_model"]) == {"digits", "sentences"}


@pytest.mark.parametrize("service", ["triton", "triton-clusterip"])
def test_rest_is_answered_under_the_services_names(steady: Site, service: str) -> None:
    """And under no other."""
    url = f"http://{service}:8000/v2/models/digits/ready"
    done = steady.inside("python3", "-c", _GET, url, service)
    assert done.stdout.strip() == "200", done.stderr
    assert steady.inside("python3", "-c", _GET, url, "elsewhere.example").returncode != 0


def test_diagnose_finds_nothing_wrong_with_ready_replicas(steady: Site) -> None:
    """Two ready pods have no cause."""
    assert steady.replicas() == 2
    assert steady.causes() == []


def test_a_pod_of_root_is_refused(steady: Site) -> None:
    """The namespace holds every pod to the restricted Pod Security Standard."""
    pod = idle_pod("root", "tritonkit/none:1")
    pod["spec"]["containers"][0]["securityContext"] = {"runAsUser": 0}
    done = steady.kubectl.may_fail("apply", "--dry-run=server", "--filename", "-", stdin=json.dumps(pod))
    assert done.returncode != 0
    assert "violates PodSecurity" in done.stderr


def test_pods_of_other_namespaces_do_not_reach_triton(steady: Site) -> None:
    """The NetworkPolicies hold, where the cluster's network enforces such."""
    outside = Kubectl(f"{steady.namespace}-outside")
    tools = steady.images.name(TOOLS)
    deny = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny"},
        "spec": {"podSelector": {"matchLabels": {"app": "listener"}}, "policyTypes": ["Ingress"]},
    }
    outside("create", "namespace", outside.namespace)
    try:
        listener = idle_pod("listener", tools, command="python3 -m http.server 8080")
        outside.apply(deny, listener, idle_pod("stranger", tools))
        for pod in ("listener", "stranger"):
            outside("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=600s")
        address = outside.get("pod", "listener")["status"]["podIP"]
        triton = steady.pods()[0]["status"]["podIP"]
        assert steady.reaches("caller", triton, 8001)
        stranger = Site(outside, steady.folder, steady.images, "")
        eventually(lambda: stranger.reaches("listener", "127.0.0.1", 8080), "the listener")
        if stranger.reaches("stranger", address, 8080):
            pytest.skip("this cluster's network does not enforce NetworkPolicies")
        assert not stranger.reaches("stranger", triton, 8001)
        assert not stranger.reaches("stranger", triton, 8002)
    finally:
        outside("delete", "namespace", outside.namespace, "--timeout=600s")
