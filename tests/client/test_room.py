"""The room as a whole: what it exports, what importing it costs, how its types read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tritonkit.client

HERE = Path(__file__).parent


def test_everything_exported_is_there() -> None:
    """`__all__` is sorted, and each name in it exists and has a docstring."""
    names = tritonkit.client.__all__
    assert names == sorted(names)
    assert all(getattr(tritonkit.client, name).__doc__ for name in names)


def test_importing_the_client_loads_no_grpc() -> None:
    """gRPC is loaded when a client connects, not when the room is imported."""
    program = "import sys, tritonkit.client; sys.exit('grpc' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60)
    assert done.returncode == 0


def test_the_types_read_as_a_user_writes_them() -> None:
    """A strict type check of a user's program passes."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(HERE / "typing_api.py")],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=HERE.parents[1],
    )
    assert done.returncode == 0, done.stdout + done.stderr
