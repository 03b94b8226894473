"""Releases on real Tritons behind a real gateway, under load: through, back by themselves, taken back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import failed, tritonkit
from tests.conftest import PROJECT
from tests.server.watched import Load, Watched
from tests.waiting import eventually
from tritonkit.client import Client
from tritonkit.errors import (
    BuildError,
    InferenceError,
    PublishError,
    ReleaseAborted,
    ServerStartError,
    TritonkitError,
    UsageError,
)
from tritonkit.operate.release import ReleaseTerms, Status, parse_rules, release, rollback
from tritonkit.operate.stack.control import StackSession
from tritonkit.repository.pipeline import build_repository

pytestmark = [pytest.mark.needs("envoy"), pytest.mark.slow]

SPEC = """name: shift
network:
  python: server.py
  inputs: {x: {dtype: FP32, shape: [2]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
serving: {max_batch_size: 8, idempotent: true}
"""
CODE = """import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            BODY
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", y)]))
        return answers
"""


class Project(Watched):
    """A project with one model, and its stack of two replicas."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "models" / "shift").mkdir(parents=True)
        (root / "python_backends").symlink_to(PROJECT / "python_backends")
        (root / "models" / "shift" / "model.yaml").write_text(SPEC)
        self.write("y = x + 1")
        repository = build_repository(root, ["shift"]).path
        super().__init__(root, repository, replicas=2, prometheus=False, redis=False)

    def write(self, body: str) -> None:
        """What the model's next version does with `x`; after an empty line, what its module does at the end."""
        inner, _, outer = body.partition("\n\n")
        text = CODE.replace("BODY", inner.replace("\n", "\n            ")) + outer
        (self.root / "models" / "shift" / "server.py").write_text(text)

    def answer(self) -> float:
        """What the model makes of zero now."""
        with self.client() as client:
            return shifted(client)

    def published(self) -> str:
        """The newest code in the project's repository."""
        versions = (self.root / "model_repository" / "shift").glob("[0-9]*/model.py")
        return max(versions, key=lambda file: int(file.parent.name)).read_text()

    def candidates(self) -> list[str]:
        """States of the candidates there are."""
        return [part.state for part in self.stack.parts if part.name == "candidate"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Two replicas of a model that adds 1."""
    made = Project(tmp_path_factory.mktemp("release"))
    yield made
    made.stop()


@pytest.fixture
def place(running: Project) -> Iterator[Project]:
    """The same, serving what adds 1 before and after each test."""
    assert running.answer() == 1.0
    yield running
    running.write("y = x + 1")
    eventually(lambda: running.candidates() == [], "no candidate any more")
    assert running.answer() == 1.0
    assert "y = x + 1\n" in running.published()


def shifted(client: Client) -> float:
    """What the model makes of zero."""
    return float(client.model("shift").predict(x=np.zeros(2, np.float32))["y"][0, 0])


class Shifts(Load):
    """Callers of the model, and how often each answer came."""

    def __init__(self, place: Project, *, may_fail: bool = False) -> None:
        super().__init__(place, shifted, pause_s=0.01)
        self._may_fail = may_fail
        self.kinds: Counter[float] = Counter()

    def took(self, answer: Any) -> None:
        """Count it."""
        super().took(answer)
        self.kinds[answer] += 1

    def more(self, count: int = 100) -> Counter[float]:
        """Answers from now on, once there are some."""
        known = self.kinds.copy()
        eventually(
            lambda: self.kinds.total() > known.total() + count or (self.failures and not self._may_fail), "answers"
        )
        assert self._may_fail or self.failures[:3] == []
        return self.kinds - known


def terms(rules: str = "errors>0.1%", *steps: float, **options: Any) -> ReleaseTerms:
    """Short steps."""
    given = {"hold_s": 0.5, "requests": 30, "wait_s": 60.0} | options
    return ReleaseTerms(steps or (20.0, 100.0), parse_rules(rules), **given)


def at(percent: float, do: Callable[[], object]) -> Callable[[Status], None]:
    """Do something once, at a step's first requests."""
    done: list[object] = []

    def tell(status: Status) -> None:
        if status.percent == percent and status.requests > 10 and not done:
            done.append(do() or True)

    return tell


def test_a_release_loses_no_call_and_is_taken_back(place: Project) -> None:
    """Both versions answer meanwhile, testers choose, then only the new one; rollback brings the old one."""
    place.write("y = x + 2")
    chosen: dict[str, set[float]] = {}

    def choose() -> None:
        for version in ("candidate", "stable"):
            with place.client(headers={"x-tritonkit-release": version}) as client:
                chosen[version] = {shifted(client) for _ in range(20)}

    with Shifts(place) as load:
        outcome = release(place.root, "shift", terms(), tell=at(20.0, choose))
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
        known = len(load.failures)
        load.more()
        assert len(load.failures) == known
    assert 0 < known < 200


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
    """What answers otherwise too often ends there."""
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
    place.said.clear()
    with Shifts(place) as load:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            eventually(lambda: "replica-0: shift was loaded again" in place.said, "the first load")
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


def test_commands_say_what_they_did(place: Project) -> None:
    """As JSON, with their own exit codes."""
    place.write("time.sleep(0.3)\ny = x + 3")
    root = ("--root", str(place.root))
    quick = ("--hold", "1s", "--requests", "20", "--steps", "50,100")
    with Shifts(place) as load:
        slow = tritonkit("release", "shift", *quick, "--abort-if", "p50>100ms", *root)
        place.write("y = x + 3")
        assert "all requests go to the version before" in failed(slow, 6)
        done = tritonkit("release", "shift", *quick, "--json", *root)
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
