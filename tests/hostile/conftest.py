"""A server as `tritonkit serve` runs it, for tests that wish it ill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

MIXED = """backend: "python"
input { name: "x" data_type: TYPE_INT8 dims: [4, -1] }
input { name: "flags" data_type: TYPE_BOOL dims: [2] optional: true }
output { name: "y" data_type: TYPE_INT8 dims: [4, -1] }
"""
SEQUENCE = WIDE + "sequence_batching { max_sequence_idle_microseconds: 1000000 direct { } }\n"
QUEUED = """dynamic_batching {
  max_queue_delay_microseconds: 500
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { allow_timeout_override: true max_queue_size: 64 timeout_action: REJECT }
}
"""
BOTH = """platform: "ensemble"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [-1] }
output { name: "y" data_type: TYPE_FP32 dims: [-1] }
ensemble_scheduling {
  step { model_name: "wide" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "z" } }
  step { model_name: "queued" model_version: -1
    input_map { key: "x" value: "z" } output_map { key: "y" value: "y" } }
}
"""
EVERY_KIND = {
    "wide": ModelText(WIDE, COPY),
    "text": ModelText(TEXT, COPY),
    "mixed": ModelText(MIXED, COPY),
    "sequence": ModelText(SEQUENCE, COPY),
    "queued": ModelText(WIDE + QUEUED, COPY),
    "cached": ModelText(WIDE + "response_cache { enable: true }\n", COPY),
    "both": ModelText(BOTH, None),
}
"""Batched, of bytes, unbatched with an optional input, stateful, queued by priority, cached, an ensemble."""


@dataclass
class Target:
    """A running server, what it said, and the folder it runs in."""

    endpoint: Endpoint
    server: Server
    repository: Path
    events: list[ServeEvent] = field(default_factory=list)

    @property
    def run_folder(self) -> Path:
        """The folder of its sockets, its key and its log."""
        return self.endpoint.log.parent

    def of(self, kind: str) -> list[ServeEvent]:
        """The events of one kind."""
        return [event for event in self.events if event.kind == kind]


@contextmanager
def serving(project: Path, folder: Path, **options: Any) -> Iterator[Target]:
    """Models of every kind that copy, served from a folder."""
    repository = write_repository(folder / "model_repository", EVERY_KIND)
    events: list[ServeEvent] = []
    server = Server(
        repository,
        grpc_port=0,
        http_port=0,
        metrics_port=0,
        root=project,
        finalize_timeout_s=0,
        on_event=events.append,
        **options,
    )
    with server as endpoint:
        yield Target(endpoint, server, repository, events)


@pytest.fixture(scope="module")
def target(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Served with the defaults."""
    with serving(project, tmp_path_factory.mktemp("hostile")) as served:
        yield served


@pytest.fixture(scope="module")
def rest_target(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Served with the REST proxy."""
    with serving(project, tmp_path_factory.mktemp("hostile"), http=True) as served:
        yield served
