"""Files of PyTorch as they are, asked by many callers at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.conftest import PROJECT
from tests.repository.optimize.ready_files import SCRIPT, expected, program, requests, script
from tests.waiting import PATIENCE_S
from tritonkit.client import Client
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish.integrity import verify
from tritonkit.serve import serve

CALLERS = 16


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a TorchScript file and a program of torch.export."""
    root = tmp_path_factory.mktemp("project")
    (root / "python_backends").symlink_to(PROJECT / "python_backends")
    models = root / "models"
    for name in ("script", "program"):
        (models / name).mkdir(parents=True)
    (models / "script" / "model.pt").write_bytes(script())
    (models / "script" / "model.yaml").write_text(SCRIPT.replace("name: net", "name: script"))
    (models / "program" / "net.pt2").write_bytes(program())
    outputs = "{y: {dtype: FP32, shape: [3]}, total: {dtype: FP32, shape: []}}"
    text = f"{{name: program, network: {{file: net.pt2, outputs: {outputs}}}}}"
    (models / "program" / "model.yaml").write_text(text)
    repository = build_repository(root).path
    assert not verify(repository)
    with (
        serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=root) as endpoint,
        Client(endpoint.grpc, timeout_s=PATIENCE_S) as client,
    ):
        yield client


@pytest.mark.parametrize("name", ["script", "program"])
def test_many_callers_get_what_the_library_gives(client: Client, random: np.random.Generator, name: str) -> None:
    """Whatever batches Triton made of them."""
    model, given = client.model(name), requests(random)
    with ThreadPoolExecutor(CALLERS) as callers:
        replies = list(callers.map(lambda inputs: model.predict(inputs=inputs), given))
    for inputs, reply in zip(given, replies, strict=True):
        y, total = expected(**inputs)
        np.testing.assert_allclose(reply["y"], y, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.ravel(reply["total"]), total, rtol=1e-5, atol=1e-5)
