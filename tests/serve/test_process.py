"""The supervisor, with small programs in the server's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, eventually
from tritonkit.errors import ServerStartError
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.core.supervisor import dead_run, remove_stale_regions, run_prefix, state
from tritonkit.serve.process import SupervisedProcess, describe_exit
from tritonkit.serve.runs import KEEP, clear, new_run_dir

# Leaves a child behind that ignores SIGTERM, and writes the child's number to standard output.
PARENT = """import subprocess, sys, time
stub = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
print(subprocess.Popen([sys.executable, "-c", stub]).pid, flush=True)
"""
DRAINS = """import signal, sys, time
def end(*_):
    print("All models are stopped, unloading models", flush=True)
    time.sleep(60)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
Run = Callable[[str], SupervisedProcess]


@pytest.fixture
def launch(tmp_path: Path) -> Run:
    """Run Python code in tritonserver's place."""

    def run(code: str) -> SupervisedProcess:
        argv = [sys.executable, "-c", code, "{prefix}"]
        return SupervisedProcess(Launch(argv, dict(os.environ), str(tmp_path)), tmp_path / "log")

    return run


def output(triton: SupervisedProcess) -> str:
    """Output of the program, once there is some."""
    return str(eventually(triton.log.read_text, "a line in the log"))


def test_the_end_is_reported_with_what_it_wrote(launch: Run) -> None:
    """Exit code, both output streams, and the prefix in its arguments."""
    triton = launch("import sys; print(sys.argv[1]); print('wrong', file=sys.stderr); sys.exit(3)")
    assert triton.ended.wait(PATIENCE_S)
    assert (triton.exit_code, triton.drained) == (3, False)
    assert set(triton.log.read_text().split()) == {triton.prefix, "wrong"}


def test_what_the_server_leaves_is_ended(launch: Run) -> None:
    """A child that outlives the server, as a stub may, is gone before the end is reported."""
    triton = launch(PARENT)
    assert triton.ended.wait(PATIENCE_S)
    assert state(int(output(triton))) != "running"


def test_a_stopped_supervisor_does_not_keep_its_program_from_ending(
    launch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It obeys no order, so it is killed, and what it ran with it."""
    monkeypatch.setattr("tritonkit.serve.process._OBEYED_S", 0.5)
    triton = launch("import time; print('ready', flush=True); time.sleep(600)")
    output(triton)
    os.kill(triton.supervisor_pid, signal.SIGSTOP)
    triton.kill()
    assert triton.exit_code is None
    eventually(lambda: state(triton.pid) != "running", "the end of the program")


def test_a_drained_server_is_not_waited_for(launch: Run) -> None:
    """When the log says that no request is left and no stub lives, it is over."""
    triton = launch(DRAINS)
    output(triton)
    triton.stop(drain_s=3600, finalize_s=3600)
    assert triton.ended.wait(PATIENCE_S)
    assert triton.drained


def test_a_server_that_does_not_drain_is_ended(launch: Run) -> None:
    """After the time for requests in flight."""
    triton = launch(DRAINS.replace("All models", "Some models"))
    output(triton)
    triton.stop(drain_s=0.3, finalize_s=3600)
    assert triton.ended.wait(PATIENCE_S)
    assert (triton.exit_code, triton.drained) == (-signal.SIGKILL, False)


def test_killing_comes_through_while_it_drains(launch: Run) -> None:
    """A second order does not wait for the first."""
    triton = launch(DRAINS.replace("All models", "Some models"))
    output(triton)
    triton.stop(drain_s=3600, finalize_s=3600)
    triton.kill()
    assert triton.ended.wait(PATIENCE_S)


def test_a_program_that_cannot_run_is_told(tmp_path: Path) -> None:
    """The error names it; no supervisor stays."""
    with pytest.raises(ServerStartError, match="no-such-server"):
        SupervisedProcess(Launch([str(tmp_path / "no-such-server")], {}, str(tmp_path)), tmp_path / "log")


def test_how_it_ended_is_said_in_words() -> None:
    """An exit code, a signal, or the supervisor's death."""
    assert describe_exit(1).endswith("exit code 1")
    assert "SIGSEGV" in describe_exit(-signal.SIGSEGV)
    assert "supervisor" in describe_exit(None)


def test_regions_of_dead_runs_go(tmp_path: Path) -> None:
    """Regions of live runs, of other PID namespaces and of other programs stay."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    mine = run_prefix()
    stay = {f"{mine}{os.getpid()}_ab_x", f"tritonkit_1_{ended.pid}_ab_x", "other", f"{mine}x_y"}
    for name in (*stay, f"{mine}{ended.pid}_ab_x"):
        (tmp_path / name).touch()
    remove_stale_regions(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == stay
    assert dead_run(f"{mine}{ended.pid}_ab_x")


def test_a_run_folder_is_private_and_few_stay(tmp_path: Path) -> None:
    """Only this user may read the log; of runs that have ended, the last few are kept."""
    first = new_run_dir(tmp_path)
    assert first.stat().st_mode & 0o777 == 0o700
    (first / "owner").write_text(str(os.getpid()))
    (first / "backends").mkdir()
    for _ in range(KEEP + 3):
        new_run_dir(tmp_path)
    assert first.exists()
    clear(first)
    assert list(first.iterdir()) == []
    assert len(list(first.parent.iterdir())) <= KEEP + 1


def test_a_run_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """Here a file is in the way."""
    (tmp_path / ".tritonkit").touch()
    with pytest.raises(ServerStartError, match="cannot be written"):
        new_run_dir(tmp_path)
