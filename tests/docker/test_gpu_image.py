"""The image for GPUs in a container without one: it serves what needs none, and names each model that does."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.docker.conftest import address_of, build, docker, run, serving
from tests.server.models import ECHO, VECTOR, ModelText, write_repository
from tests.waiting import eventually
from tritonkit.client import Client
from tritonkit.repository.pipeline import build_repository

pytestmark = pytest.mark.timeout(900)
NO_GPU = ("--env", "NVIDIA_VISIBLE_DEVICES=void")
"""For a daemon that gives its GPUs to containers that do not ask for one."""
ON_GPU = 'backend: "onnxruntime"\n' + VECTOR + "instance_group { kind: KIND_GPU }\n"
REASON = "not served: it asks for a GPU (KIND_GPU): there is no NVIDIA driver (libcuda.so.1"


@pytest.fixture(scope="module")
def image(settings: str, project: Path) -> str:
    """The image that TRITONKIT_GPU_IMAGE names; else one with the packages for CPUs, as CUDA's are 1.7 GB to download:
    the stage, its programs and its refusals are the same."""
    if named := os.environ.get("TRITONKIT_GPU_IMAGE"):
        return named
    made = "tritonkit/server-gpu:test"
    build(settings, project, "triton-gpu", TRITONKIT_GPU_IMAGE=made, TRITONKIT_GPU_REQUIREMENTS="requirements.lock")
    return made


def test_the_gpu_image_serves_on_the_cpu(image: str, project: Path, tmp_path: Path) -> None:
    """A shipped model answers as in the other image, by native backends; the driver would be found in a cluster's
    folder, and by NVIDIA's container toolkit."""
    variables = docker("inspect", "-f", "{{json .Config.Env}}", image)
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in variables
    assert "LD_LIBRARY_PATH=/opt/tritonserver/lib:/usr/local/nvidia/lib:/usr/local/nvidia/lib64" in variables
    seven = (project / "models/digits/examples/seven.png").read_bytes()
    folder = build_repository(project, ("digits",), out=tmp_path / "models").path
    with serving(folder, *NO_GPU, image=image) as name, Client(address_of(name)) as client:
        assert client.model("digits").predict(image=seven)["label"][0, 0] == b"7"
        assert "stand-ins serve" not in run("docker", "logs", name).stderr


def test_models_that_need_a_gpu_are_named_and_the_others_served(image: str, tmp_path: Path) -> None:
    """The line says the reason and what to do; the container is ready without them."""
    models = {"net": ModelText(ON_GPU), "echo": ModelText('backend: "python"\n' + VECTOR, ECHO)}
    folder = write_repository(tmp_path / "models", models)
    with serving(folder, *NO_GPU, image=image) as name, Client(address_of(name)) as client:
        lines = run("docker", "logs", name).stderr.splitlines()
        (line,) = [line for line in lines if "not served" in line]
        assert line.startswith(f"error: model net: {REASON}")
        assert line.endswith("without a GPU: tritonkit build --target cpu")
        eventually(lambda: "ready after " in run("docker", "logs", name).stderr)
        assert client.model("echo").predict(x=np.zeros((1, 4), np.float32))["y"].tolist() == [[0.0] * 4]


def test_a_container_without_anything_to_serve_ends(image: str, tmp_path: Path) -> None:
    """Exit code 4, as for all that a container lacks."""
    folder = write_repository(tmp_path / "models", {"net": ModelText(ON_GPU)})
    mount = ("--volume", f"{folder}:/models:ro")
    done = run("docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", *NO_GPU, *mount, image, "--own-key")  # noqa: S108
    assert done.returncode == 4
    assert done.stderr.startswith("error: /models: model net: it asks for a GPU (KIND_GPU): there is no NVIDIA driver")
    assert "\n  do: driver 580 or newer on the machine, the image server-gpu" in done.stderr
