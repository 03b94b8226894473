"""`tritonkit diagnose` where nothing can be looked at; `tests/server` has it on a real Triton."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.repository.optimize.checkpoints import write_checkpoint

NOBODY = "127.0.0.1:1"


def test_a_model_that_is_not_there_is_exit_code_2() -> None:
    """Before a server is started for it; the message names the nearest one."""
    message = failed(tritonkit("diagnose", "digit"), 2)
    assert "'digits'" in message
    assert "starting" not in message


@pytest.mark.parametrize("more", [(), ("--load", "5"), ("--load", "5", "--address", NOBODY)])
def test_a_language_model_has_no_load_of_ours(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Nothing is started, and the message says what to do."""
    folder = tmp_path / "models" / "chat"
    write_checkpoint(folder / "checkpoint")
    (folder / "model.yaml").write_text("name: chat\nnetwork: {llm: {checkpoint: checkpoint}}\n")
    message = failed(tritonkit("diagnose", "chat", *more, "--root", str(tmp_path)), 2)
    assert "a language model" in message
    assert "diagnose chat --address" in message


def test_a_server_that_is_not_there_is_exit_code_5() -> None:
    """Port 1 is nobody's: one message with the address, with a model and without; one object for a program."""
    assert NOBODY in failed(tritonkit("diagnose", "--address", NOBODY), 5)
    assert NOBODY in failed(tritonkit("diagnose", "digits", "--address", NOBODY), 5)
    message = failed(tritonkit("diagnose", "--address", NOBODY, "--json"), 5)
    assert json.loads(message)["error"] == "ServerUnavailable"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "neither a MODEL nor --address"),
        (("--address", NOBODY, "--load", "5"), "no MODEL"),
        (("--address", "nowhere"), "host:port"),
        (("--address", f"{NOBODY},"), "host:port"),
        (("--address", NOBODY, "--metrics", "x"), "--metrics"),
        (("--address", NOBODY, "--metrics", f"{NOBODY},{NOBODY}"), "each of 1 servers"),
        (("--address", NOBODY, "--pid", "x"), "each of 1 servers"),
        (("--address", NOBODY, "--pid", str(2**30)), "no process"),
        (("--address", NOBODY, "--duration", "soon"), "--duration"),
        (("--address", NOBODY, "--duration", "1ms"), "at least 1.5s"),
        (("--address", NOBODY, "--target", "0ms"), "--target"),
    ],
)
def test_options_that_make_no_sense_are_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    """Each with a message of its own."""
    assert message in failed(tritonkit("diagnose", *arguments), 2)
