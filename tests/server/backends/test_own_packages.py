"""Two models whose requirements contradict each other, in one real Triton."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.running import tritonkit
from tests.waiting import PATIENCE_S
from tests.wheels import write_wheel
from tritonkit.client import Client
from tritonkit.errors import ServerStartError
from tritonkit.perf.diagnose import prove_own_python
from tritonkit.perf.tune.space import InstanceGroup, Point, tuned
from tritonkit.repository.environments import Environments, Interpreter
from tritonkit.repository.modelspec import load
from tritonkit.repository.pipeline import build_repository, check_repository
from tritonkit.repository.publish.integrity import verify
from tritonkit.serve import serve
from tritonkit.serve.stub_python import stub_python

CALLERS = 16
SPEC = """
name: {name}
network: {{python: model.py, inputs: {{x: {{dtype: INT32, shape: [1]}}}}, outputs: {{y: {{dtype: BYTES, shape: [1]}}}}}}
python: {{requirements: {requirements}}}
serving: {{instance_group: [{{count: 2, kind: cpu}}]}}
"""
CODE = """import importlib.metadata
import numpy as np
import triton_python_backend_utils as pb_utils
import apples, apples_data, pears

class TritonPythonModel:
    def execute(self, requests):
        said = f"{apples.VERSION} {importlib.metadata.version('apples')} {pears.VERSION} {apples_data.KIND}"
        made = [np.full(r.inputs()[0].as_numpy().shape, f"{said} {np.__version__}", object) for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", y)]) for y in made]
"""
AFTER = CODE.replace("{np.__version__}", "{requests[0].inputs()[0].as_numpy().item().decode()}")
"""The same, with the words of the step before it at the end."""
FREE = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}


def write(root: Path, name: str, requirements: str, code: str = CODE) -> None:
    """A model with requirements."""
    folder = root / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.yaml").write_text(SPEC.format(name=name, requirements=requirements))
    (folder / "model.py").write_text(code)


def fill(index: Path) -> None:
    """Two versions of a library, each with its own version of another, and a namespace that a .pth file opens."""
    for version in ("1.0", "2.0"):
        write_wheel(index, "apples", version, requires=[f"pears=={version}", "apples_data"])
        write_wheel(index, "pears", version)
    files = {"apples_data.pth": "apples_more\n", "apples_more/apples_data.py": 'KIND = "red"\n'}
    write_wheel(index, "apples_data", "1", files)


def test_conflicting_requirements_serve_in_one_server(package_index: Path, tmp_path: Path, project: Path) -> None:
    """Each model has its own versions of both libraries, for 16 callers at the same time; a later version of a model
    has other ones, and every file is in the manifest."""
    fill(package_index)
    root = tmp_path / "project"
    write(root, "old", "[apples<2]")
    write(root, "new", "[apples>=2]")
    interpreter = lambda: stub_python(project, "cpu")  # noqa: E731
    built = build_repository(root, cores=2, interpreter=interpreter)
    assert verify(built.path) == []
    assert {c.action for c in build_repository(root, cores=2, interpreter=interpreter).changes} == {"unchanged"}
    numpy = interpreter().numpy
    with serve(built.path, **FREE, root=project) as endpoint:
        with Client(endpoint.grpc, timeout_s=PATIENCE_S) as client, ThreadPoolExecutor(CALLERS) as pool:
            names = ["old", "new"] * 32
            said = list(pool.map(lambda name: client.model(name).predict(x=[[0]])["y"].item(), names))
        assert said == [f"{v} {v} {v} red {numpy}".encode() for v in ("1.0", "2.0")] * 32
        write(root, "old", "[apples>=2]")
        assert "new version" in {c.action for c in build_repository(root, cores=2, interpreter=interpreter).changes}
        with Client(endpoint.grpc, timeout_s=PATIENCE_S, admin_key=endpoint.admin_key) as client:
            client.load("old")
            assert client.model("old").predict(x=[[0]])["y"].item() == f"2.0 2.0 2.0 red {numpy}".encode()
    assert verify(built.path) == []  # the server has written nothing into it


def test_a_build_tries_a_model_with_its_packages(package_index: Path, tmp_path: Path, project: Path) -> None:
    """Its Python is proven in batches with them; a check of the tracked text comes to the same, and tuning has them."""
    fill(package_index)
    constant = 'np.full(r.inputs()[0].as_numpy().shape, f"{said} {np.__version__}", object)'
    assert constant in CODE
    own = 'np.array([[f"{said} {n}"] for n in r.inputs()[0].as_numpy().ravel()], object)'
    write(tmp_path, "old", "[apples<2]", CODE.replace(constant, own))
    file = tmp_path / "models" / "old" / "model.yaml"
    file.write_text(file.read_text() + "quality: {samples: data:samples}\n")
    samples = "import numpy as np\n\ndef samples():\n    return [{'x': np.arange(6, dtype=np.int32)[:, None]}]\n"
    (file.parent / "data.py").write_text(samples)
    interpreter = lambda: stub_python(project, "cpu")  # noqa: E731
    built = build_repository(tmp_path, cores=2, prover=prove_own_python, interpreter=interpreter)
    assert 'key: "tritonkit.independent_items"' in (built.path / "old" / "config.pbtxt").read_text()
    assert check_repository(tmp_path, interpreter=interpreter) == {}
    spec = Environments.of_project(tmp_path, interpreter).make(load(file.parent, tmp_path))
    point = Point(InstanceGroup("python", 1, 1), 4)
    assert tuned(spec, point, tmp_path).environments == spec.environments != {}


def test_a_step_has_packages_too(package_index: Path, tmp_path: Path, project: Path) -> None:
    """Its step.yaml says which, unless the pipeline's entry does."""
    fill(package_index)
    folder = tmp_path / "models" / "net"
    for step, dtype in (("tell", "INT32"), ("last", "BYTES")):
        (folder / "steps" / step).mkdir(parents=True)
        (folder / "steps" / step / "model.py").write_text(AFTER if step == "last" else CODE)
        (folder / "steps" / step / "step.yaml").write_text(
            f"description: tells\npython: {{requirements: [apples<2]}}\ninputs: {{x: {{dtype: {dtype}, shape: [1]}}}}\n"
            "outputs: {y: {dtype: BYTES, shape: [1]}}\n"
        )
    (folder / "model.py").write_text(
        "import triton_python_backend_utils as pb_utils\n\nclass TritonPythonModel:\n    def execute(self, requests):\n"
        "        tensors = [pb_utils.Tensor('x', r.inputs()[0].as_numpy()) for r in requests]\n"
        "        return [pb_utils.InferenceResponse([t]) for t in tensors]\n"
    )
    (folder / "model.yaml").write_text(
        "name: net\nnetwork: {python: model.py, inputs: {n: {dtype: INT32, shape: [1]}},"
        " outputs: {x: {dtype: INT32, shape: [1]}}}\n"
        "pipeline: [network, {step: tell, outputs: {y: z}},"
        " {step: last, inputs: {x: z}, python: {requirements: [apples]}}]\n"
    )
    built = build_repository(tmp_path, cores=2, interpreter=lambda: stub_python(project, "cpu"))
    with serve(built.path, **FREE, root=project) as endpoint, Client(endpoint.grpc, timeout_s=PATIENCE_S) as client:
        reply = client.model("net").predict(n=[[0]])
    words = reply["y"].item().split()
    assert (words[0], words[2]) == (b"2.0", b"2.0")
    assert words[-5:-2] == [b"1.0", b"1.0", b"1.0"]


def test_packages_for_another_python(package_index: Path, tmp_path: Path, project: Path) -> None:
    """The server says so of that model, before a compiled module fails in riddles; doctor does too."""
    fill(package_index)
    write(tmp_path, "old", "[apples<2]")
    here = stub_python(project, "cpu").version
    other = "3.12" if here == "3.11" else "3.11"
    built = build_repository(tmp_path, cores=2, interpreter=lambda: Interpreter(other))
    with pytest.raises(ServerStartError) as caught, serve(built.path, **FREE, root=project):
        pass
    assert f"its packages were made for python {other}" in str(caught.value) + caught.value.details
    doctor = tritonkit("doctor", cwd=tmp_path)
    assert f"old/1 for Python {other}" in " ".join(doctor.stdout.split())


def test_inspect_names_the_packages(package_index: Path, tmp_path: Path, project: Path) -> None:
    """With their sizes, once they are made."""
    fill(package_index)
    write(tmp_path, "old", "[apples<2]")
    assert "old has packages for itself: apples<2 (not made yet)" in tritonkit("inspect", "old", cwd=tmp_path).stdout
    spec = load(tmp_path / "models" / "old", tmp_path)
    Environments.of_project(tmp_path, lambda: stub_python(tmp_path, "cpu")).make(spec)
    assert "apples<2 (packages: 3," in tritonkit("inspect", "old", cwd=tmp_path).stdout
