"""The audit log of a real Envoy whose disk is full: `/dev/full` takes its place for a while."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.operate.gateway.conftest import StartGateway
from tests.waiting import eventually
from tritonkit.operate.stack.audit_logs import AuditLogs

pytestmark = pytest.mark.needs("envoy")


def test_a_full_disk_is_said_and_cuts_one_line_alone(start_gateway: StartGateway) -> None:
    """Requests are answered meanwhile; once there is room, the next line stands by itself."""
    gateway = start_gateway()
    log = gateway.places.audit
    assert log is not None
    gateway.add_key("all")
    gateway.reload()
    sent = {"x-api-key": gateway.keys["all"]}
    assert gateway.get("/v2", sent)[0] == 503
    logs = AuditLogs(gateway.admin, log)
    assert logs.look() == ""

    log.unlink()
    log.symlink_to("/dev/full")
    gateway.admin.reopen_logs()

    def fails() -> bool:
        assert gateway.get("/v2", sent)[0] == 503
        return bool(gateway.admin.unwritten())

    eventually(fails, "a write that fails")
    assert "writes of its logs failed" in logs.look()

    log.unlink()
    gateway.admin.reopen_logs()
    gateway.get("/v2/room", sent)
    eventually(lambda: log.exists() and "/v2/room" in log.read_text(), "a line")
    with log.open("a") as cut:
        cut.write('{"cut": ')
    eventually(lambda: logs.look() is not None and log.read_text().endswith("\n"), "the end of the cut line")
    gateway.get("/v2/after", sent)
    eventually(lambda: "/v2/after" in log.read_text(), "a line")
    *_, cut_line, after = log.read_text().splitlines()
    assert cut_line == '{"cut": '
    assert json.loads(after)["path"] == "/v2/after"


def test_a_line_that_is_whole_is_left_alone(start_gateway: StartGateway, tmp_path: Path) -> None:
    """Nothing is written where nothing has failed."""
    log = tmp_path / "audit.jsonl"
    log.write_text('{"half')
    logs = AuditLogs(start_gateway().admin, log)
    assert logs.look() == logs.look() == ""
    assert log.read_text() == '{"half'
