"""Panels: what they ask is PromQL, and every name in it stands in one module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.operate.observe.test_alerts import promtool
from tritonkit import metrics
from tritonkit.metrics import GATEWAY_JOB, TRITON_JOB
from tritonkit.operate.observe import PANELS, SECTIONS, Chosen, Need, Panel

ALL = Chosen()
NAMES = [
    value for name in metrics.__all__ if isinstance(value := getattr(metrics, name), str) and not set(value) & set("=,")
]


def test_panels_have_names_of_their_own() -> None:
    """Fit for JSON, CSS and addresses; and sections are not empty."""
    names = [panel.name for panel in PANELS]
    assert len(set(names)) == len(names) > 30
    assert all(re.fullmatch(r"[a-z][a-z0-9-]+", name) for name in names)
    assert all(section.panels for section in SECTIONS)


@pytest.mark.needs("promtool")
def test_every_query_is_promql(tmp_path: Path) -> None:
    """Each query passes Prometheus' own check as a recording rule."""
    rules = [
        {"record": f"q:{panel.name.replace('-', '_')}:{number}", "expr": ALL.filled(query.expr, 60)}
        for panel in PANELS
        for number, query in enumerate(panel.queries)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_a_panel_names_its_source(panel: Panel) -> None:
    """Panels that need the gateway query only it; others query replicas."""
    assert panel.jobs
    assert (panel.jobs == (GATEWAY_JOB,)) == (panel.need is Need.gateway)
    assert panel.need is Need.gateway or TRITON_JOB in panel.jobs
    assert panel.shows.endswith(".")
    assert panel.why.endswith(".")
    for query in panel.queries:
        assert "$instance" not in query.expr or TRITON_JOB in query.expr


def test_names_of_metrics_stand_in_one_module(project: Path) -> None:
    """A rename is one edit; and each name there is used."""
    folder = project / "src/tritonkit/operate/observe"
    expressions = " ".join(query.expr + query.legend for panel in PANELS for query in panel.queries)
    rules = (project / "deploy/prometheus/alerts.yml").read_text()
    for file in folder.rglob("*.py"):
        if file.name != "metrics.py":
            names = re.findall(r'"(?:nv|envoy|tritonkit)_\w+_\w+"', file.read_text())
            assert set(names) <= {'"envoy_cluster_name"'}, file
    for name in NAMES:
        assert name in expressions + rules, name
