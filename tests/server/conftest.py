"""Fixtures for the tests that talk to a real Triton."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import InferenceServerClient

from tests.native.guarded import library
from tests.server.models import ModelText, write_repository
from tests.server.sanitizers import SANITIZE
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import Endpoint, serve

WriteServerModels = Callable[..., Path]


@pytest.fixture
def write_server_models(tmp_path: Path) -> WriteServerModels:
    """Write a model repository of small Python models; gives its folder."""

    def write(**models: ModelText) -> Path:
        return write_repository(tmp_path / "model_repository", models)

    return write


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The file in which a model notes what it begins (`models.noting`)."""
    return tmp_path / "begun"


@pytest.fixture(scope="session")
def shipped_repository(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped models, really built."""
    folder = tmp_path_factory.mktemp("shipped") / "repository"
    return build_repository(project, ("digits", "sentences"), out=folder).path


@pytest.fixture(scope="session")
def native(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the native backends and steps, compiled from today's sources."""
    folder = tmp_path_factory.mktemp("native")
    for name in ("onnxruntime", "openvino", "python"):
        made = library(project, name, folder, SANITIZE)
        if made.parent != folder:
            shutil.copy(made, folder)
    return folder


@pytest.fixture(scope="session")
def digits_server(project: Path, shipped_repository: Path) -> Iterator[Endpoint]:
    """The shipped models, served on free ports for the whole session."""
    with serve(shipped_repository, grpc_port=0, http_port=0, metrics_port=0, root=project, http=True) as endpoint:
        yield endpoint


@pytest.fixture
def client(triton: Any) -> Iterator[InferenceServerClient]:
    """A raw client of the Triton that a module has of its own."""
    with InferenceServerClient(triton.address) as client:
        yield client
