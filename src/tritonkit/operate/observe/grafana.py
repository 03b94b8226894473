"""The panels as a dashboard of Grafana 10 and 11, and the files by which Grafana finds it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tritonkit import metrics as m
from tritonkit.operate.observe.panel import Panel, Section
from tritonkit.operate.observe.promql import triton

__all__ = ["dashboard_text", "provisioning"]

_WIDTH, _HEIGHT, _ACROSS = 24, 8, 3
"""Grafana's grid has 24 columns."""
_SCHEMA = 39
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_NOTE = "# Written by `tritonkit dashboard`; a test holds it current.\n"


def dashboard_text(sections: Sequence[Section]) -> str:
    """The dashboard as JSON, for a file that Grafana provisions or a person imports."""
    dashboard = {
        "uid": "tritonkit",
        "title": "tritonkit",
        "description": "Triton behind tritonkit: written by `tritonkit dashboard`, docs/observe.md.",
        "tags": ["tritonkit", "triton"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "",
        "annotations": {"list": [_alerts_as_marks()]},
        "templating": {"list": list(_variables())},
        "panels": list(_placed(sections)),
    }
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def provisioning() -> dict[str, str]:
    """Files below Grafana's `provisioning/` folder. PROMETHEUS_URL in its environment is the URL of Prometheus."""
    datasource = """apiVersion: 1
datasources:
  - name: Prometheus
    uid: prometheus
    type: prometheus
    access: proxy
    url: ${PROMETHEUS_URL}
    isDefault: true
    jsonData:
      # The scrape interval of deploy/prometheus/prometheus.yml: the span of a rate is four of them.
      timeInterval: 5s
"""
    dashboards = """apiVersion: 1
providers:
  - name: tritonkit
    type: file
    options:
      path: /etc/grafana/dashboards
"""
    return {"datasources/prometheus.yml": _NOTE + datasource, "dashboards/tritonkit.yml": _NOTE + dashboards}


def _alerts_as_marks() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "enable": True,
        "iconColor": "red",
        "datasource": _DATASOURCE,
        "expr": 'ALERTS{alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{model}} {{instance}}",
        "step": "30s",
    }


def _variables() -> Iterable[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
        "regex": "",
    }
    values = {"model": triton(m.REQUESTS_OK), "instance": triton(m.UP)}
    for name, metric in values.items():
        query = f"label_values({metric}, {name})"
        yield {
            "name": name,
            "label": {"instance": "replica"}.get(name, name),
            "type": "query",
            "datasource": _DATASOURCE,
            "definition": query,
            "query": {"query": query, "refId": f"variable-{name}"},
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "refresh": 2,
            "sort": 1,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "hide": 0,
        }


def _placed(sections: Sequence[Section]) -> Iterable[dict[str, Any]]:
    """Rows, and under each its panels, three in a line; a folded row contains its panels."""
    top, number = 0, 0
    width = _WIDTH // _ACROSS
    for section in sections:
        number += 1
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        row = {"id": number, "type": "row", "title": section.title, "collapsed": section.optional}
        top += 1
        panels = []
        for index, panel in enumerate(section.panels):
            number += 1
            down, across = divmod(index, _ACROSS)
            grid = {"h": _HEIGHT, "w": width, "x": across * width, "y": top + down * _HEIGHT}
            panels.append({"id": number, "gridPos": grid} | _panel(panel))
        yield row | {"gridPos": place, "panels": panels if section.optional else []}
        if not section.optional:
            yield from panels
            top += -(-len(section.panels) // _ACROSS) * _HEIGHT


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": f"{panel.shows}\n\n{panel.why}\n\nFrom {panel.source}. Empty: {panel.need}.",
        "datasource": _DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "editorMode": "code",
                "expr": query.expr.replace("$window", "$__rate_interval"),
                "legendFormat": query.legend,
                "range": True,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _field(panel: Panel) -> dict[str, Any]:
    """Display options of a panel's values; limits are lines."""
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [{"color": "red", "value": value} for value, _ in panel.limits]
    return {
        "unit": panel.unit.grafana,
        "min": 0,
        "custom": {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if panel.limits else "off"},
        },
        "thresholds": {"mode": "absolute", "steps": steps},
    }
