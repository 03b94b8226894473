"""A stack's published state: it is read only while its owner lives."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually
from tritonkit.errors import UsageError
from tritonkit.operate.stack import StackPart, read_state, stop_running
from tritonkit.operate.stack.replicas import divided
from tritonkit.operate.stack.state import FOLDER, StateFile, clear_state, write_state


@pytest.fixture
def place(root: Path) -> Path:
    """A project that had a stack."""
    (root / FOLDER).mkdir(parents=True)
    return root


def test_parts_are_read_as_they_were_written(place: Path) -> None:
    """Only programs of its owner can read them."""
    write_state(place, os.getpid(), "127.0.0.1:8443", [StackPart("gateway", "ready", "127.0.0.1:8443", 7)])
    state = read_state(place)
    assert state is not None
    assert state["gateway"] == "127.0.0.1:8443"
    assert state["parts"][0]["name"] == "gateway"
    assert stat.S_IMODE((place / FOLDER / "state.json").stat().st_mode) == 0o600
    clear_state(place)
    assert read_state(place) is None


def test_a_state_that_cannot_be_written_is_reported_once(root: Path) -> None:
    """A full disk is reported once, and once more when the state can be written again."""
    state = StateFile(root)
    messages = [state.write("127.0.0.1:8443", []) for _ in range(3)]
    assert "read the last one: No such file or directory" in messages[0]
    assert messages[1:] == ["", ""]
    (root / FOLDER).mkdir(parents=True)
    messages = [state.write("127.0.0.1:8443", []) for _ in range(2)]
    assert messages == ["its state can be written again", ""]
    assert read_state(root) is not None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"owner": "x"}', '{"owner": 0}', '{"owner": -1}'])
def test_what_is_no_state_is_none(place: Path, text: str) -> None:
    """A file that was cut off, or of something else, stops nothing."""
    (place / FOLDER / "state.json").write_text(text)
    assert read_state(place) is None


def test_an_owner_that_has_ended_is_no_owner(place: Path) -> None:
    """Also where its file stayed: a stack that was killed does not keep the next one from starting."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    write_state(place, ended.pid, "127.0.0.1:8443", [])
    assert read_state(place) is None
    with pytest.raises(UsageError, match="none runs"):
        stop_running(place, 1.0)


def test_another_process_of_that_number_is_no_owner(place: Path) -> None:
    """Numbers of processes come again: one that began later is not asked to end."""
    write_state(place, os.getpid(), "127.0.0.1:8443", [])
    file = place / FOLDER / "state.json"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        file.write_text(file.read_text().replace(f'"owner": {os.getpid()}', f'"owner": {other.pid}'))
        assert read_state(place) is None
        other.communicate(b"\n")


def test_down_waits_until_the_owner_has_ended(place: Path) -> None:
    """It gets SIGTERM, and the call returns when it is gone."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as owner:
        write_state(place, owner.pid, "127.0.0.1:8443", [])
        eventually(lambda: read_state(place) is not None)
        stop_running(place, 60.0)
        assert owner.wait() == -signal.SIGTERM


def test_cores_are_divided_without_a_rest() -> None:
    """Each core belongs to one replica; more replicas than cores share them."""
    assert divided([0, 1], 2) == [[0], [1]]
    assert divided([0, 1, 2, 3, 4], 2) == [[0, 1], [2, 3, 4]]
    assert divided([3, 5], 3) == [[3], [5], [3]]
    assert divided([7], 1) == [[7]]
