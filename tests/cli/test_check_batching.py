"""`tritonkit check-batching` where nothing can be checked; `tests/server` has it on a real Triton."""

from __future__ import annotations

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit

NOBODY = "127.0.0.1:1"


def test_a_server_that_is_not_there_is_exit_code_5() -> None:
    """One message with the address."""
    assert NOBODY in failed(tritonkit("check-batching", "m", "--address", NOBODY), 5)
