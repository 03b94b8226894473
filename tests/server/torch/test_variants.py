"""The PyTorch variants from a spec to answers of a real Triton; torch-compile needs g++ and half a minute."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.variants.torch_net import batch, expected, write_net
from tritonkit.client import Client
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve


@pytest.mark.parametrize("variant", ["torchscript", "torch-export", "torch-compile"])
def test_answers_through_triton(write_model: WriteModel, root: Path, variant: str) -> None:
    """Alone, in batches, and merged from callers whose lengths differ."""
    write_net(write_model, variant)
    repository = build_repository(root, ("net",), out=root / "repository").path
    with (
        serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=root) as endpoint,
        Client(endpoint.grpc) as client,
        ThreadPoolExecutor(8) as callers,
    ):
        net = client.model("net")
        given = [batch(1 + turn % 3, 5 + turn % 2) for turn in range(24)]
        replies = list(callers.map(lambda inputs: net.predict(**inputs), given))
    for inputs, reply in zip(given, replies, strict=True):
        np.testing.assert_allclose(reply["y"], expected(**inputs), atol=1e-5)
        total = expected(**inputs).sum((1, 2))
        np.testing.assert_allclose(np.ravel(reply["total"]), total, rtol=1e-5)
