"""The room as a whole: what it exports, what importing it costs, how its types read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tritonkit.client

PROJECT = Path(__file__).parents[2]
USER_CODE = ["tests/client/typing_api.py", *map(str, (PROJECT / "examples").glob("*.py"))]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run this Python in the project's folder."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        # Else pyright asks the package index whether it is the newest.
        env=os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_everything_exported_is_there() -> None:
    """Each name in `__all__` is there once, exists and has a docstring."""
    names = tritonkit.client.__all__
    assert len(names) == len(set(names))
    assert all(getattr(tritonkit.client, name).__doc__ for name in names)


def test_importing_the_client_loads_nothing_optional() -> None:
    """gRPC, Redis, metrics and tracing are loaded by a client that uses them, not by the import."""
    program = "import sys; from tritonkit.client import Client; print(*{name.split('.')[0] for name in sys.modules})"
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "numpy" in loaded
    assert not loaded & {
        "cachetools",
        "cuda",
        "google",
        "grpc",
        "opentelemetry",
        "prometheus_client",
        "redis",
        "tritonclient",
    }


def test_a_client_that_uses_nothing_optional_needs_none_of_it() -> None:
    """Making a client, with batching and limits, loads no package of an extra either."""
    program = """
import sys
from tritonkit.client import Adaptive, Client, Hedge, Limit
with Client("127.0.0.1:1", batching=Adaptive(), limit=Limit(), hedge=Hedge(), shared_memory=True):
    print(*{name.split(".")[0] for name in sys.modules})
"""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & {"cachetools", "cuda", "grpc", "opentelemetry", "prometheus_client", "redis"}


def test_the_types_read_as_a_user_writes_them() -> None:
    """A strict check of a user's program and of the examples passes; its mistakes are seen."""
    done = run("-m", "mypy", "--strict", *USER_CODE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_editors_read_the_types_alike() -> None:
    """Pyright, the checker of many editors, agrees, strictly where the file says so."""
    done = run("-m", "pyright", "--pythonpath", sys.executable, *USER_CODE)
    assert done.returncode == 0, done.stdout + done.stderr
