"""`tritonkit profile` where nothing can be measured; `tests/server` has it on a real Triton."""

from __future__ import annotations

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit


def test_a_model_that_is_not_there_is_exit_code_2() -> None:
    """Before a server is started for it; the message names the nearest one."""
    message = failed(tritonkit("profile", "digit"), 2)
    assert "'digits'" in message
    assert "starting" not in message


def test_a_server_that_is_not_there_is_exit_code_5() -> None:
    """Port 1 is nobody's: the message names the address."""
    assert "127.0.0.1:1" in failed(tritonkit("profile", "digits", "--address", "127.0.0.1:1"), 5)
