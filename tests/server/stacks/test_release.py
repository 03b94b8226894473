"""Releases on real Tritons behind a real gateway, under load: through, back by themselves, taken back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.releases import CODE, SPEC, Project, Shifts, at, terms
from tests.waiting import eventually
from tritonkit.errors import (
    BuildError,
    InferenceError,
    PublishError,
    ReleaseAborted,
    ServerStartError,
    TritonkitError,
    UsageError,
)
from tritonkit.operate.release import release, rollback
from tritonkit.operate.stack.control import StackSession

pytestmark = [pytest.mark.needs("envoy"), pytest.mark.slow]


def test_a_slow_candidate_goes_back(place: Project) -> None:
    """At its first step; no call fails."""
    place.write("time.sleep(0.15)\ny = x + 2")
    with Shifts(place) as load:
        with pytest.raises(ReleaseAborted, match="p99>100ms"):
            release(place.root, "shift", terms("p99>100ms", 20.0, 100.0, requests=10_000))
        assert load.more().keys() == {1.0}
    assert load.failures == []


def test_a_candidate_that_fails_goes_back(place: Project) -> None:
    """Its errors are its callers', and few: it is gone after some requests."""
    # Once it has been checked.
    place.write("CALLS.append(0)\nif len(CALLS) > 100: raise RuntimeError('no')\ny = x + 2\n\nCALLS = []\n")
    with Shifts(place, may_fail=True) as load:
        with pytest.raises(ReleaseAborted, match=r"errors>0\.1%|more errors"):
            release(place.root, "shift", terms("errors>0.1%", 20.0, 100.0, requests=10_000))
        failures = len(load.failures)
        load.more()
        assert len(load.failures) == failures
    assert 0 < failures < 200


def test_a_candidate_that_is_killed_costs_no_call(place: Project) -> None:
    """The replicas answer what it does not."""
    place.write("y = x + 2")

    def kill() -> None:
        (pid,) = (part.pid for part in place.stack.parts if part.name == "candidate")
        os.kill(pid, signal.SIGKILL)

    with Shifts(place) as load:
        with pytest.raises(ReleaseAborted, match="the candidate is down"):
            release(place.root, "shift", terms(requests=10_000), tell=at(20.0, kill))
        assert load.more().keys() == {1.0}
    assert load.failures == []


def test_copies_are_compared_before_any_caller_is_sent(place: Project) -> None:
    """A candidate whose answers differ too often ends there."""
    place.write("y = x + 2")
    with Shifts(place) as load, pytest.raises(ReleaseAborted, match="most often: y: other values"):
        release(place.root, "shift", terms("differ>1%", shadow_percent=50.0))
    assert load.failures == []
    assert load.kinds.keys() == {1.0}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("y = x * np.float32('nan')", InferenceError),
        ("y = x\n\nimport nowhere", ServerStartError),
        ("y = = x", BuildError),
    ],
)
def test_what_is_wrong_from_the_start_gets_no_request(place: Project, body: str, error: type[TritonkitError]) -> None:
    """It answers with nonsense, does not load, or is not even built."""
    place.write(body)
    with Shifts(place) as load, pytest.raises(error):
        release(place.root, "shift", terms())
    assert load.failures == []
    assert load.kinds.keys() == {1.0}


def test_too_few_requests_are_no_release(place: Project) -> None:
    """It says how many there were."""
    place.write("y = x + 2")
    with pytest.raises(ReleaseAborted, match="0 requests in 1 s"):
        release(place.root, "shift", terms(wait_s=1.0))


def test_a_repository_that_cannot_be_written_leaves_all_as_it_was(
    place: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replicas, too, although they had loaded it."""
    from tritonkit.operate.stack import releasing

    replace = releasing.replace_models

    def full(source: Path, repository: Path, *rest: Any) -> None:
        if repository == place.root / "model_repository":
            raise PublishError(str(repository), found="the disk is full")
        replace(source, repository, *rest)

    place.write("y = x + 2")
    monkeypatch.setattr(releasing, "replace_models", full)
    with Shifts(place) as load:
        with pytest.raises(PublishError):
            release(place.root, "shift", terms())
        assert load.more().keys() == {1.0}
    assert load.failures == []


def test_ctrl_c_while_it_is_loaded_changes_nothing(place: Project) -> None:
    """All of it is done, and can be taken back."""
    place.write("y = x + 2")
    command = [
        sys.executable,
        "-m",
        "tritonkit",
        "release",
        "shift",
        "--hold",
        "0.5s",
        "--requests",
        "20",
        "--steps",
        "50,100",
        "--abort-if",
        "",
        "--root",
        str(place.root),
    ]
    place.messages.clear()
    with Shifts(place) as load:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            eventually(lambda: "replica-0: shift was loaded again" in place.messages, "the first load")
            process.send_signal(signal.SIGINT)
        assert load.more().keys() == {2.0}
    assert load.failures == []
    assert "y = x + 2" in place.published()
    rollback(place.root, "shift")


def test_the_first_release_of_a_model_is_served_and_stays(place: Project) -> None:
    """There is nothing to go back to, and rollback says so; a replica that dies has it, too."""
    folder = place.root / "models" / "other"
    folder.mkdir()
    (folder / "model.yaml").write_text(SPEC.replace("shift", "other"))
    (folder / "server.py").write_text(CODE.replace("BODY", "y = x + 7"))
    zeros = np.zeros(2, np.float32)
    stop = threading.Event()

    def call() -> None:
        with place.client() as client:
            while not stop.wait(0.01):
                with contextlib.suppress(TritonkitError):
                    client.model("other").predict(x=zeros)

    caller = threading.Thread(target=call)
    caller.start()
    try:
        outcome = release(place.root, "other", terms("", 100.0, requests=10))
        replica = place.part("replica-1")
        os.kill(replica.pid, signal.SIGKILL)
        eventually(lambda: place.runs_again(replica), "the replica again")
    finally:
        stop.set()
        caller.join()
    assert outcome.changes == ("other 1",)
    with place.client() as client:
        answers = {float(client.model("other").predict(x=zeros)["y"][0, 0]) for _ in range(20)}
    assert answers == {7.0}
    with pytest.raises(UsageError, match="nothing was served before"):
        rollback(place.root, "other")


def test_one_at_a_time(place: Project) -> None:
    """Another session is refused; it is free again once the first has ended."""
    with (
        StackSession(place.root),
        StackSession(place.root) as second,
        pytest.raises(UsageError, match="another release or rollback"),
    ):
        second.ask("served")

    def free() -> bool:
        with StackSession(place.root) as session:
            try:
                return bool(session.ask("served"))
            except UsageError:
                return False

    eventually(free, "a free stack")


def test_a_command_that_is_killed_leaves_nothing(place: Project) -> None:
    """All requests go to the replicas again, and the candidate ends."""
    place.write("y = x + 2")
    command = [sys.executable, "-m", "tritonkit", "release", "shift", "--hold", "1h", "--root", str(place.root)]
    with Shifts(place) as load:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            eventually(lambda: load.kinds[2.0] > 5, "answers of the candidate")
            process.kill()
        eventually(lambda: place.candidates() == [], "no candidate")
        assert load.more().keys() == {1.0}
    assert load.failures == []
