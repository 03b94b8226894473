"""The GPU as the driver shows it."""

from __future__ import annotations

import subprocess

import pytest

from tritonkit.repository.optimize.gpu import find_gpu

pytestmark = pytest.mark.gpu


def test_the_driver_names_the_card_as_nvidia_smi_does() -> None:
    """`find_gpu` asks libcuda; the first line of nvidia-smi's list is the same card."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    assert find_gpu() == done.stdout.splitlines()[0].strip()
