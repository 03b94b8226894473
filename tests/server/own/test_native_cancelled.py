"""Requests that are cancelled while they wait for a native backend, inside a real Triton."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc

from tests.server.onnx_models import loop
from tests.server.raw import Client, Running, ask, executions, start_triton
from tests.waiting import eventually

WHILE, NEVER = 2_000_000, 1 << 40
"""Rounds of a loop that takes some seconds, and of one that nobody waits for."""


@pytest.fixture
def triton(native: Path, tmp_path: Path) -> Iterator[Running]:
    """A server of the loop alone, whose one instance is busy while other requests wait."""
    loop(tmp_path / "repository" / "loop", more="instance_group { count: 1 kind: KIND_CPU }\n")
    with start_triton(tmp_path / "repository", tmp_path, native) as running:
        yield running


def test_a_cancelled_request_is_not_run(client: Client) -> None:
    """Requests that were cancelled while they waited are not counted as executions."""
    answers: Queue[tuple[Any, Any]] = Queue()

    def send(rounds: int) -> Any:
        tensor = grpc.InferInput("x", [1], "INT64")
        tensor.set_data_from_numpy(np.array([rounds]))
        return client.async_infer("loop", [tensor], lambda result, error: answers.put((result, error)))

    assert ask(client, "loop", x=np.array([3]))["y"].tolist() == [3]
    before = executions(client, "loop")
    send(WHILE)
    waiting = [send(NEVER) for _ in range(3)]
    for call in waiting:
        call.cancel()
    results = [answers.get(timeout=60) for _ in range(4)]
    assert sum(error is None for _, error in results) == 1
    # Had one of them run, this would never be answered.
    assert ask(client, "loop", x=np.array([5]))["y"].tolist() == [5]
    # Triton counts a run after its answer has left.
    eventually(lambda: executions(client, "loop") - before == 2, "two runs counted")
