"""A server that has PyTorch, for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import PROJECT
from tests.server.cookbook.conftest import answers, place
from tritonkit.serve.install import VENV_VARIABLE

__all__ = ["answers", "place"]

SERVER = PROJECT / ".venv-server-torch"


@pytest.fixture(scope="module", autouse=True)
def server_with_torch() -> Iterator[None]:
    """Every server that a test starts is the one of `make torch-server`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VENV_VARIABLE, str(SERVER))
        yield
