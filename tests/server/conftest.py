"""Fixtures for the tests that talk to a real Triton."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import InferenceServerClient

from tests.fakecuda import FakeCuda
from tests.native.guarded import library
from tests.server.models import VECTOR, ModelText, write_repository
from tests.server.releases import Project
from tests.server.sanitizers import SANITIZE
from tests.server.sharing import SharedBackends, SharedServer, start_backends
from tests.waiting import eventually
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


CACHED = ModelText(f'backend: "python"\n{VECTOR}response_cache {{ enable: true }}\n')
"""An echo with a response cache, which a server has only if a model of its start asks for one."""


@pytest.fixture(scope="session")
def shared(project: Path, shipped_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A server for the whole session: the shipped models, `kept`, and those that modules add."""
    repository = tmp_path_factory.mktemp("shared") / "model_repository"
    shutil.copytree(shipped_repository, repository, copy_function=os.link)
    write_repository(repository, {"kept": CACHED})
    free = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}
    with serve(repository, **free, root=project, http=True, finalize_timeout_s=0) as endpoint:
        yield SharedServer(endpoint, repository)


@pytest.fixture(scope="session")
def native_server(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBackends]:
    """A tritonserver with the native backends for the whole session."""
    with start_backends(tmp_path_factory.mktemp("native_server"), native) as server:
        yield server


@pytest.fixture(scope="session")
def cuda_server(
    native: Path, compiled_fake_cuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedBackends]:
    """A tritonserver with the native backends and a GPU, where a model is whose configuration names no kind."""
    folder = tmp_path_factory.mktemp("cuda_server")
    fake = compiled_fake_cuda.for_server(folder)
    with start_backends(folder, native, fake) as server:
        yield server
    assert fake.counters()["faults"] == 0
    assert fake.left_over() == {}


@pytest.fixture(scope="session")
def stand_in_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBackends]:
    """A tritonserver with the backends in Python for the whole session."""
    with start_backends(tmp_path_factory.mktemp("stand_in_server"), None) as server:
        yield server


@pytest.fixture(scope="session")
def digits_server(shared: SharedServer) -> Endpoint:
    """The session's server, which has the shipped models."""
    return shared.endpoint


@pytest.fixture
def client(triton: Any) -> Iterator[InferenceServerClient]:
    """A raw client of the Triton that a module has of its own."""
    with InferenceServerClient(triton.address) as client:
        yield client


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Two replicas of a model that adds 1."""
    made = Project(tmp_path_factory.mktemp("release"))
    yield made
    made.stop()


@pytest.fixture
def place(released: Project) -> Iterator[Project]:
    """The same, serving what adds 1 before and after each test."""
    assert released.answer() == 1.0
    yield released
    released.write("y = x + 1")
    eventually(lambda: released.candidates() == [], "no candidate any more")
    assert released.answer() == 1.0
    assert "y = x + 1\n" in released.published()
