"""The generated files: current, complete, and of the form that Grafana reads."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tritonkit.operate.observe import PANELS, SECTIONS, differing, texts


@pytest.fixture
def dashboard() -> dict[str, Any]:
    """The dashboard, read again."""
    content: dict[str, Any] = json.loads(texts()[Path("grafana/dashboards/tritonkit.json")])
    return content


def test_the_tracked_files_are_current(project: Path) -> None:
    """`tritonkit dashboard --check` finds no difference below deploy/."""
    assert differing(project / "deploy") == []
    assert tritonkit("dashboard", "--check").returncode == 0


def test_check_tells_drift_and_writes_nothing(tmp_path: Path) -> None:
    """Exit code 3 with the file's name and what to do; without it all are written, once."""
    out = ("--out", str(tmp_path))
    message = failed(tritonkit("dashboard", "--check", *out), 3)
    assert "tritonkit.json" in message
    assert "tritonkit dashboard" in message
    assert list(tmp_path.iterdir()) == []
    written = json.loads(tritonkit("dashboard", "--json", *out).stdout)["written"]
    assert {Path(name).relative_to(tmp_path) for name in written} == set(texts())
    assert tritonkit("dashboard", "--check", *out).returncode == 0
    assert json.loads(tritonkit("dashboard", "--json", *out).stdout)["written"] == []
    alerts = tmp_path / "prometheus/alerts.yml"
    alerts.write_text(alerts.read_text().replace("0.0144", "0.5"))
    assert "alerts.yml" in failed(tritonkit("dashboard", "--check", *out), 3)


def test_a_folder_that_cannot_be_written_is_exit_code_3(tmp_path: Path) -> None:
    """A message, and no traceback."""
    (tmp_path / "prometheus").write_text("a file in the folder's place")
    assert "alerts.yml" in failed(tritonkit("dashboard", "--out", str(tmp_path)), 3)


def unfolded(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With those that are in a folded row after it."""
    return [one for panel in panels for one in (panel, *panel.get("panels", ()))]


def test_the_dashboard_has_every_panel(dashboard: dict[str, Any]) -> None:
    """A row for each section, a panel for each of ours, with all of its queries and a unit."""
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    plots = [panel for panel in unfolded(dashboard["panels"]) if panel["type"] == "timeseries"]
    assert [row["collapsed"] for row in rows] == [section.optional for section in SECTIONS]
    assert [row["title"] for row in rows] == [section.title for section in SECTIONS]
    assert [plot["title"] for plot in plots] == [panel.title for panel in PANELS]
    for plot, panel in zip(plots, PANELS, strict=True):
        assert len(plot["targets"]) == len(panel.queries)
        assert panel.shows in plot["description"]
        assert plot["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in plot["targets"]}) == len(plot["targets"])
        for target in plot["targets"]:
            assert "$window" not in target["expr"]


def test_the_dashboard_s_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    """Each has a number of its own and a place in the grid of 24 columns, those of a folded row among themselves."""
    every = unfolded(dashboard["panels"])
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in every:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    folded = [row["panels"] for row in dashboard["panels"] if row.get("panels")]
    assert folded
    for panels in (dashboard["panels"], *folded):
        check_apart([panel["gridPos"] for panel in panels])


def check_apart(places: list[dict[str, int]]) -> None:
    """No two of them overlap."""
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


def test_the_dashboard_s_variables_are_those_of_its_queries(dashboard: dict[str, Any]) -> None:
    """Datasource, model and replica; every target and variable asks the chosen datasource."""
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names == ["datasource", "model", "instance"]
    assert dashboard["uid"] == "tritonkit"
    for panel in unfolded(dashboard["panels"]):
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"


def test_provisioning_names_prometheus_and_the_dashboards() -> None:
    """YAML of Grafana's form, version 1."""
    files = {path.name: yaml.safe_load(text) for path, text in texts().items() if "provisioning" in path.parts}
    (source,) = files["prometheus.yml"]["datasources"]
    assert source["type"] == "prometheus"
    (provider,) = files["tritonkit.yml"]["providers"]
    assert provider["type"] == "file"
    assert {file["apiVersion"] for file in files.values()} == {1}
