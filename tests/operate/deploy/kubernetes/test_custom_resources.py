"""Custom resources as `kubectl apply` would send them: our schemas of them, and their authors' where they are here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pydantic import ValidationError

from tests.operate.deploy.kubernetes.conftest import RELEASED
from tests.operate.deploy.kubernetes.crds import definitions_of_crds, errors_of, our_schema
from tests.operate.deploy.kubernetes.test_overlays import CUSTOM, VERSIONS
from tritonkit.operate.deploy import Values

Resource = dict[str, Any]
Render = Callable[..., dict[str, str]]
KINDS = (
    "ScaledObject",
    "InterceptorRoute",
    "PodMonitor",
    "PrometheusRule",
    "GRPCRoute",
    "HTTPRoute",
    "ServingRuntime",
    "InferenceService",
)
KNATIVE = {"kserve": {"mode": "Knative"}, **RELEASED}


@pytest.fixture(scope="module")
def custom(render: Render) -> list[Resource]:
    """All that any values give."""
    trees = [render(), render(**KNATIVE)]
    documents = [
        document
        for tree in trees
        for path, text in tree.items()
        if not path.endswith("kustomization.yaml")
        for document in yaml.safe_load_all(text)
    ]
    return [document for document in documents if document.get("apiVersion") in CUSTOM]


def of_kind(custom: list[Resource], kind: str) -> list[Resource]:
    """Resources of a kind; at least one exists."""
    resources = [resource for resource in custom if resource["kind"] == kind]
    assert resources
    return resources


def test_every_kind_is_looked_at(custom: list[Resource]) -> None:
    """A kind that is new here wants a schema."""
    assert {resource["kind"] for resource in custom} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_our_schemas_accept_it(custom: list[Resource], kind: str) -> None:
    """No field that we have not looked up, no wrong type."""
    for resource in of_kind(custom, kind):
        assert errors_of(resource, our_schema(kind)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_our_schemas_refuse_a_field_that_is_none(custom: list[Resource], kind: str) -> None:
    """Wherever it stands in a spec."""
    [first, *_] = of_kind(custom, kind)
    for path in places(first["spec"]):
        changed = copy.deepcopy(first)
        place = changed["spec"]
        for step in path:
            place = place[step]
        place["unheardOf"] = {}
        assert errors_of(changed, our_schema(kind)), path


def places(spec: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to the objects with fields of an API, not to those of a pod."""
    if isinstance(spec, dict):
        yield path
        for name, value in spec.items():
            if name not in OF_PODS:
                yield from places(value, (*path, name))
    elif isinstance(spec, list) and spec:
        yield from places(spec[0], (*path, 0))


OF_PODS = {
    "annotations",
    "containers",
    "deploymentStrategy",
    "initContainers",
    "labels",
    "matchLabels",
    "metadata",
    "securityContext",
    "topologySpreadConstraints",
    "volumes",
}


@pytest.mark.needs("crds")
@pytest.mark.parametrize("kind", KINDS)
def test_the_authors_schemas_accept_it(custom: list[Resource], kind: str) -> None:
    """CustomResourceDefinitions accept every field; a misspelt field, which an API server would drop, is found."""
    schemas = definitions_of_crds()
    for resource in of_kind(custom, kind):
        if (resource["apiVersion"], kind) not in schemas:
            pytest.skip(f"TRITONKIT_CRDS has no {kind} of {resource['apiVersion']}")
        schema = schemas[resource["apiVersion"], kind]
        assert errors_of(resource, schema) == []
        assert errors_of(resource | {"spec": resource["spec"] | {"unheardOf": 1}}, schema)


@pytest.mark.parametrize("values", [{}, KNATIVE], ids=["standard", "knative"])
def test_what_kserve_makes_a_pod_of_is_one(render: Render, values: dict[str, Any]) -> None:
    """Runtime and predictor together, as KServe merges them: Kubernetes' schemas, and the restricted standard."""
    runtime, predictor = kserve(render(**values))
    own = ("minReplicas", "maxReplicas", "scaleMetric", "scaleTarget", "canaryTrafficPercent", "model")
    pod = {name: value for name, value in predictor.items() if name not in own}
    pod.pop("deploymentStrategy", None)
    whole = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {**pod, "containers": runtime["containers"]},
    }
    for version in VERSIONS:
        kubernetes_validate.validate(whole, version, strict=True)
    for container in [*pod["initContainers"], *runtime["containers"]]:
        context = container["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["resources"]["limits"] == container["resources"]["requests"]


def test_knative_gets_what_it_takes(render: Render) -> None:
    """One port, no lifecycle and no grace period, which it refuses; a canary by revisions, which it alone has."""
    runtime, predictor = kserve(render(**KNATIVE))
    [container] = runtime["containers"]
    assert [port["name"] for port in container["ports"]] == ["h2c"]
    assert "lifecycle" not in container
    refused = {"terminationGracePeriodSeconds", "securityContext", "topologySpreadConstraints"}
    assert not refused & set(predictor)
    assert predictor["canaryTrafficPercent"] == RELEASED["canary"]["weight"]
    assert predictor["initContainers"][0]["image"] == "tritonkit/models:2"
    assert predictor["scaleMetric"] == "concurrency"


def test_a_deployment_of_kserve_is_ours(render: Render) -> None:
    """With preStop and its time, CPU as the metric, and bounds from `scaling`."""
    runtime, predictor = kserve(render(scaling={"min": 3, "max": 5, "cpu_percent": 60}))
    assert "preStop" in runtime["containers"][0]["lifecycle"]
    assert predictor["terminationGracePeriodSeconds"] > 15
    bounds = [predictor[name] for name in ("minReplicas", "maxReplicas", "scaleTarget")]
    assert bounds == [3, 5, 60]
    assert predictor["scaleMetric"] == "cpu"
    assert "canaryTrafficPercent" not in predictor


@pytest.mark.parametrize(
    ("kserve", "message"),
    [
        ({"scale_metric": "rps", "scale_target": 5}, "wanted cpu or memory with Standard"),
        ({"mode": "Knative", "scale_metric": "cpu"}, "concurrency or rps with Knative"),
        ({"mode": "Knative", "scale_metric": "rps"}, "wanted scale_target"),
    ],
)
def test_a_metric_that_the_mode_lacks_is_refused(kserve: dict[str, Any], message: str) -> None:
    """KServe would take it, and not scale."""
    with pytest.raises(ValidationError, match=message):
        Values.model_validate({"kserve": kserve})


def kserve(tree: dict[str, str]) -> tuple[Resource, Resource]:
    """The runtime's spec, and the predictor."""
    runtime, service = (
        yaml.safe_load(tree[f"overlays/kserve/{name}.yaml"])["spec"] for name in ("servingruntime", "inferenceservice")
    )
    return runtime, service["predictor"]
