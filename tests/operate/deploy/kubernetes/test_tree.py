"""Rendering from values and a repository, writing it, and refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.cli.running import failed, tritonkit_here
from tests.server.models import ModelText, write_repository
from tritonkit.errors import RenderError, SpecError
from tritonkit.operate.deploy import Values, compare, read_facts, read_values, render_tree, write_tree
from tritonkit.operate.deploy.pinned import tagged
from tritonkit.operate.deploy.values import Gpu
from tritonkit.serve.shm import MIB

Render = Callable[..., dict[str, str]]
DEPLOYMENT = "base/deployment.yaml"


def pod(tree: dict[str, str]) -> dict[str, Any]:
    """The pod's spec."""
    spec: dict[str, Any] = yaml.safe_load(tree[DEPLOYMENT])["spec"]["template"]["spec"]
    return spec


def test_the_numbers_are_those_of_the_repository(repository: Path, render: Render) -> None:
    """Memory and /dev/shm as for Docker, cores as in values.yaml, and needs.json for entry.py."""
    facts = read_facts(repository, Values(cpu=3))
    tree = render(cpu=3)
    [triton] = pod(tree)["containers"]
    memory = f"{facts.needs.memory_bytes // MIB}Mi"
    assert triton["resources"]["limits"] == {"cpu": "3", "memory": memory}
    generator = yaml.safe_load(tree["base/kustomization.yaml"])["configMapGenerator"]
    needs = json.loads(generator[0]["literals"][0].removeprefix("needs.json="))
    assert needs["shm_bytes"] == facts.needs.shm_bytes
    probe = triton["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == facts.startup_s


@pytest.mark.slow
def test_fewer_cores_than_were_rendered_for_have_their_configuration(tmp_path: Path) -> None:
    """A pod of one core does not take what was computed for four."""
    header = "# Rendered by tritonkit from models/net/model.yaml (target cpu, cores 4)."
    folder = write_repository(tmp_path / "models", {"net": ModelText()})
    config = folder / "net" / "config.pbtxt"
    config.write_text(f"{header}\n{config.read_text()}")
    for cores, argument in ((1, "--model-config-name=cores-1"), (3, "--model-config-name=cores-3")):
        tree = render_tree(Values(), read_facts(folder, Values(cpu=cores)))
        assert pod(tree)["containers"][0]["args"] == ["--own-key", argument]
    tree = render_tree(Values(), read_facts(folder, Values()))
    assert pod(tree)["containers"][0]["args"] == ["--own-key"]


def test_images_without_a_digest_are_listed(render: Render) -> None:
    """Wherever a manifest names one; a digest reaches the manifests as it was written."""
    digest = f"registry.example.org:5000/models@sha256:{'a' * 64}"
    assert tagged(render(models={"image_volume": "models:1"}).values()) == [
        "models:1",
        "prom/prometheus:v3.5.0",
        "tritonkit/server-gpu:0.1.0",
        "tritonkit/server-nvidia:0.1.0",
        "tritonkit/server:0.1.0",
        "tritonkit/tools:0.1.0",
    ]
    images = dict.fromkeys(("server", "server_gpu", "server_nvidia", "tools"), digest)
    tree = render(models={"image_volume": digest}, images=images)
    assert tagged(tree.values()) == ["prom/prometheus:v3.5.0"]
    assert pod(tree)["containers"][0]["image"] == digest


def test_servers_are_pinned_unless_that_is_not_wanted(render: Render) -> None:
    """An environment variable of Triton's container says so."""
    variable = {"name": "TRITON_PIN", "value": "1"}
    assert variable in pod(render())["containers"][0]["env"]
    assert variable not in pod(render(pin=False))["containers"][0]["env"]


@pytest.mark.parametrize(
    ("source", "mounted"),
    [
        ({"image": "registry.example/models:7"}, False),
        ({"image_volume": "registry.example/models:7"}, True),
        ({"store": "s3://bucket/models"}, False),
        ({"claim": "models"}, True),
    ],
)
def test_models_come_from_where_values_say(render: Render, source: dict[str, str], mounted: bool) -> None:
    """Each source gives a deployment that Kubernetes' schema accepts; Triton reads a copy."""
    tree = render(models=source)
    kubernetes_validate.validate(yaml.safe_load(tree[DEPLOYMENT]), "1.34", strict=True)
    spec = pod(tree)
    mounts = {mount["name"] for mount in spec["initContainers"][0]["volumeMounts"]}
    assert ("source" in mounts) is mounted
    assert next(iter(source.values())) in tree[DEPLOYMENT]
    [models] = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "models"]
    assert models["readOnly"] is True


def test_pods_ask_a_store_for_the_backup_and_at_the_port_that_values_name(render: Render) -> None:
    """The policy lets nothing else out; the Secret is their environment and their files."""
    for store, more, port in (
        ("s3://bucket/models", {"as_of": "20260131"}, 443),
        ("s3://bucket/models", {"store_port": 9000}, 9000),
        ("http://store.example/models", {}, 80),
        ("https://store.example:8443/models", {}, 8443),
    ):
        tree = render(models={"store": store, **more})
        [init] = pod(tree)["initContainers"]
        assert ("--as-of" in init["command"]) is ("as_of" in more)
        assert init["envFrom"] == [{"secretRef": {"name": "triton-store", "optional": True}}]
        policy = yaml.safe_load(tree["base/networkpolicy-triton.yaml"])["spec"]
        assert {rule["port"] for one in policy["egress"] for rule in one["ports"]} == {53, port}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replica: 3", "replicas"),
        ("models: {image: 'a:1', claim: b}", "exactly one of"),
        ("models: {}", "exactly one of"),
        ("cpu: 1.5", "cpu"),
        ("cpu: 0", "cpu"),
        ("images: {server: tritonkit/server}", "tag other than latest"),
        ("images: {server: 'tritonkit/server:latest'}", "tag other than latest"),
        ("models: {store: 's3://user:word@host/x'}", "password"),
        ("models: {store: 's3://bucket/$(HOME)'}", "such as s3://"),
        ("models: {image: 'a:1', as_of: '2026'}", "as_of without store"),
        ("models: {store: 's3://bucket/x', as_of: '--help'}", "as_of"),
        ("models: {store: 's3://bucket/x', store_port: 0}", "store_port"),
        ("namespace: Up_Per", "namespace"),
        ("scaling: {min: 5, max: 2}", "min of at most max"),
        ("gpu: {resource: 'a b'}", "gpu"),
        ("gateway: {service: ExternalName}", "service"),
        ("canary: {weight: 10}", "canary"),
        ("canary: {models: {image: 'a:1'}, weight: 101}", "weight"),
        ("gateway_api: {gateway: g, grpc_host: a.b, http_host: a.b}", "two names"),
    ],
)
def test_values_that_make_no_sense_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    """A secret in an address is not repeated."""
    file = tmp_path / "values.yaml"
    file.write_text(f"# first line\n{text}\n")
    with pytest.raises(SpecError) as refusal:
        read_values(file)
    assert message in str(refusal.value)
    assert "values.yaml:2" in str(refusal.value)
    assert "user:word" not in str(refusal.value)


def test_the_file_that_is_written_has_the_defaults(tmp_path: Path, repository: Path) -> None:
    """values.yaml as a new tree has it changes nothing."""
    out = tmp_path / "tree"
    arguments = ("deploy", "--repository", str(repository), "--out", str(out))
    done = tritonkit_here(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_values(out / "values.yaml") == Values()
    assert tritonkit_here(*arguments, "--check", cwd=tmp_path).returncode == 0


def test_a_change_of_hands_is_shown_and_not_lost(tmp_path: Path, repository: Path) -> None:
    """`--check` prints the difference, a render refuses to write over it, `--force` does."""
    out = tmp_path / "tree"
    arguments = ("deploy", "--repository", str(repository), "--out", str(out))
    drift = tritonkit_here(*arguments, "--check", cwd=tmp_path)
    assert re.search(r"not as rendered: ([^,]+, ){4}[^,]+ and \d+ more\n", failed(drift, 3))
    assert not out.exists()
    assert tritonkit_here(*arguments, cwd=tmp_path).returncode == 0
    file = out / DEPLOYMENT
    rendered = file.read_text()
    file.write_text(rendered.replace("maxSurge: 1", "maxSurge: 2"))
    drift = tritonkit_here(*arguments, "--check", cwd=tmp_path)
    assert DEPLOYMENT in failed(drift, 3)
    assert "-    rollingUpdate: {maxUnavailable: 0, maxSurge: 2}" in drift.stdout
    assert "edited by hand" in failed(tritonkit_here(*arguments, cwd=tmp_path), 3)
    assert "maxSurge: 2" in file.read_text()
    assert tritonkit_here(*arguments, "--force", cwd=tmp_path).returncode == 0
    assert file.read_text() == rendered


def test_values_change_the_files_and_stay(tmp_path: Path, repository: Path) -> None:
    """Rendered again after a change of values.yaml: only what depends on it is written."""
    out = tmp_path / "tree"
    arguments = ("deploy", "--repository", str(repository), "--out", str(out), "--json")
    assert tritonkit_here(*arguments, "--namespace", "vision", cwd=tmp_path).returncode == 0
    values = out / "values.yaml"
    assert read_values(values).namespace == "vision"
    text = values.read_text().replace("\n# replicas: 2", "\nreplicas: 5")
    values.write_text(text)
    done = tritonkit_here(*arguments, cwd=tmp_path)
    written = [Path(file).name for file in json.loads(done.stdout)["written"]]
    assert written == ["deployment.yaml", "scaledobject.yaml"]
    assert values.read_text() == text
    refusal = tritonkit_here(*arguments[:-1], "--namespace", "other", cwd=tmp_path)
    assert "values.yaml says vision" in failed(refusal, 2)


def test_files_of_an_older_tree_go(tmp_path: Path, render: Render) -> None:
    """Files written by an older version go; a person's own stay."""
    tree = render()
    older = tree | {"overlays/old/kustomization.yaml": tree["overlays/cpu/kustomization.yaml"]}
    write_tree(tmp_path, older)
    own = tmp_path / "overlays" / "own.yaml"
    own.write_text("kind: Kustomization\n")
    assert compare(tmp_path, tree).left == ("overlays/old/kustomization.yaml",)
    write_tree(tmp_path, tree)
    assert not compare(tmp_path, tree)
    assert own.is_file()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, render: Render) -> None:
    """Here a file is in the way."""
    (tmp_path / "base").write_text("")
    with pytest.raises(RenderError, match="base"):
        write_tree(tmp_path, render())


def test_repositories_that_are_none_are_refused(tmp_path: Path, repository: Path) -> None:
    """Absent, empty, and a model without a version."""
    for folder in (tmp_path / "absent", tmp_path):
        done = tritonkit_here("deploy", "--repository", str(folder), "--out", str(tmp_path / "t"), cwd=tmp_path)
        assert str(folder) in failed(done, 2)
    model = tmp_path / "some" / "a"
    model.mkdir(parents=True)
    (model / "config.pbtxt").write_bytes((repository / "a" / "config.pbtxt").read_bytes())
    done = tritonkit_here("deploy", "--repository", str(model.parent), "--out", str(tmp_path / "t"), cwd=tmp_path)
    assert "has no version" in failed(done, 3)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("suffix", ["", "-SHARED", "-MIG-1g.10gb"])
def test_a_plan_for_another_gpu_is_refused(tmp_path: Path, suffix: str) -> None:
    """The manifest of a version says where its plan was made; without a product nobody knows the nodes'."""
    folder = write_repository(tmp_path / "models", {"net": ModelText()})
    manifest = {"files": {}, "tools": {"gpu": "NVIDIA H100 80GB HBM3"}}
    (folder / "net" / "1" / "manifest.json").write_text(json.dumps(manifest))
    for product in (None, f"NVIDIA-H100-80GB-HBM3{suffix}"):
        assert read_facts(folder, Values(gpu=Gpu(product=product))).models == 1
    with pytest.raises(RenderError, match="a plan for NVIDIA H100 80GB HBM3"):
        read_facts(folder, Values(gpu=Gpu(product=f"NVIDIA-L4{suffix}")))
