"""Gauges added to Triton's metrics; tests/server/observe/test_observe.py has them on a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.parts import program
from tritonkit.serve.core.gauges import Gauges
from tritonkit.serve.core.stub_watch import StubWatch
from tritonkit.serve.core.unix_http import Admin

TRITON = 'nv_inference_request_success{model="net",version="1"} 5\n'


def values(text: str) -> dict[str, float]:
    """Samples by name and labels."""
    return {name: float(value) for name, value in re.findall(r"^(\w\S*) (\S+)$", text, re.M)}


def test_free_space_is_that_of_the_file_systems(tmp_path: Path) -> None:
    """Shared memory and the repository's disk are measured; the rest is missing if the server does not answer."""
    gauges = values(Gauges(tmp_path, tmp_path, tmp_path).text(TRITON))
    size = os.statvfs(tmp_path)
    for name in ("disk", "shared_memory"):
        assert gauges[f"tritonkit_{name}_size_bytes"] == size.f_blocks * size.f_frsize
        assert 0 < gauges[f"tritonkit_{name}_free_bytes"] <= gauges[f"tritonkit_{name}_size_bytes"]
    assert len(gauges) == 4


def test_a_folder_that_is_gone_is_left_out(tmp_path: Path) -> None:
    """The other figures come."""
    gauges = values(Gauges(tmp_path, tmp_path / "gone", tmp_path).text(""))
    assert set(gauges) == {"tritonkit_shared_memory_free_bytes", "tritonkit_shared_memory_size_bytes"}


@pytest.mark.needs("promtool")
def test_prometheus_reads_the_text(tmp_path: Path) -> None:
    """Its own tool finds no fault in names, types and help."""
    gauges = Gauges(tmp_path, tmp_path)
    gauges.stubs = StubWatch("tritonkit_nobody_", Admin(tmp_path, ""), {}, lambda *_: None)
    tool = program("promtool")
    assert tool is not None
    done = subprocess.run(
        [tool, "check", "metrics"], input=gauges.text(TRITON), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
