"""Alerts by Prometheus' own tool: each fires when it should, and not close by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.docker.conftest import run
from tests.operate.observe.alert_cases import CASES, Case
from tests.parts import program
from tritonkit.operate.observe import ALERTS, Pace, rules_text
from tritonkit.operate.observe.alert import Alert

pytestmark = pytest.mark.needs("promtool")
BY_NAME = {alert.name: alert for alert in ALERTS}


def promtool(*words: str) -> str:
    """Output of promtool, which must find no fault."""
    tool = program("promtool")
    assert tool is not None
    done = run(tool, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def filled(text: str, labels: Mapping[str, str]) -> str:
    """An annotation as Prometheus fills it in."""
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda match: labels[match[1]], text)


def expected(alert: Alert, labels: Mapping[str, str]) -> dict[str, object]:
    """The alert as it must come, with all that it says."""
    annotations = {"summary": alert.summary, "cause": alert.cause, "command": alert.command}
    return {
        "exp_labels": {"severity": str(alert.severity), **labels},
        "exp_annotations": {name: filled(text, labels) for name, text in annotations.items()},
    }


def as_test(case: Case) -> dict[str, object]:
    """A case as promtool reads it."""
    fires = [] if case.labels is None else [expected(BY_NAME[case.alert], case.labels)]
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    entry = {"eval_time": f"{case.minutes}m", "alertname": case.alert, "exp_alerts": fires}
    return {"interval": "1m", "input_series": series, "alert_rule_test": [entry]}


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_an_alert_fires_when_it_should_and_not_close_by(name: str, tmp_path: Path) -> None:
    """With its labels, its summary, its cause and its command."""
    cases = [case for case in CASES if case.alert == name]
    assert {case.labels is None for case in cases} == {True, False}
    (tmp_path / "alerts.yml").write_text(rules_text(ALERTS))
    file = tmp_path / "test.yml"
    tests = {"rule_files": ["alerts.yml"], "tests": [as_test(case) for case in cases]}
    file.write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(file))


def test_the_cases_are_of_alerts_there_are() -> None:
    """And no name of an alert is used twice."""
    assert {case.alert for case in CASES} == set(BY_NAME)
    assert len(BY_NAME) == len(ALERTS)


@pytest.mark.parametrize("pace", [1.0, 1 / 60, 1 / 1000])
def test_prometheus_reads_the_rules_at_any_pace(pace: float, tmp_path: Path) -> None:
    """Also those that a test of a live server has no time to wait for."""
    file = tmp_path / "alerts.yml"
    file.write_text(rules_text(ALERTS, Pace(pace), interval_s=0.5))
    assert f"{len(ALERTS) + 4} rules found" in promtool("check", "rules", str(file))


@pytest.mark.parametrize(
    ("seconds", "factor", "text"),
    [(300, 1, "5m"), (5400, 1, "90m"), (86400, 1, "1d"), (300, 1 / 60, "5000ms"), (900, 1 / 60, "15s")],
)
def test_durations_are_written_as_prometheus_reads_them(seconds: float, factor: float, text: str) -> None:
    """In the largest unit that leaves no rest."""
    assert Pace(factor)(seconds) == text


def test_every_alert_says_what_to_do() -> None:
    """And whom it is for; JSON of it is plain text."""
    for alert in ALERTS:
        assert alert.summary
        assert alert.cause
        assert alert.command
        assert json.dumps(alert.severity) in ('"page"', '"ticket"')
