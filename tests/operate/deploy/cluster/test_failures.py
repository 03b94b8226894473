"""Pods and nodes that go: killed, drained, without power."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.operate.deploy.cluster.kubectl import Resource
from tests.operate.deploy.cluster.site import Site, eventually
from tests.operate.deploy.cluster.test_serving import HEADLESS

POWER = "TRITONKIT_CLUSTER_POWER"


def test_a_killed_pod_loses_no_call(steady: Site) -> None:
    """Deleted by force, without a moment to end in: its calls are answered by the other one."""
    with steady.calling(HEADLESS, rate=100) as calls:
        steady.inside("sleep", "5")
        name = steady.pods()[0]["metadata"]["name"]
        steady.kubectl("delete", "pod", name, "--grace-period=0", "--force")
        steady.rolled_out()
    calls.require_none_failed(least=500)
    assert name not in [pod["metadata"]["name"] for pod in steady.pods()]


def test_a_drain_waits_for_the_disruption_budget(steady: Site, other_node: str, nodes: list[Resource]) -> None:
    """A node is emptied under load: at most one replica is away at a time, and no call is lost."""
    with steady.calling(HEADLESS, rate=100) as calls:
        steady.inside("sleep", "5")
        try:
            steady.kubectl(
                "drain",
                other_node,
                "--ignore-daemonsets",
                "--delete-emptydir-data",
                "--pod-selector",
                f"tritonkit-test={steady.namespace}",
                "--timeout=900s",
            )
            steady.rolled_out()
            assert other_node not in [pod["spec"]["nodeName"] for pod in steady.pods()]
        finally:
            steady.kubectl("uncordon", other_node)
    calls.require_none_failed(least=500)


def test_the_budget_refuses_the_second_eviction(steady: Site) -> None:
    """One replica may be evicted, and no other before its successor is ready."""
    first, second = (pod["metadata"]["name"] for pod in steady.pods())
    assert evict(steady, first).returncode == 0
    refused = evict(steady, second)
    assert refused.returncode != 0
    assert "disruption budget" in refused.stderr
    steady.rolled_out()


def evict(site: Site, pod: str) -> subprocess.CompletedProcess[str]:
    """Ask for an eviction, as a drain does."""
    body = f'{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{pod}"}}}}'
    path = f"/api/v1/namespaces/{site.namespace}/pods/{pod}/eviction"
    return site.kubectl.may_fail("create", "--raw", path, "--filename", "-", stdin=body)


@pytest.fixture
def power(other_node: str, steady: Site) -> Iterator[list[str]]:
    """The command that cuts a node's power; it has power again at the end."""
    program = os.environ.get(POWER)
    if not program:
        pytest.skip(f"{POWER} names no program that cuts a node's power (docs/tests.md)")
    try:
        yield [program, other_node]
    finally:
        subprocess.run([program, other_node, "up"], check=True)
        steady.kubectl("wait", "--for=condition=Ready", f"node/{other_node}", "--timeout=900s")


def test_a_node_without_power_loses_no_call(steady: Site, power: list[str]) -> None:
    """Its replica says nothing any more, not even that a connection has ended."""
    silent = [pod["metadata"]["name"] for pod in steady.pods() if pod["spec"]["nodeName"] == power[1]]
    with steady.calling(HEADLESS, rate=100) as calls:
        steady.inside("sleep", "5")
        subprocess.run([*power, "down"], check=True)
        eventually(lambda: ready_of(steady, silent) == ["False"] * len(silent), "the cluster's notice")
        steady.inside("sleep", "5")
    calls.require_none_failed(least=500)


def ready_of(site: Site, names: list[str]) -> list[str]:
    """The condition Ready of pods."""
    return [
        one["status"]
        for pod in site.pods()
        if pod["metadata"]["name"] in names
        for one in pod["status"]["conditions"]
        if one["type"] == "Ready"
    ]
