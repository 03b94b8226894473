"""Autoscalers under load: more replicas while it lasts, as before when it has ended, and no call lost."""

from __future__ import annotations

import pytest

from tests.operate.deploy.cluster.site import Site, eventually
from tests.operate.deploy.cluster.test_serving import HEADLESS

MOST = 3
SCALING = {"min": 2, "max": MOST, "down_s": 15}


def scales_out_and_back(site: Site) -> None:
    """Calls without a pause until the maximum of replicas is ready; then no calls."""
    eventually(lambda: sees(site), lambda: f"an autoscaler that sees something: {site.diagnosis()}")
    with site.calling(HEADLESS, rate=0) as calls:
        eventually(lambda: site.replicas() == MOST, lambda: f"{MOST} replicas: {site.diagnosis()}")
    calls.require_none_failed(least=100)
    eventually(lambda: desired_replicas(site) == 2, lambda: f"two replicas again: {site.diagnosis()}", 1800)


def sees(site: Site) -> bool:
    """Whether the HorizontalPodAutoscaler has a figure, and wants what there is without load."""
    autoscalers = site.kubectl.items("horizontalpodautoscalers")
    return any(autoscaler["status"].get("currentMetrics") for autoscaler in autoscalers) and desired_replicas(site) == 2


def desired_replicas(site: Site) -> int:
    """The replicas that the Deployment asks for."""
    return int(site.kubectl.get("deployment", "triton")["spec"]["replicas"])


def test_cpu_scales_out_and_back(steady: Site) -> None:
    """overlays/hpa needs nothing but metrics-server."""
    nodes = steady.kubectl.may_fail("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
    if nodes.returncode:
        pytest.skip("the cluster has no metrics-server")
    steady.apply(overlay="hpa", scaling=SCALING)
    steady.rolled_out()
    scales_out_and_back(steady)


def test_keda_scales_out_and_back(steady: Site) -> None:
    """overlays/keda asks the Prometheus that it brings."""
    done = steady.kubectl.may_fail("get", "customresourcedefinition", "scaledobjects.keda.sh")
    if done.returncode:
        pytest.skip("KEDA is not installed in the cluster")
    steady.apply(overlay="keda", scaling=SCALING)
    steady.rolled_out()
    steady.kubectl("rollout", "status", "deployment/prometheus", "--timeout=900s")
    scales_out_and_back(steady)
