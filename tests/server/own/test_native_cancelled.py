"""Requests that are cancelled while they wait for a native backend, inside a real Triton."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc

from tests.server.onnx_models import loop
from tests.server.raw import Client, Running, ask, executions, start_triton
from tests.waiting import PATIENCE_S, eventually, standstill

WHILE, NEVER = 4_000_000, 1 << 40
"""Rounds of a loop that takes some seconds, and of one that nobody waits for."""
BEGUN_S = 0.2
"""Processor time from which the loop has begun: a server without work takes hardly any."""


@pytest.fixture
def triton(native: Path, tmp_path: Path) -> Iterator[Running]:
    """A server of the loop alone, whose one instance is busy while other requests wait."""
    loop(tmp_path / "repository" / "loop", more="instance_group { count: 1 kind: KIND_CPU }\n")
    with start_triton(tmp_path / "repository", tmp_path, native) as running:
        yield running


def processor_s(triton: Running) -> float:
    """Processor time of the server so far."""
    fields = Path(f"/proc/{triton.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_a_cancelled_request_is_not_run(client: Client, triton: Running) -> None:
    """Requests that were cancelled while they waited are not counted as executions."""
    answers: Queue[tuple[Any, Any]] = Queue()

    def send(rounds: int) -> Any:
        tensor = grpc.InferInput("x", [1], "INT64")
        tensor.set_data_from_numpy(np.array([rounds]))
        return client.async_infer("loop", [tensor], lambda result, error: answers.put((result, error)))

    assert ask(client, "loop", x=np.array([3]))["y"].tolist() == [3]
    before, idle_s = standstill(lambda: executions(client, "loop")), processor_s(triton)
    send(WHILE)
    eventually(lambda: processor_s(triton) > idle_s + BEGUN_S, "the loop has begun")
    waiting = [send(NEVER) for _ in range(3)]
    for call in waiting:
        call.cancel()
    results = [answers.get(timeout=PATIENCE_S) for _ in range(4)]
    assert sum(error is None for _, error in results) == 1
    # Had one of them run, this would never be answered.
    assert ask(client, "loop", x=np.array([5]))["y"].tolist() == [5]
    # Triton counts a run after its answer has left.
    eventually(lambda: executions(client, "loop") - before == 2, "two runs counted")
