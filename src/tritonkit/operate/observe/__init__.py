"""Monitoring of what is served: panels and alerts, defined once, for Grafana and Prometheus or for a page of our own.

`panels` has the plots, `alerts` the conditions that wake somebody; `tritonkit.metrics` has every metric's name. `files`
writes them below `deploy/`. Without Grafana, `look` queries a Prometheus (`source`; `private` starts one while somebody
looks), and `page` draws the result.
"""

from tritonkit.operate.observe.alert import Alert, Pace, Severity
from tritonkit.operate.observe.alerts import ALERTS
from tritonkit.operate.observe.files import differing, texts, write
from tritonkit.operate.observe.look import Chosen, Shown, View, look
from tritonkit.operate.observe.page import page
from tritonkit.operate.observe.panel import Need, Panel, Query, Section
from tritonkit.operate.observe.panels import PANELS, SECTIONS
from tritonkit.operate.observe.private import recording
from tritonkit.operate.observe.rules import rules_text
from tritonkit.operate.observe.source import Prometheus
from tritonkit.operate.observe.web import PageServer

__all__ = [
    "ALERTS",
    "PANELS",
    "SECTIONS",
    "Alert",
    "Chosen",
    "Need",
    "Pace",
    "PageServer",
    "Panel",
    "Prometheus",
    "Query",
    "Section",
    "Severity",
    "Shown",
    "View",
    "differing",
    "look",
    "page",
    "recording",
    "rules_text",
    "texts",
    "write",
]
