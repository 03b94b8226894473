"""Libraries of custom operators in a configuration: where each target's server finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.repository.render.cases import Case, make_case
from tritonkit.repository.modelspec.base import Target

LIBRARIES = ("liba.so", "libb.so")


def net(root: Path, target: Target, **serving: Any) -> Case:
    """A network with two libraries, on few and on many cores."""
    network = {"onnx": "model.onnx", "op_library": ["liba.so", "parts/libb.so"]}
    facts = {
        "model": {"name": "net", "network": network, "serving": serving},
        "signature": {"inputs": {"x": ["FP32", [4]]}, "outputs": {"y": ["FP32", [4]]}},
        "files": {"liba.so": "", "parts/libb.so": ""},
        "file": ["model.onnx", *LIBRARIES],
    }
    return make_case("net", facts, root, target)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_tritonkits_backends_find_them_next_to_the_network(tmp_path: Path, target: Target) -> None:
    """Also in the configurations for fewer cores."""
    (plan,) = net(tmp_path, target).plans()
    assert set(LIBRARIES) < set(plan.version_files)
    for one in (plan, *plan.fewer_cores.values()):
        assert one.model_operations.op_library_filename == LIBRARIES


def test_nvidias_backend_gets_paths_without_a_version(tmp_path: Path) -> None:
    """It hands them to the system's loader, so a note says where the repository has to lie."""
    (plan,) = net(tmp_path, "nvidia").plans()
    assert plan.model_operations.op_library_filename == tuple(f"/models/net/{name}" for name in LIBRARIES)
    assert set(plan.version_files) == {"model.onnx"}
    assert set(plan.model_files) == set(LIBRARIES)
    assert any("the repository lies at /models" in note for note in plan.notes)


@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_the_specs_own_paths_stay(tmp_path: Path, target: Target) -> None:
    """They name libraries where the server has them."""
    (plan,) = net(tmp_path, target, model_operations={"op_library_filename": ["/opt/liba.so"]}).plans()
    assert plan.model_operations.op_library_filename == ("/opt/liba.so",)
    assert not any("/models" in note for note in plan.notes)
