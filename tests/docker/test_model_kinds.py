"""Each kind of model in one repository: the image, under what a pod allows, answers as the embedded server does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.cli.running import tritonkit
from tests.docker.conftest import SERVER_USER, address_of, docker, run, serving
from tests.repository.optimize.linear import linear
from tests.repository.optimize.ready_files import SCRIPT, script, write_graph
from tests.repository.trees.models import table, xgboost_file
from tests.server.backends.test_graphs import DIAMOND, ENCODER, join
from tests.server.backends.test_map import CUT, STEP
from tests.server.backends.test_own_packages import CODE, SPEC, fill
from tests.waiting import PATIENCE_S, eventually
from tests.wheels import write_wheel
from tritonkit.client import Client
from tritonkit.operate.deploy.facts import read_facts
from tritonkit.operate.deploy.values import Values
from tritonkit.repository.environments import Interpreter
from tritonkit.repository.environments.interpreter import IMAGE_PYTHON
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish.integrity import verify
from tritonkit.repository.scaffold import new_from_tree
from tritonkit.serve import serve
from tritonkit.serve.stub_python import stub_python

pytestmark = [pytest.mark.timeout(900), pytest.mark.needs("trees", "uv")]
PAGE = """name: page
pipeline:
  - {step: cut, serving: {max_batch_size: 4, independent_items: true}}
  - name: sums
    map: {over: [crops], count: count, pipeline: [{name: net, network: {onnx: net.onnx}}]}
    inputs: {x: crops}
    outputs: {y: sum}
ensemble: {outputs: [count, sum]}
"""
OWN = {"old": "<2", "new": ">=2"}
"""Models with requirements of their own -> the versions of a library."""
POD = ("--security-opt", "no-new-privileges", "--user", f"{SERVER_USER}:{SERVER_USER}")
"""Options that a pod has in addition to those of `serving`."""


def write(root: Path, files: dict[str, str | bytes]) -> None:
    """Files below models/."""
    for path, content in files.items():
        file = root / "models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_models(root: Path, index: Path) -> None:
    """A graph of two networks and more, a map, conflicting requirements, trees, and a graph of OpenVINO."""
    random = np.random.default_rng(0)
    weights = {"encoder": (32, 24), "head": (32, 32), "net": (4, 6)}
    networks = {
        name: linear(random.standard_normal(size).astype(np.float32), [2, 3] if name == "net" else [size[1]])
        for name, size in weights.items()
    } | {"join": join(32)}
    write(
        root,
        {
            "encoder/model.yaml": ENCODER,
            "diamond/model.yaml": DIAMOND,
            "page/model.yaml": PAGE,
            "page/net.onnx": networks["net"],
            "page/steps/cut/step.yaml": STEP,
            "page/steps/cut/model.py": CUT,
            "graph/model.yaml": "{name: graph, network: {file: net.xml}}",
            **{
                f"{model}/{name}.onnx": networks[name]
                for model in ("encoder", "diamond")
                for name in weights | {"join": 0}
            },
            **{
                f"{name}/model.yaml": SPEC.format(name=name, requirements=f"[apples{which}]")
                for name, which in OWN.items()
            },
            **{f"{name}/model.py": CODE for name in OWN},
        },
    )
    write_graph(root / "models" / "graph", "net.xml", {"x": [-1, 4], "kept": [-1, 4]})
    fill(index)
    xgboost_file(root / "model.json")
    new_from_tree(root, "trees", root / "model.json")


def requests(random: np.random.Generator) -> dict[str, dict[str, Any]]:
    """A request of each model."""
    return {
        "diamond": {"x": random.standard_normal((3, 24)).astype(np.float32)},
        "page": {"sizes": np.int32([[2, 20], [5, 3]])},
        "old": {"x": np.int32([[0]])},
        "new": {"x": np.int32([[0]])},
        "trees": {"features": table()[:40].astype(np.float32)},
        "graph": {"x": random.standard_normal((3, 4), np.float32), "kept": random.integers(0, 2, (3, 4))},
    }


def answers(client: Client, asked: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The answer of each model."""
    return {name: dict(client.model(name).predict(inputs=inputs).outputs) for name, inputs in asked.items()}


@pytest.fixture
def root(tmp_path: Path, project: Path) -> Path:
    """A project without models."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "python_backends").symlink_to(project / "python_backends")
    return tmp_path / "project"


@pytest.fixture
def repository(package_index: Path, root: Path) -> Path:
    """The repository, for the Python of the image."""
    write_models(root, package_index)
    return build_repository(root, cores=2, interpreter=lambda: Interpreter(IMAGE_PYTHON)).path


def test_the_image_answers_as_the_embedded_server(
    server_image: None, repository: Path, random: np.random.Generator, project: Path
) -> None:
    """On a root filesystem that nobody can write, for a user who owns no file, within the limits that are rendered."""
    asked = requests(random)
    facts = read_facts(repository, Values())
    limits = (
        "--memory",
        f"{facts.memory_mib}m",
        "--memory-swap",
        f"{facts.memory_mib}m",
        "--shm-size",
        f"{facts.shm_mib}m",
    )
    with serving(repository, *POD, *limits) as name, Client(address_of(name), timeout_s=PATIENCE_S) as client:
        served = answers(client, asked)
        log = run("docker", "logs", name).stderr
        assert docker("inspect", "-f", "{{.State.OOMKilled}} {{.RestartCount}}", name) == "false 0"
    assert "error: " not in log
    assert not verify(repository)
    assert served["old"]["y"].item().startswith(b"1.0 1.0 1.0 red ")
    assert served["new"]["y"].item().startswith(b"2.0 2.0 2.0 red ")
    if stub_python(project, "cpu").version != IMAGE_PYTHON:
        asked = {name: inputs for name, inputs in asked.items() if name not in OWN}
    with (
        serve(repository, root=project, models=list(asked), grpc_port=0, http_port=0, metrics_port=0) as endpoint,
        Client(endpoint.grpc, timeout_s=PATIENCE_S) as client,
    ):
        embedded = answers(client, asked)
    for model, outputs in embedded.items():
        assert outputs.keys() == served[model].keys()
        for tensor, values in outputs.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(
                    served[model][tensor], values, rtol=1e-5, atol=1e-6, err_msg=f"{model} {tensor}"
                )
            else:
                np.testing.assert_array_equal(served[model][tensor], values, err_msg=f"{model} {tensor}")


def test_models_that_the_image_cannot_run_say_what_to_do(server_image: None, package_index: Path, root: Path) -> None:
    """PyTorch is not in the image, and packages for another Python are not imported."""
    write(root, {"script/model.yaml": SCRIPT.replace("name: net", "name: script"), "script/model.pt": script()})
    write_wheel(package_index, "apples", "1.0")
    code = CODE.replace("apples, apples_data, pears", "apples").replace("def execute", "def unused")
    write(root, {"old/model.yaml": SPEC.format(name="old", requirements="[apples]"), "old/model.py": code})
    repository = build_repository(root, cores=2, interpreter=lambda: Interpreter("3.12")).path
    with serving(repository, ready=False) as name:
        messages = ("TRITONKIT_REQUIREMENTS=requirements-torch.txt", "its packages were made for python 3.12")
        for message in messages:
            eventually(lambda message=message: message in run("docker", "logs", name).stderr, message)
        eventually(lambda: "not ready: model" in run("docker", "logs", name).stderr)


def test_manifests_have_what_the_kinds_need(repository: Path, tmp_path: Path) -> None:
    """Their resources, the container's confinement, and the volume for their files."""
    out = tmp_path / "kubernetes"
    done = tritonkit("deploy", "--repository", str(repository), "--out", str(out))
    assert done.returncode == 0, done.stderr
    facts = read_facts(repository, Values())
    assert {*requests(np.random.default_rng(0))} < {*facts.names}
    deployment = yaml.safe_load((out / "base" / "deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["limits"]["memory"] == f"{facts.memory_mib}Mi"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsUser"] == SERVER_USER
