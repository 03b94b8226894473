"""Options of a load: what they come to, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from loadtest.settings import Settings, read_settings
from tritonkit.errors import TritonkitError

KNOWN = ["digits", "sentences"]


def read(project: Path, host: str | None = None, **changes: str | int) -> Settings:
    """The settings of a run with these options, the others as they are by default."""
    options = {
        "http_host": "",
        "models": "digits,sentences",
        "weights": "",
        "think_time": "100ms",
        "thresholds": str(project / "loadtest" / "thresholds.yaml"),
        "tier": "",
    }
    return read_settings(SimpleNamespace(**options | changes), host, KNOWN)


def test_defaults_are_a_server_on_this_machine(project: Path) -> None:
    """The defaults: Triton's own ports, equal weights of all models, a pause of 100 ms, the limits of the file."""
    settings = read(project)
    assert (settings.address, settings.http_address) == ("127.0.0.1:8001", "127.0.0.1:8000")
    assert settings.weights == {"digits": 1, "sentences": 1}
    assert settings.think_time_s == 0.1
    assert settings.limits["digits"].p95_ms == 100


def test_what_is_given_goes_before_the_defaults(project: Path) -> None:
    """Addresses with and without their scheme, weights of some models, no pause, one tier for all."""
    settings = read(
        project,
        "grpc://triton:9001",
        http_host="http://triton:9000/",
        weights="digits=3",
        think_time="0ms",
        tier="interactive",
    )
    assert (settings.address, settings.http_address) == ("triton:9001", "triton:9000")
    assert settings.weights == {"digits": 3, "sentences": 1}
    assert settings.think_time_s == 0
    assert {limits.p95_ms for limits in settings.limits.values()} == {10}
    assert read(project, models=" sentences ").weights == {"sentences": 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"models": "digts"}, "'digits'"),
        ({"models": ","}, "digits, sentences"),
        ({"weights": "digits=0"}, "1 to 1000"),
        ({"weights": "digits"}, "1 to 1000"),
        ({"weights": "sentences=2", "models": "digits"}, "sentences"),
        ({"think_time": "0.1"}, "us, ms, s"),
        ({"tier": "quick"}, "interactive"),
        ({"sequence_calls": 0}, "1 or more calls"),
        ({"thresholds": "/no/such.yaml"}, "no such file"),
    ],
)
def test_what_cannot_be_is_refused(project: Path, options: dict[str, str | int], words: str) -> None:
    """With exit code 2, and words that say what there is."""
    with pytest.raises(TritonkitError) as caught:
        read(project, **options)
    assert caught.value.exit_code == 2
    assert words in str(caught.value)
