"""A server as `tritonkit serve` runs it, for tests that wish it ill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.server.models import ModelText, write_repository
from tritonkit.serve import Endpoint, ServeEvent, Server

WIDE = """backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [-1] }
output { name: "y" data_type: TYPE_FP32 dims: [-1] }
"""
TEXT = """backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_STRING dims: [1] }
output { name: "y" data_type: TYPE_STRING dims: [1] }
"""
COPY = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in given]
"""


@dataclass
class Target:
    """A running server, what it said, and the folder it runs in."""

    endpoint: Endpoint
    server: Server
    repository: Path
    events: list[ServeEvent] = field(default_factory=list)

    @property
    def run_folder(self) -> Path:
        """Where its sockets, its key and its log are."""
        return self.endpoint.log.parent

    def of(self, kind: str) -> list[ServeEvent]:
        """The events of one kind."""
        return [event for event in self.events if event.kind == kind]


@pytest.fixture(scope="module")
def target(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Two models that copy, one of numbers and one of bytes, served with the defaults."""
    repository = write_repository(
        tmp_path_factory.mktemp("hostile") / "model_repository",
        {"wide": ModelText(WIDE, COPY), "text": ModelText(TEXT, COPY)},
    )
    events: list[ServeEvent] = []
    server = Server(
        repository, grpc_port=0, http_port=0, metrics_port=0, root=project, finalize_timeout_s=0,
        on_event=events.append,
    )  # fmt: skip
    with server as endpoint:
        yield Target(endpoint, server, repository, events)
