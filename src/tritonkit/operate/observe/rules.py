"""Alerts as a rule file of Prometheus: recorded shares of failures first, because several alerts use each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonkit.operate.observe.alert import Alert, Pace
from tritonkit.operate.observe.promql import error_ratio
from tritonkit.operate.observe.slo import FAST_WINDOWS_S, SLOW_WINDOWS_S

__all__ = ["error_record", "rules_text"]

_HEADER = """# Written by `tritonkit dashboard` from src/tritonkit/operate/observe/alerts.py; a test holds it current.
# Burn rates: "Alerting on SLOs", The Site Reliability Workbook. docs/observe.md has each alert in words.
"""
_PRODUCTION = Pace()


def error_record(window_s: float) -> str:
    """The recorded share of a model's requests that failed, over a window that is named as in production."""
    return f"model:tritonkit_errors:ratio_rate{_PRODUCTION(window_s)}"


def rules_text(alerts: Sequence[Alert], pace: Pace = _PRODUCTION, interval_s: float = 0) -> str:
    """The file as YAML.

    Args:
        pace: the scale of the alerts' durations.
        interval_s: seconds between two evaluations; 0: Prometheus' own interval.
    """
    import yaml

    groups: list[dict[str, Any]] = [
        {"name": "tritonkit-records", "rules": list(map(_recorded(pace), _windows_s()))},
        {"name": "tritonkit-alerts", "rules": [_rule(alert, pace) for alert in alerts]},
    ]
    if interval_s:
        groups = [{"interval": f"{interval_s * 1000:.0f}ms"} | group for group in groups]
    text = yaml.safe_dump({"groups": groups}, sort_keys=False, width=118, allow_unicode=True)
    return f"{_HEADER}{text}"


def _windows_s() -> list[float]:
    return sorted({*FAST_WINDOWS_S, *SLOW_WINDOWS_S})


def _recorded(pace: Pace) -> Any:
    return lambda window_s: {"record": error_record(window_s), "expr": error_ratio(pace(window_s))}


def _rule(alert: Alert, pace: Pace) -> dict[str, Any]:
    wait = {"for": pace(alert.for_s)} if alert.for_s else {}
    return {
        "alert": alert.name,
        "expr": alert.expr(pace),
        **wait,
        "labels": {"severity": str(alert.severity)},
        "annotations": {"summary": alert.summary, "cause": alert.cause, "command": alert.command},
    }
