"""The commands together, on a real Triton: a new model built, served, called, stopped; builds killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.running import tritonkit, tritonkit_here
from tests.repository.export.test_external_data import external
from tests.repository.optimize.small_specs import RELU, onnx_file
from tests.repository.optimize.test_outputs import CASES
from tritonkit.client import Client
from tritonkit.serve import serve


@pytest.fixture
def served_root(root: Path, project: Path) -> Path:
    """An empty project that has the real one's server environment."""
    (root / ".venv-server").symlink_to(project / ".venv-server")
    return root


@contextmanager
def serving(root: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`tritonkit serve` in a process of its own; its gRPC address."""
    command = [sys.executable, "-m", "tritonkit.cli", "serve", "--root", str(root)]
    ports = ["--grpc-port", "0", "--metrics-port", "0"]
    with subprocess.Popen(
        [*command, *ports, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            assert lines[0].startswith("gRPC "), lines
            assert lines[1].rstrip().endswith("/metrics")
            yield lines[0].split()[1], process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(60)


def test_a_new_model_is_built_served_called_and_stopped(served_root: Path, tmp_path: Path) -> None:
    """`tritonkit new --onnx` to an answer, and Ctrl-C ends with exit code 0."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx_file(RELU, ["batch", 4]))
    root = str(served_root)
    assert tritonkit("new", "relu", "--onnx", str(file), "--root", root).returncode == 0
    assert tritonkit("build", "relu", "--root", root).returncode == 0
    with serving(served_root, "--model", "relu") as (address, process):
        done = tritonkit("call", "relu", "--input", "x=[1, -2, 3, -4]", "--json", "--address", address)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["outputs"] == {"y": [[1, 0, 3, 0]]}
        done = tritonkit("models", "--json", "--address", address, cwd=served_root)
        listed = json.loads(done.stdout)["models"]
        assert [(m["name"], m["version"], m["ready"]) for m in listed] == [("relu", "1", True)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def odd_files(folder: Path) -> None:
    """Files whose weights lie elsewhere, with scalars, and with an output's shape that is not what it gives."""
    external(folder / "apart.onnx", folder, ("w/a.bin", "b.bin"))
    for name in ("named and inferred", "another rank", "hidden, another size", "a batch of one"):
        (folder / f"{name.split()[-1]}.onnx").write_bytes(CASES[name][0])
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, []) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "scalar.onnx")


def hold_to_odd_files(client: Client) -> None:
    """Each answers what its file computes."""
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    reply = client.model("apart").predict(x=x[:, :4])["y"]
    np.testing.assert_array_equal(reply, x[:, :4] * 6)
    for name in ("rank", "size", "one"):
        np.testing.assert_array_equal(client.model(name).predict(x=x)["y"], x)
    one = np.ones((1, 1, 8), np.float32)
    np.testing.assert_array_equal(client.model("inferred").predict(x=one)["y"], one)
    for name in ("scalar", "scalar_ov"):
        for value in (3.0, np.array([3], np.float32)):
            assert client.model(name).predict(x=value)["y"].tolist() == [-3]


def test_new_models_are_built_and_served(served_root: Path, tmp_path: Path) -> None:
    """`tritonkit new --torch` and `--onnx` write folders that build and answer."""
    (tmp_path / "mynet.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softmax(1))\n"
    )
    root = str(served_root)
    done = tritonkit("new", "mynet", "--torch", "mynet:build", "--input", "x=FP32:3", "--root", root, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    odd = tmp_path / "odd"
    odd.mkdir()
    odd_files(odd)
    for file in odd.glob("*.onnx"):
        done = tritonkit_here("new", file.stem, "--onnx", str(file), "--root", root)
        assert done.returncode == 0, done.stderr
    spec = served_root / "models" / "scalar"
    shutil.copytree(spec, spec.with_name("scalar_ov"))
    text = (spec / "model.yaml").read_text().replace("name: scalar", "name: scalar_ov")
    text = text.replace("max_batch_size: 0", "max_batch_size: 0, variant: openvino-fp32")
    (spec.with_name("scalar_ov") / "model.yaml").write_text(text)
    assert tritonkit("build", "--root", root).returncode == 0
    with (
        serve(served_root / "model_repository", grpc_port=0, http_port=0, metrics_port=0) as endpoint,
        Client(endpoint.grpc) as client,
    ):
        hold_to_odd_files(client)
        reply = client.model("mynet").predict(x=np.ones((5, 3), np.float32))
    np.testing.assert_allclose(reply["output_0"].sum(axis=1), 1, rtol=1e-5)


KILLED = """import os
import signal
import sys

CHANGES = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.symlink")
root, last = sys.argv[1], int(sys.argv[2])
changes = 0


def watch(event, arguments):
    global changes
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if (writes or event in CHANGES) and any(str(place).startswith(root) for place in arguments[:2]):
        changes += 1
        if changes == last:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(watch)

from tritonkit.cli import main

main(["build", "--root", root])
"""
"""A build that is killed before its last change of a file or folder, where it gets that far."""
FIRST, STEP = 19, 4
"""The changes before which builds are killed: some ten write artifacts and are left out, some thirty publish."""


@pytest.mark.slow
def test_killing_builds_at_any_moment_leaves_a_repository_that_triton_loads(served_root: Path, tmp_path: Path) -> None:
    """Builds of ever new versions killed with SIGKILL at later and later changes, until one is through: Triton itself,
    without any repair by tritonkit, loads what the last one left, and the models answer."""
    file = tmp_path / "relu.onnx"
    root = str(served_root)
    for name in ("one", "two"):
        file.write_bytes(onnx_file(RELU, ["batch", 4]))
        assert tritonkit("new", name, "--onnx", str(file), "--root", root).returncode == 0
    assert tritonkit("build", "--root", root).returncode == 0
    killed = 0
    for last in range(FIRST, 1000, STEP):
        for name in ("one", "two"):
            model = onnx_file(RELU, ["batch", last], ["batch", last])
            (served_root / "models" / name / "relu.onnx").write_bytes(model)
        done = subprocess.run([sys.executable, "-c", KILLED, root, str(last)], capture_output=True, text=True)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        if done.returncode == 0:
            break
        killed += 1
        left = shutil.copytree(served_root / "model_repository", tmp_path / f"killed{last}" / "model_repository")
    assert killed >= 8
    with serve(left, grpc_port=0, http_port=0, metrics_port=0) as endpoint, Client(endpoint.grpc) as client:
        for name in ("one", "two"):
            width = client.model(name).signature.inputs["x"].dims[0]
            answer = client.model(name).predict(x=np.full((2, width), -1, np.float32))["y"]
            np.testing.assert_array_equal(answer, 0)
