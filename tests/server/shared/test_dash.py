"""`tritonkit dash` on a real Triton, with a Prometheus of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.running import tritonkit
from tests.waiting import eventually
from tritonkit.serve import Endpoint


@pytest.mark.needs("prometheus")
def test_a_server_is_shown_by_its_metrics(digits_server: Endpoint) -> None:
    """JSON has the replica, which is up; the gateway's panels say why they are empty."""

    def panels() -> dict[str, Any]:
        done = tritonkit("dash", "--metrics", digits_server.metrics, "--range", "1min", "--duration", "12s", "--json")
        assert done.returncode == 0, done.stderr
        shown: dict[str, Any] = json.loads(done.stdout)["panels"]
        return shown if shown["replica-up"]["lines"] else {}

    shown = eventually(panels, "a replica in the panels")
    assert [line["name"] for line in shown["replica-up"]["lines"]] == [digits_server.metrics]
    assert "no gateway" in shown["latency-p99"]["empty"]
