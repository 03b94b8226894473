"""Fixtures for the tests that talk to a real Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.models import ModelText, write_repository
from tritonkit.render import build_repository
from tritonkit.serve import Endpoint, serve

WriteServerModels = Callable[..., Path]


@pytest.fixture
def write_server_models(tmp_path: Path) -> WriteServerModels:
    """Write a model repository of small Python models; gives its folder."""

    def write(**models: ModelText) -> Path:
        return write_repository(tmp_path / "model_repository", models)

    return write


@pytest.fixture(scope="session")
def digits_server(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The shipped models, really built, served on free ports for the whole session."""
    repository = build_repository(
        project, ("digits", "sentences"), out=tmp_path_factory.mktemp("shipped") / "repository"
    )
    with serve(repository.path, grpc_port=0, http_port=0, metrics_port=0, root=project) as endpoint:
        yield endpoint
