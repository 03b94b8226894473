"""Tuning on a real Triton: a choice that holds, an interrupt, a server that dies, what is known kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import failed, tritonkit
from tests.conftest import PROJECT
from tests.server.projects import share_cache
from tests.waiting import PATIENCE_S
from tritonkit.client import Client
from tritonkit.perf.load.openloop import parse_slo
from tritonkit.perf.tune import Embedded, Listener
from tritonkit.perf.tune.run import TunePlan, prepared, tune
from tritonkit.repository.modelspec import load


@pytest.fixture
def project(root: Path) -> Path:
    """A project with digits, whose artifacts are built."""
    shutil.copytree(PROJECT / "models" / "digits", root / "models" / "digits", dirs_exist_ok=True)
    (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
    share_cache(root)
    return root


def test_a_way_that_holds_is_found_written_and_built(project: Path, tmp_path: Path) -> None:
    """JSON, a page, and model.yaml with the choice; a second search knows what the first found."""
    command = [
        "tune",
        "digits",
        "--slo",
        "p50=100ms",
        "--budget",
        "120s",
        "--trial",
        "1s",
        "--json",
        "--client-batching",
        "--root",
        str(project),
    ]
    done = tritonkit(*command, "--report", str(tmp_path / "out"), "--apply")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["best"]["rate_per_s"] > 0
    assert facts["measurements"] >= sum(len(evaluation["trials"]) for evaluation in facts["evaluations"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "requests/s hold p50=100ms" in page
    text = (project / "models" / "digits" / "model.yaml").read_text()
    assert "# it changes nothing" in text
    assert ("clients: " in done.stderr) is not bool(facts["ended"])
    if (clients := facts["client_batching"]) is not None:
        assert clients["rate_per_s"] > facts["best"]["rate_per_s"]
    if facts["diff"] and facts["ended"]:  # on a busy machine the time is over before the validation
        assert "not applied" in done.stderr
    elif facts["diff"]:
        assert "written:" in done.stderr
        point = facts["best"]["point"]
        serving = load(project / "models" / "digits", project).model.serving
        if point["max_batch_size"] != 64:
            assert serving.max_batch_size == point["max_batch_size"]
    state = json.loads((project / ".tritonkit" / "tune" / "digits.json").read_text())
    assert len(state["evaluations"]) == len(facts["evaluations"])


def test_the_best_way_at_a_rate(project: Path, tmp_path: Path) -> None:
    """Its latency and the server's processor time are measured; the page has both."""
    done = tritonkit(
        "tune",
        "digits",
        "--slo",
        "p50=200ms",
        "--objective",
        "cost",
        "--rate",
        "50",
        "--budget",
        "60s",
        "--trial",
        "1s",
        "--json",
        "--root",
        str(project),
        "--report",
        str(tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["objective"] == {"name": "cost", "rate_per_s": 50.0}
    best = facts["best"]
    assert best["rate_per_s"] == 50.0
    assert 0 < best["tail_ms"] <= 200
    assert 0 < best["cpu_s"] < 0.2
    assert "processor a request" in (tmp_path / "out" / "report.html").read_text()


def test_texts_are_served_with_other_lengths(root: Path) -> None:
    """Their embeddings are the same as before, to rounding: padding counts for nothing."""
    shutil.copytree(PROJECT / "models" / "sentences", root / "models" / "sentences")
    (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
    share_cache(root)
    with prepared(TunePlan(root, "sentences", parse_slo(["p99=1s"]))) as ready:
        assert isinstance(ready.server, Embedded)
        embeddings = []
        for buckets in ((), *ready.space.buckets):
            ready.server.serve(replace(ready.now, buckets=buckets))
            with Client(ready.server.address) as client:
                tokens = client.model("sentences_tokenize").predict(text="a short text")
                embeddings.append(client.model("sentences").predict(text="a short text")["embedding"])
                assert tokens["input_ids"].shape[-1] == (8 if len(buckets) != 1 else 256)
    for other in embeddings[1:]:
        np.testing.assert_allclose(other, embeddings[0], atol=1e-4)


def test_an_interrupt_gives_what_there_is(project: Path) -> None:
    """Ctrl-C during a run: exit code 130, JSON, no traceback, and no server left."""
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tritonkit.cli",
            "tune",
            "digits",
            "--slo",
            "p50=500ms",
            "--json",
            "--root",
            str(project),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        while "/s: " not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert json.loads(out)["ended"] == "interrupted"
    with pytest.raises(ProcessLookupError):  # nobody of its group is left
        os.killpg(process.pid, 0)


def test_a_server_that_dies_costs_a_point_and_not_the_search(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed after the first run under load."""
    servers: list[Embedded] = []
    entered = Embedded.__enter__
    monkeypatch.setattr(Embedded, "__enter__", lambda self: servers.append(self) or entered(self))

    class Killing(Listener):
        killed = 0
        after = 0

        def trial(self, point: object, trial: object) -> None:
            if not self.killed:
                self.killed = servers[0].pid
                os.kill(self.killed, signal.SIGKILL)
            else:
                self.after += 1

        def evaluated(self, evaluation: object, best: object) -> None:
            if self.after and best:
                raise KeyboardInterrupt  # what comes then is another test's

    listener = Killing()
    plan = TunePlan(project, "digits", parse_slo(["p50=100ms"]), budget_s=240.0, trial_s=1.0)
    _, outcome = tune(plan, listener)
    assert servers[0].pid != listener.killed
    assert listener.after
    assert outcome.best


def test_what_cannot_be_tuned(project: Path) -> None:
    """A model that is not there, a target that is none, a budget that is none."""
    where = ("--root", str(project))
    assert "digit" in failed(tritonkit("tune", "digit", "--slo", "p99=5ms", *where), 2)
    assert "such as p99=20ms" in failed(tritonkit("tune", "digits", "--slo", "fast", *where), 2)
    options = ("--slo", "p99=5ms", "--budget", "1ms")
    assert "at least 1s" in failed(tritonkit("tune", "digits", *options, *where), 2)
    target = ("--slo", "p99=5ms")
    assert "latency or cost" in failed(tritonkit("tune", "digits", *target, "--rate", "5", *where), 2)
    wrong = ("--objective", "speed")
    assert "--objective: speed" in failed(tritonkit("tune", "digits", *target, *wrong, *where), 2)
