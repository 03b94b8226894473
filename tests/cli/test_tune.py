"""Options of `tritonkit tune` that do not go together: one message, and no server is asked."""

from __future__ import annotations

import pytest

from tests.cli.running import failed, tritonkit_here
from tritonkit.cli.options import seconds
from tritonkit.errors import UsageError

TUNE = ("tune", "digits", "--slo", "p99=50ms")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--address", "127.0.0.1:1", "--variants", "spec"], "the variant served at the address"),
        (["--address", "elsewhere:8001"], "do: --cores N"),
        (["--address", "a:8001,b:8001"], "address a:8001,b:8001: no host and port"),
        (["--address", "http://a:8000"], "the scheme http://"),
        (["--address", "127.0.0.1:1", "--objective", "cost"], "processor time of a running server"),
        (["--cores", "4"], "--cores: no --address"),
    ],
)
def test_one_message_and_exit_code_2(options: list[str], message: str) -> None:
    """No traceback."""
    assert message in failed(tritonkit_here(*TUNE, *options), 2)


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("10m", 600.0), ("1.5h", 5400.0), ("1.5m", 90.0), ("2min", 120.0), ("50ms", 0.05), ("3s", 3.0)],
)
def test_times_are_read_as_people_write_them(text: str, expected_s: float) -> None:
    """Minutes by either name."""
    assert seconds("--budget", text) == expected_s


@pytest.mark.parametrize("text", ["m", "10", "-1m", "10mm", "1e3m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With the option's name."""
    with pytest.raises(UsageError, match="--budget"):
        seconds("--budget", text)
