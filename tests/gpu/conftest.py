"""The environment of `make gpu`, where it was run and no other is named."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.parts import PROJECT
from tritonkit.serve.install import VENV_VARIABLE

MADE = PROJECT / ".tritonkit" / "gpu" / "server"


@pytest.fixture(scope="session", autouse=True)
def gpu_environment() -> Iterator[None]:
    """Serve and judge with it: the environment of `make setup` is for CPUs."""
    with pytest.MonkeyPatch.context() as patch:
        if VENV_VARIABLE not in os.environ and (MADE / "bin" / "python").is_file():
            patch.setenv(VENV_VARIABLE, str(MADE))
        yield
