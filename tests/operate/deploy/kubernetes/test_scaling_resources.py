"""KEDA's triggers, monitoring and Prometheus as resources: what they say, and whether the programs take them."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tritonkit.operate.deploy.facts import Facts
from tritonkit.operate.deploy.scaling_values import Keda, Monitoring, Scaling, ToZero
from tritonkit.operate.deploy.tree import render_tree
from tritonkit.operate.deploy.values import AUTOSCALERS, Values
from tritonkit.operate.observe import ALERTS
from tritonkit.serve.manifests import ContainerNeeds

ROOT = Path(__file__).parents[4]
PROMETHEUS = pytest.mark.needs("promtool")


@cache
def tree() -> dict[str, str]:
    """With the defaults."""
    return render(Values())


def render(values: Values) -> dict[str, str]:
    """For some repository."""
    return render_tree(
        values, Facts(ContainerNeeds(2**28, 2**27, 2**30, 2**20, 2**20, 2**20, {"m": 2**20}), 3, 10**6, 2, "a test", 3)
    )


def resource(path: str) -> Any:
    """One that is rendered."""
    return yaml.safe_load(tree()[path])


def scaled_object() -> Any:
    """KEDA's."""
    return resource("components/keda/scaledobject.yaml")["spec"]


def test_keda_scales_by_what_waits_and_has_cpu_as_the_floor() -> None:
    """Three triggers; those of Prometheus add up over replicas, which KEDA's fallback needs."""
    queue, pending, cpu = scaled_object()["triggers"]
    assert "nv_inference_queue_duration_us" in queue["metadata"]["query"]
    assert "nv_inference_pending_request_count" in pending["metadata"]["query"]
    assert cpu["type"] == "cpu"
    assert cpu["metadata"]["containerName"] == "triton"
    for trigger in (queue, pending):
        assert trigger["metricType"] == "AverageValue"
        assert trigger["metadata"]["ignoreNullValues"] == "false"
        assert trigger["metadata"]["serverAddress"] == "http://prometheus.tritonkit.svc:9090"
        assert float(trigger["metadata"]["threshold"]) > 0


def test_an_outage_of_prometheus_never_scales_in() -> None:
    """Fallback: those that there are, and never out of bounds."""
    assert scaled_object()["fallback"]["behavior"] == "currentReplicasIfHigher"
    values = Values(replicas=50, scaling=Scaling(min=3, max=9))
    scaled = yaml.safe_load(render(values)["components/keda/scaledobject.yaml"])["spec"]
    assert scaled["fallback"]["replicas"] == 9


@pytest.mark.parametrize("component", AUTOSCALERS)
def test_the_deployment_leaves_its_number_to_the_autoscaler(component: str) -> None:
    """Else every `kubectl apply` would set it back."""
    patch = resource(f"components/{component}/kustomization.yaml")["patches"][0]["patch"]
    assert yaml.safe_load(patch) == [{"op": "remove", "path": "/spec/replicas"}]


def test_prometheus_adapter_asks_what_keda_asks() -> None:
    """Each metric that the autoscaler reads has a rule, with the query of KEDA's trigger and the same target."""
    rules = yaml.safe_load(resource("components/prometheus-adapter/rules.yaml")["data"]["config.yaml"])
    queries = {rule["name"]["as"]: rule["metricsQuery"] for rule in rules["externalRules"]}
    spec = resource("components/prometheus-adapter/horizontalpodautoscaler.yaml")["spec"]
    external = [one["external"] for one in spec["metrics"] if one["type"] == "External"]
    triggers = scaled_object()["triggers"]
    assert len(external) == 2
    for metric, trigger in zip(external, triggers[:2], strict=True):
        assert queries[metric["metric"]["name"]] == trigger["metadata"]["query"]
        assert metric["target"] == {"type": "AverageValue", "averageValue": trigger["metadata"]["threshold"]}


def test_requests_that_wait_for_a_pod_come_by_a_name_that_rest_answers() -> None:
    """The interceptor hands on the caller's Host, and the pod's Envoy refuses names it does not know."""
    tree = render(Values(to_zero=ToZero(hosts=("models.example.org",))))
    routes = list(yaml.safe_load_all(tree["components/scale-to-zero/interceptorroutes.yaml"]))
    deployment = yaml.safe_load(tree["base/deployment.yaml"])
    [triton] = deployment["spec"]["template"]["spec"]["containers"]
    [hosts] = [one["value"] for one in triton["env"] if one["name"] == "TRITON_HTTP_HOSTS"]
    for route in routes:
        [rule] = route["spec"]["rules"]
        assert {"triton-waking", "models.example.org"} <= set(rule["hosts"]) <= set(hosts.split())
    scaled = yaml.safe_load(tree["components/scale-to-zero/scaledobject.yaml"])["spec"]
    assert scaled["minReplicaCount"] == 0
    names = [trigger["metadata"]["interceptorRoute"] for trigger in scaled["triggers"]]
    assert names == [route["metadata"]["name"] for route in routes]


def test_a_prometheus_of_ones_own_is_asked_instead() -> None:
    """And none is deployed."""
    values = Values(keda=Keda(prometheus="http://prometheus.monitoring.svc:9090"))
    rendered = render(values)
    trigger = yaml.safe_load(rendered["components/keda/scaledobject.yaml"])["spec"]["triggers"][0]
    assert trigger["metadata"]["serverAddress"] == "http://prometheus.monitoring.svc:9090"
    assert "components/prometheus" not in rendered["overlays/keda/kustomization.yaml"]
    assert "components/prometheus" in tree()["overlays/keda/kustomization.yaml"]


def test_jobs_are_called_as_alerts_and_triggers_ask_for_them() -> None:
    """Both ways of scraping use the same names."""
    monitor = resource("components/monitoring/podmonitor.yaml")
    assert monitor["spec"]["jobLabel"] == "app.kubernetes.io/name"
    assert monitor["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/name": "triton"}
    data = resource("components/prometheus/configmap.yaml")["data"]
    job = yaml.safe_load(data["prometheus.yml"])["scrape_configs"][0]
    assert job["job_name"] == "triton"
    assert 'job="triton"' in Scaling().queue_query("n")


def test_alerts_and_dashboard_are_those_of_observe() -> None:
    """Nothing is described twice."""
    rules = resource("components/monitoring/prometheusrule.yaml")["spec"]
    assert rules == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    assert {rule["alert"] for rule in rules["groups"][1]["rules"]} == {a.name for a in ALERTS}
    dashboard = resource("components/monitoring/dashboard.yaml")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    expected = json.loads((ROOT / "deploy/grafana/dashboards/tritonkit.json").read_text())
    assert json.loads(dashboard["data"]["tritonkit.json"]) == expected


def test_prometheus_is_restricted_and_sees_pods_of_its_namespace_only() -> None:
    """Pod Security Standard `restricted`; a Role, no ClusterRole."""
    pod = resource("components/prometheus/deployment.yaml")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    role = resource("components/prometheus/role.yaml")
    assert role["kind"] == "Role"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"scaling": {"min": 5, "max": 2}},
        {"scaling": {"queue_ratio": 0}},
        {"scaling": {"window_s": 30}},
        {"keda": {"prometheus": "a b"}},
        {"to_zero": {"hosts": ["a b"]}},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    """Out of range."""
    with pytest.raises(ValueError, match=r"min is 5|queue_ratio|window_s|prometheus|hosts"):
        Values(**wrong)


def test_values_that_do_not_go_together_are_refused() -> None:
    """A window of too few scrapes; two autoscalers."""
    with pytest.raises(ValueError, match="four scrapes"):
        Values(monitoring=Monitoring(scrape_s=60))
    with pytest.raises(ValueError, match="one of them"):
        Values(production=("hpa", "keda"))


def test_a_moving_tag_is_refused() -> None:
    """It may be another image tomorrow."""
    with pytest.raises(ValueError, match="latest"):
        Monitoring(image="prom/prometheus:latest")


@PROMETHEUS
def test_promtool_takes_configuration_and_rules(tmp_path: Path) -> None:
    """Promtool checks the container's files with a fixed target: Debian's Prometheus lacks Kubernetes' discovery."""
    data = resource("components/prometheus/configmap.yaml")["data"]
    config = yaml.safe_load(data["prometheus.yml"])
    job = config["scrape_configs"][0]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"names": ["tritonkit"]}}]
    job["static_configs"] = [{"targets": ["a:8002"]}]
    config["rule_files"] = [str(tmp_path / Path(file).name) for file in config["rule_files"]]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "alerts.yml").write_text(data["alerts.yml"])
    subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], check=True)  # noqa: S607


_SERIES = """
- {series: 'up{job="triton",namespace="n",instance="a"}', values: '1x40'}
- {series: 'up{job="triton",namespace="n",instance="b"}', values: '1x40'}
"""


@PROMETHEUS
@pytest.mark.parametrize(
    ("query", "series", "value"),
    [
        ("queue", {"m": (50, 100), "idle": (0, 0)}, 1.0),
        ("queue", {"m": (10, 100), "other": (300, 100)}, 6.0),
        ("queue", {}, 0.0),
        ("pending", {"m": 3.0}, 6.0),
        ("pending", {}, 0.0),
    ],
)
def test_what_triggers_say_of_two_replicas(tmp_path: Path, query: str, series: dict[str, Any], value: float) -> None:
    """The worst model's ratio times two; waiting requests of both; 0 without traffic."""
    samples = list(yaml.safe_load(_SERIES))
    for model, figures in series.items():
        for instance in "ab":
            samples += _of_model(query, model, instance, figures)
    _check(tmp_path, query, samples, [{"labels": "{}", "value": value}])


@PROMETHEUS
@pytest.mark.parametrize("query", ["queue", "pending"])
def test_without_replicas_triggers_say_nothing(tmp_path: Path, query: str) -> None:
    """KEDA then falls back; a 0 would scale in."""
    other = [{"series": 'up{job="other"}', "values": "1x40"}]
    _check(tmp_path, query, other, [])


def _of_model(query: str, model: str, instance: str, figures: Any) -> list[dict[str, str]]:
    labels = f'job="triton",namespace="n",instance="{instance}",model="{model}"'
    if query == "pending":
        name = "nv_inference_pending_request_count"
        return [{"series": f"{name}{{{labels}}}", "values": f"{figures}x40"}]
    queue, compute = figures
    gained = {"queue": queue, "compute_input": 0, "compute_infer": compute, "compute_output": 0}
    return [
        {"series": f"nv_inference_{name}_duration_us{{{labels}}}", "values": f"0+{step}x40"}
        for name, step in gained.items()
    ]


def _check(folder: Path, query: str, series: list[Any], samples: list[Any]) -> None:
    """Prometheus' own test of a query: what it gives after five minutes."""
    scaling = Scaling()
    expr = scaling.queue_query("n") if query == "queue" else scaling.pending_query("n")
    case = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [{"expr": expr, "eval_time": "5m", "exp_samples": samples}],
    }
    file = folder / "case.yml"
    file.write_text(yaml.safe_dump({"tests": [case]}))
    run = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)  # noqa: S607
    assert run.returncode == 0, run.stdout + run.stderr
