"""A rendered tree, and what `kubectl kustomize` makes of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server.models import ModelText, write_repository
from tritonkit.operate.deploy import Values, read_facts, render_tree, write_tree

Resource = dict[str, Any]
RELEASED = {
    "canary": {"models": {"image": "tritonkit/models:2"}, "weight": 30},
    "gateway_api": {
        "gateway": "public",
        "namespace": "gateways",
        "grpc_host": "grpc.example.org",
        "http_host": "rest.example.org",
    },
}
"""Values that switch on optional parts."""


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models."""
    folder = tmp_path_factory.mktemp("kubernetes") / "model_repository"
    return write_repository(folder, {"a": ModelText(), "b": ModelText()})


@pytest.fixture(scope="session")
def render(repository: Path) -> Callable[..., dict[str, str]]:
    """The tree for keys of values.yaml."""

    def rendered(**keys: Any) -> dict[str, str]:
        values = Values.model_validate(keys)
        return render_tree(values, read_facts(repository, values))

    return rendered


@pytest.fixture(scope="session")
def kustomize(
    render: Callable[..., dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[Resource]]:
    """The resources of an overlay of the default tree; `canary` is the overlay `gateway` of one with a canary and a
    Gateway, as `gateway-api` is."""
    folder, more = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("canary")
    write_tree(folder, render())
    write_tree(more, render(**RELEASED))
    special = {"canary": more / "overlays/gateway", "gateway-api": more / "overlays/gateway-api"}

    @cache
    def built(overlay: str) -> list[Resource]:
        done = subprocess.run(
            ["kubectl", "kustomize", str(special.get(overlay, folder / "overlays" / overlay))],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))

    return built
