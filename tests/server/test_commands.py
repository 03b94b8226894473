"""The commands together, on a real Triton: a new model built, served, called, stopped; builds killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import tritonkit
from tests.optimize.test_make import RELU, onnx_file
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
        done = tritonkit(
            "call", "relu", "--input", "x=[1, -2, 3, -4]", "--json", "--address", address
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["outputs"] == {"y": [[1, 0, 3, 0]]}
        done = tritonkit("models", "--json", "--address", address, cwd=served_root)
        listed = json.loads(done.stdout)["models"]
        assert [(m["name"], m["version"], m["ready"]) for m in listed] == [("relu", "1", True)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_a_new_torch_model_is_built_and_served(served_root: Path, tmp_path: Path) -> None:
    """`tritonkit new --torch` writes a folder that builds and answers."""
    (tmp_path / "mynet.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softmax(1))\n"
    )
    root = str(served_root)
    done = tritonkit(
        "new",
        "mynet",
        "--torch",
        "mynet:build",
        "--input",
        "x=FP32:3",
        "--root",
        root,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert tritonkit("build", "--root", root).returncode == 0
    with (
        serve(
            served_root / "model_repository", grpc_port=0, http_port=0, metrics_port=0
        ) as endpoint,
        Client(endpoint.grpc) as client,
    ):
        reply = client.model("mynet").predict(x=np.ones((5, 3), np.float32))
    np.testing.assert_allclose(reply["output_0"].sum(axis=1), 1, rtol=1e-5)


def test_killing_builds_at_any_moment_leaves_a_repository_that_triton_loads(
    served_root: Path, tmp_path: Path
) -> None:
    """Builds of ever new versions killed with SIGKILL at different moments: Triton itself, without
    any repair by tritonkit, loads what is there, and the model answers."""
    file = tmp_path / "relu.onnx"
    root = str(served_root)
    for name in ("one", "two"):
        file.write_bytes(onnx_file(RELU, ["batch", 4]))
        assert tritonkit("new", name, "--onnx", str(file), "--root", root).returncode == 0
    started = time.monotonic()
    assert tritonkit("build", "--root", root).returncode == 0
    whole_s = time.monotonic() - started
    for attempt in range(8):
        for name in ("one", "two"):
            model = onnx_file(RELU, ["batch", 5 + attempt], ["batch", 5 + attempt])
            (served_root / "models" / name / "relu.onnx").write_bytes(model)
        command = [sys.executable, "-m", "tritonkit.cli", "build", "--root", root]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(whole_s * (0.4 + 0.08 * attempt))
            process.kill()
    with (
        serve(
            served_root / "model_repository", grpc_port=0, http_port=0, metrics_port=0
        ) as endpoint,
        Client(endpoint.grpc) as client,
    ):
        for name in ("one", "two"):
            width = client.model(name).signature.inputs["x"].dims[0]
            found = client.model(name).predict(x=np.full((2, width), -1, np.float32))["y"]
            np.testing.assert_array_equal(found, 0)
