"""The GPU as the driver shows it."""

from __future__ import annotations

import subprocess

import pytest

from tritonkit.repository.optimize.gpu import find_gpu

pytestmark = pytest.mark.gpu


def test_the_driver_names_the_card_as_nvidia_smi_does() -> None:
    """`find_gpu` asks libcuda, which may order GPUs otherwise, and adds the slice of a divided one."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    found = find_gpu()
    assert found is not None
    assert any(found.startswith(line.strip()) for line in done.stdout.splitlines())
