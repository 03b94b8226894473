"""A release on real Tritons behind a real gateway, under load: through, and taken back."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from tests.cli.running import failed, tritonkit
from tests.server.releases import Project, Shifts, at, shifted, terms
from tests.waiting import eventually
from tritonkit.errors import (
    UsageError,
)
from tritonkit.operate.release import release, rollback

pytestmark = pytest.mark.needs("envoy")


@pytest.mark.slow
def test_a_release_loses_no_call_and_is_taken_back(place: Project) -> None:
    """Both versions answer meanwhile, testers choose, then only the new one; rollback brings the old one."""
    place.write("y = x + 2")
    chosen: dict[str, set[float]] = {}

    def choose() -> None:
        for version in ("candidate", "stable"):
            with place.client(headers={"x-tritonkit-release": version}) as client:
                chosen[version] = {shifted(client) for _ in range(20)}

    with Shifts(place) as load:
        outcome = release(place.root, "shift", terms(requests=31), tell=at(20.0, choose))
        assert load.more().keys() == {2.0}
    assert load.failures == []
    assert load.kinds.keys() == {1.0, 2.0}
    assert chosen == {"candidate": {2.0}, "stable": {1.0}}
    assert outcome.changes == ("shift 2",)
    assert [step.percent for step in outcome.steps] == [20.0, 100.0]
    assert outcome.candidate.requests > 60
    assert outcome.candidate.failed == 0
    assert not any(finding.broken for finding in outcome.findings)
    assert "y = x + 2" in place.published()
    with pytest.raises(UsageError, match="what is served already"):
        release(place.root, "shift", terms())
    # A replica that dies has what was released.
    replica = place.part("replica-0")
    with Shifts(place) as load:
        os.kill(replica.pid, signal.SIGKILL)
        eventually(lambda: place.runs_again(replica), "the replica again")
        assert load.more().keys() == {2.0}
    assert load.failures == []
    with Shifts(place) as load:
        assert rollback(place.root, "shift").released == ("shift 2",)
        assert load.more().keys() == {1.0}
    assert load.failures == []
    with pytest.raises(UsageError, match="no release of it is known"):
        rollback(place.root, "shift")


def test_commands_say_what_they_did(place: Project) -> None:
    """Their output is JSON, and each outcome has its own exit code."""
    place.write("time.sleep(0.3)\ny = x + 3")
    root = ("--root", str(place.root))
    quick = ("--hold", "1s", "--requests", "20", "--steps", "50,100")
    with Shifts(place) as load:
        slow = tritonkit("release", "shift", *quick, "--abort-if", "p50>100ms", *root)
        place.write("y = x + 3")
        assert "all requests go to the version before" in failed(slow, 6)
        # By default a candidate of twice the time goes back, which chance may bring on a busy machine.
        lenient = ("--abort-if", "p99>1000x,errors>0.1%")
        done = tritonkit("release", "shift", *quick, *lenient, "--json", *root)
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert re.fullmatch(r"shift \d+", facts["changes"][0])
        assert [step["percent"] for step in facts["steps"]] == [50, 100]
        assert facts["candidate"]["failed"] == 0
        undone = tritonkit("rollback", "shift", *root)
        assert f"taken back {facts['changes'][0]}" in undone.stdout, undone.stderr
    assert load.failures == []
    assert "no release of it" in failed(tritonkit("rollback", "shift", *root), 2)
    assert "without --shadow" in failed(tritonkit("release", "shift", "--abort-if", "differ>1%", *root), 2)
