"""Flags of tritonserver's that a user adds, with the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.models import ModelText
from tritonkit.client import Client
from tritonkit.errors import ServerStartError, UsageError
from tritonkit.serve import serve

FREE = {"grpc_port": 0, "metrics_port": 0}


def test_triton_takes_a_user_s_flags(write_server_models: Any) -> None:
    """All that `python -m bench flags` tries are accepted together: the server is ready and answers."""
    flags: dict[str, str | int] = {
        "http-thread-count": 2,
        "grpc-infer-allocation-pool-size": 128,
        "buffer-manager-thread-count": 2,
        "allow-cpu-metrics": "false",
        "metrics-interval-ms": 10000,
    }
    with serve(write_server_models(echo=ModelText()), **FREE, triton_flags=flags) as endpoint:
        arguments = Path(f"/proc/{endpoint.pid}/cmdline").read_text().split("\0")
        assert {f"--{name}={value}" for name, value in flags.items()} <= set(arguments)
        with Client(endpoint.grpc) as client:
            assert client.is_ready("echo")


@pytest.mark.parametrize("name", ["grpc-restricted-protocol", "model-repository", "load-model"])
def test_a_flag_that_tritonkit_sets_is_refused(write_server_models: Any, name: str) -> None:
    """A flag cannot open what tritonkit keeps closed: the error comes before anything starts."""
    with (
        pytest.raises(UsageError, match=f"{name}.*sets itself"),
        serve(write_server_models(echo=ModelText()), **FREE, triton_flags={name: "x"}),
    ):
        pass


def test_a_flag_that_triton_does_not_know_is_told(write_server_models: Any) -> None:
    """The start fails, and the log that the error names has Triton's own words."""
    repository = write_server_models(echo=ModelText())
    with (
        pytest.raises(ServerStartError, match="exit code 1"),
        serve(repository, **FREE, triton_flags={"no-such-flag": 1}),
    ):
        pass
    (log,) = repository.parent.glob(".tritonkit/run/*/server.log")
    assert "no-such-flag" in log.read_text()
