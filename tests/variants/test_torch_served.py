"""PyTorch's compiled package without a server, and a server that has no PyTorch; tests/server/torch serves the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tests.parts import SERVER
from tests.repository.optimize.variants.torch_net import batch, expected, write_net
from tritonkit.errors import ServerStartError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve

HAS_TORCH = any(SERVER.glob("lib/python3.*/site-packages/torch"))


def test_a_compiled_package_gives_what_the_module_gives(write_model: WriteModel, root: Path) -> None:
    """At batch sizes and lengths other than those it was compiled with; its fused kernels are profiled."""
    spec = write_net(write_model, "torch-compile")
    (result,) = evaluate(spec, ["torch-compile"], BuildCache(root / "cache"))
    assert result.problem is None
    assert result.passed
    assert result.artifact is not None
    assert {"model.pt2", "model.py", "backend_model.py"} <= set(result.artifact.files)
    runner = RUNTIMES["torch"](result.artifact.folder, 1, "here")
    for count, length in ((1, 2), (5, 64), (16, 7)):
        given = batch(count, length)
        np.testing.assert_allclose(runner.run(given)["y"], expected(**given), atol=1e-5)
    assert any("fused" in operator.name for operator in runner.profile(given, 3))


@pytest.mark.needs("triton")
@pytest.mark.skipif(HAS_TORCH, reason="torch is in the server's environment")
def test_without_torch_the_load_error_says_what_to_install(write_model: WriteModel, root: Path) -> None:
    """The server does not start with a traceback but with a command."""
    write_net(write_model, "torchscript")
    repository = build_repository(root, ("net",), out=root / "repository").path
    with (
        pytest.raises(ServerStartError, match=r"pip install -r .*requirements-torch\.txt"),
        serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=root),
    ):
        pass
