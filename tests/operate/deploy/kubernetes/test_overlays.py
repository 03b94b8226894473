"""Every overlay as `kubectl apply -k` would send it: Kubernetes' schemas, and what we promise of pods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes_validate
import pytest

from tritonkit.operate.deploy.facts import DRAIN_S, STOP_S
from tritonkit.operate.deploy.values import Images
from tritonkit.resources import shipped

Resource = dict[str, Any]
Build = Callable[[str], list[Resource]]
VERSIONS = ("1.32", "1.34", "1.36")
"""Minor versions of Kubernetes whose schemas everything is held against."""
OVERLAYS = (
    "cpu",
    "gpu",
    "nvidia",
    "hpa",
    "keda",
    "prometheus-adapter",
    "scale-to-zero",
    "monitoring",
    "prometheus",
    "gateway",
    "canary",
    "gateway-api",
    "production",
)
CUSTOM = (
    "keda.sh/v1alpha1",
    "http.keda.sh/v1beta1",
    "monitoring.coreos.com/v1",
    "gateway.networking.k8s.io/v1",
    "serving.kserve.io/v1alpha1",
    "serving.kserve.io/v1beta1",
)
"""APIs that Kubernetes' own schemas lack."""
every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def pods(resources: list[Resource]) -> Iterator[Resource]:
    """The pod specs of a set of resources."""
    yield from (one["spec"]["template"]["spec"] for one in resources if one["kind"] == "Deployment")


def triton_pod(resources: list[Resource]) -> Resource:
    """Triton's pod spec."""
    spec: Resource = of_kind(resources, "Deployment")["triton"]["spec"]["template"]["spec"]
    return spec


def containers(pod: Resource) -> list[Resource]:
    """All containers of a pod, those that run first included."""
    return [*pod.get("initContainers", []), *pod["containers"]]


def of_kind(resources: list[Resource], kind: str) -> dict[str, Resource]:
    """Name -> resource."""
    return {one["metadata"]["name"]: one for one in resources if one["kind"] == kind}


@pytest.mark.slow
@every_overlay
@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_accept_it(kustomize: Build, overlay: str, version: str) -> None:
    """No unknown key, no wrong type, in any of the versions."""
    for resource in kustomize(overlay):
        if resource["apiVersion"] not in CUSTOM:
            assert kubernetes_validate.validate(resource, version, strict=True) == version


def test_the_schemas_refuse_a_key_that_is_none(kustomize: Build) -> None:
    """The check above can fail: a misspelt key is found."""
    resource = of_kind(kustomize("cpu"), "PodDisruptionBudget")["triton"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            resource | {"spec": resource["spec"] | {"maxUnavailabel": 1}}, VERSIONS[0], strict=True
        )


@every_overlay
def test_pods_hold_to_the_restricted_standard(kustomize: Build, overlay: str) -> None:
    """Not root, nothing of the host, no capabilities, a seccomp profile, no token, pinned images."""
    resources = kustomize(overlay)
    specs = list(pods(resources))
    assert specs
    for pod in specs:
        # Prometheus finds pods through the API server; nothing else has business there.
        assert pod["automountServiceAccountToken"] is (pod["serviceAccountName"] == "prometheus")
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        for container in containers(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert context.get("privileged", False) is False
            Images(server=container["image"])  # refuses what is not pinned
            assert container["imagePullPolicy"] == "IfNotPresent"
    [namespace] = of_kind(resources, "Namespace").values()
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@every_overlay
def test_pods_are_guaranteed_and_watched(kustomize: Build, overlay: str) -> None:
    """Limits and three probes everywhere; Triton has whole cores, request = limit, and a preStop."""
    for pod in pods(kustomize(overlay)):
        for container in pod["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[probe].keys() & {"exec", "httpGet"}
        for container in containers(pod):
            assert container["resources"]["limits"].keys() >= {"cpu", "memory"}
            if pod["serviceAccountName"] != "triton":
                continue
            limits = {k: v for k, v in container["resources"]["limits"].items() if "/" not in k}
            assert container["resources"]["requests"] == limits
            assert limits.keys() == {"cpu", "memory"}
            assert int(limits["cpu"]) >= 1
    [triton] = triton_pod(kustomize(overlay))["containers"]
    assert "preStop" in triton["lifecycle"]


@every_overlay
def test_shared_memory_fits_into_the_memory_limit(kustomize: Build, overlay: str) -> None:
    """A memory-backed volume counts as the pod's memory."""
    pod = triton_pod(kustomize(overlay))
    [triton] = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    shm = volumes["shm"]["emptyDir"]
    assert shm["medium"] == "Memory"
    limit = triton["resources"]["limits"]["memory"]
    assert 0 < int(shm["sizeLimit"].removesuffix("Mi")) < int(limit.removesuffix("Mi"))


def test_the_end_of_a_pod_has_time_for_all_of_it(kustomize: Build) -> None:
    """The kubelet kills after the grace period, which holds preStop and the drain of entry.py."""
    entry = shipped("deploy/docker/entry.py").read_text()
    steps = re.findall(r"^(?:DRAIN_S|_ENSEMBLES_S|_FINALIZE_S|_DRAIN_DEAD_S) = ([0-9.]+)$", entry, re.MULTILINE)
    assert len(steps) == 4
    assert sum(map(float, steps)) == DRAIN_S
    [pod] = pods(kustomize("cpu"))
    assert pod["terminationGracePeriodSeconds"] >= STOP_S + DRAIN_S
    [triton] = pod["containers"]
    assert triton["lifecycle"]["preStop"]["exec"]["command"][-1] == str(STOP_S)
    [age] = [one["value"] for one in triton["env"] if one["name"] == "TRITON_CONNECTION_AGE_S"]
    assert int(age) * 1.1 < STOP_S


def test_nothing_is_lost_by_a_rolling_update_or_a_drain(kustomize: Build) -> None:
    """A new pod is there before an old one goes, and one pod at a time is evicted."""
    resources = kustomize("cpu")
    spec = of_kind(resources, "Deployment")["triton"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    budget = of_kind(resources, "PodDisruptionBudget")["triton"]["spec"]
    assert budget["maxUnavailable"] == 1
    labels = spec["template"]["metadata"]["labels"].items()
    assert budget["selector"]["matchLabels"].items() <= labels
    for service in of_kind(resources, "Service").values():
        assert service["spec"]["selector"].items() <= labels
    assert of_kind(resources, "Service")["triton"]["spec"]["clusterIP"] == "None"


def test_the_namespace_denies_what_no_policy_allows(kustomize: Build) -> None:
    """Metrics are for the monitoring's namespace alone, and out of the pods goes DNS alone."""
    policies = of_kind(kustomize("cpu"), "NetworkPolicy")
    assert policies["deny-ingress"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    spec = policies["triton"]["spec"]
    [rule] = [one for one in spec["ingress"] if {"protocol": "TCP", "port": "metrics"} in one["ports"]]
    [source] = rule["from"]
    assert source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == "monitoring"
    assert {port["port"] for one in spec["egress"] for port in one["ports"]} == {53}


def test_the_autoscaler_owns_the_number_of_replicas(kustomize: Build) -> None:
    """Applied again, the overlay does not set it back."""
    resources = kustomize("hpa")
    assert "replicas" not in of_kind(resources, "Deployment")["triton"]["spec"]
    scaler = of_kind(resources, "HorizontalPodAutoscaler")["triton"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == "triton"
    assert scaler["metadata"]["namespace"] == "tritonkit"


def test_a_gpu_is_asked_for_by_the_overlays_for_it_alone(kustomize: Build) -> None:
    """Each with its own image; all else they have in common."""
    [gpu], [nvidia], [cpu] = (next(pods(kustomize(name)))["containers"] for name in ("gpu", "nvidia", "cpu"))
    assert gpu["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert gpu["image"] == Images().server_gpu
    assert nvidia == {**gpu, "image": Images().server_nvidia}
    assert "nvidia.com/gpu" not in cpu["resources"]["limits"]


def test_rest_is_answered_under_the_names_of_the_services(kustomize: Build) -> None:
    """Other names are refused by the pod's own Envoy."""
    resources = kustomize("cpu")
    [triton] = next(pods(resources))["containers"]
    [hosts] = [one["value"] for one in triton["env"] if one["name"] == "TRITON_HTTP_HOSTS"]
    for name in of_kind(resources, "Service"):
        assert {name, f"{name}.tritonkit", f"{name}.tritonkit.svc.cluster.local"} <= set(hosts.split())
