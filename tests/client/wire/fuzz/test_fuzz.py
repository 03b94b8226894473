"""A short run of the fuzzer; a long one is `python -m tests.client.wire.fuzz --frames 10_000_000`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("seed", [0, 1])
def test_mutated_frames_break_no_promise(seed: int) -> None:
    """No hang, no error that is not ours, nothing that piles up; every way to end comes up.

    In a process of its own, because what is left of other tests would count as a leak.
    """
    command = [sys.executable, "-m", "tests.client.wire.fuzz", "--frames", "30000", "--seed", str(seed), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    ways = {name.partition(":")[0] for name in counts}
    assert ways >= {"connection", "call", "frames", "mutated frames"}
    assert counts["call: answered"] > 0
    assert counts["connection: read to its end"] > 0
    assert sum("broke" in name for name in counts) >= 10
