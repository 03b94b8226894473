"""A volume that pods share for fetched files: rendered on request, and held to the rules of all overlays."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.operate.deploy.kubernetes import test_overlays as policies
from tritonkit.operate.deploy import write_tree

Render = Callable[..., dict[str, str]]
STORE = "s3://bucket/models"


@pytest.fixture(scope="module")
def cached(render: Render, kustomize: policies.Build, tmp_path_factory: pytest.TempPathFactory) -> policies.Build:
    """The resources of an overlay of a tree with the cache."""
    folder = tmp_path_factory.mktemp("cached")
    shared = {"size_mib": 1000, "storage_class": "shared"}
    write_tree(folder, render(models={"store": STORE, "cache": shared}))

    @cache
    def built(overlay: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            ["kubectl", "kustomize", str(folder / "overlays" / overlay)],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))

    return built


@pytest.mark.slow
@pytest.mark.parametrize("overlay", ["cpu", "gpu", "nvidia", "production"])
def test_the_init_container_shares_a_volume(cached: policies.Build, overlay: str) -> None:
    """Triton does not see it; the policies and schemas of all overlays hold."""
    resources = cached(overlay)
    pod = policies.triton_pod(resources)
    [init], [triton] = pod["initContainers"], pod["containers"]
    assert {"name": "cache", "mountPath": "/cache"} in init["volumeMounts"]
    assert "cache" not in [mount["name"] for mount in triton["volumeMounts"]]
    assert init["command"][-4:] == ["--cache", "/cache", "--cache-mib", "900"]
    claims = policies.of_kind(resources, "PersistentVolumeClaim")
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "cache"]
    claim = claims[volume["persistentVolumeClaim"]["claimName"]]
    assert claim["metadata"]["namespace"] == "tritonkit"
    assert claim["metadata"]["labels"]["app.kubernetes.io/part-of"] == "tritonkit"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "1000Mi"}},
    }
    policies.test_pods_hold_to_the_restricted_standard(cached, overlay)
    policies.test_pods_are_guaranteed_and_watched(cached, overlay)
    for version in policies.VERSIONS:
        policies.test_the_schemas_accept_it(cached, overlay, version)


def test_a_canary_shares_it(render: Render) -> None:
    """Its pods have the volume too; where they alone fetch from a store, there is one for them."""
    store: dict[str, Any] = {"store": STORE, "cache": {}}
    for models in (store, {"image": "models:1"}):
        tree = render(models=models, canary={"models": store})
        canary = yaml.safe_load(tree["components/canary/deployment.yaml"])
        [init] = canary["spec"]["template"]["spec"]["initContainers"]
        assert {"name": "cache", "mountPath": "/cache"} in init["volumeMounts"]
        assert yaml.safe_load(tree["base/kustomization.yaml"])["components"]


def test_without_it_there_is_no_volume(render: Render, tmp_path: Path) -> None:
    """Neither a file of the component, nor one that was there before."""
    write_tree(tmp_path, render(models={"store": STORE, "cache": {}}))
    assert (tmp_path / "components/model-cache/persistentvolumeclaim.yaml").is_file()
    tree = render(models={"store": STORE})
    assert not [path for path in tree if "model-cache" in path]
    assert "components" not in tree["base/kustomization.yaml"]
    write_tree(tmp_path, tree)
    assert not list(tmp_path.rglob("*/model-cache/*.yaml"))
