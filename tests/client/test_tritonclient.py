"""The parts of tritonclient that the client uses, in the installed version."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest
import tritonclient

from tritonkit.client.wire.messages import schema
from tritonkit.client.wire.transport import Method


def test_the_version_is_the_one_asked_for() -> None:
    """If TRITONCLIENT names a version, as in `make oldest`, that version is imported."""
    release = os.environ.get("TRITONCLIENT")
    if release is None:
        pytest.skip("any version will do")
    assert f"{version('tritonclient')}.".startswith(f"{release}.")
    folder = Path(tritonclient.__file__).parents[1]
    assert list(folder.glob(f"tritonclient-{release}*.dist-info"))


def test_every_call_has_its_messages() -> None:
    """The schema knows the request and the response of each call, and both kinds of stream message."""
    names = [f"{call}{part}" for call in get_args(Method) for part in ("Request", "Response")]
    assert [name for name in [*names, "ModelStreamInferResponse"] if not hasattr(schema(), name)] == []


def test_it_warns_of_nothing_when_it_is_loaded() -> None:
    """The generated classes go with the installed protobuf, without a warning."""
    program = "from tritonkit.client.wire.messages import schema; schema()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
