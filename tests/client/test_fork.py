"""A client in a fork of its process: a clear error immediately, and nothing disturbed in the parent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import serving
from tests.client.forked_calls import SETTINGS
from tritonkit.testing import FakeModel

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("forked_calls.py")
VECTOR: Mapping[str, Any] = {"x": ("FP32", [3])}
AT_ONCE_S = 1.0
"""Generous: a fork of a busy process on a busy machine; a client's own waits are 3 s here."""


def _slowly(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    time.sleep(min(float(inputs["x"].max()), 0.1))
    return {"y": inputs["x"] * 2}


def _count(inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for number in range(int(inputs["x"][0])):
        yield {"y": [number]}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A real gRPC server of this process: the program under test is another one."""
    models = {
        "double": FakeModel(VECTOR, {"y": ("FP32", [3])}, _slowly),
        "count": FakeModel(VECTOR, {"y": ("FP32", [1])}, _count, max_batch_size=0),
    }
    with serving(models) as address:
        yield address


def _played(address: str, kind: str, setting: str) -> tuple[list[list[Any]], dict[str, Any]]:
    """The reports of the forks, and the parent's at the end."""
    command = [sys.executable, "-W", "ignore", str(PROGRAM), address, kind, setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    *forks, parent = map(json.loads, done.stdout.splitlines())
    return forks, parent


def _check(forks: list[list[Any]], parent: dict[str, Any]) -> None:
    for fork in forks:
        for call in fork:
            if call["name"].startswith(("close", "end")):
                assert call["error"] == "", call
            else:
                assert call["error"] == "UsageError", call
                assert "in a fork of it" in call["text"], call
            assert call["seconds"] < AT_ONCE_S, call
    assert parent == {"errors": [], "same connection": True}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_fork_is_told_at_once_and_its_parent_goes_on(address: str, setting: str) -> None:
    """Whatever the settings and the way to call: no wait, one clear error, silent ends; the parent's
    calls, streams and connection stay as they are."""
    forks, parent = _played(address, "threads", setting)
    assert len(forks) == 3
    _check(forks, parent)


@pytest.mark.parametrize("setting", ["plain", "all"])
def test_a_fork_of_a_loops_process(address: str, setting: str) -> None:
    """The same for the asyncio client, in a loop of the fork's own."""
    _check(*_played(address, "tasks", setting))
