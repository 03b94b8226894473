"""From a stranger's ONNX file to a diagnosis, on a GPU that is not there: each command as a person types it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from bench.gpu.requests import Item, items, padded
from bench.gpu.sizes import SMALL
from tests.cli.running import failed, tritonkit
from tests.fakegpu import GPU_BYTES
from tests.parts import SERVER
from tests.server.gpu.conftest import GpuProject
from tritonkit.client import AsyncClient, Client
from tritonkit.repository.render.gpu_memory import CONTEXT_BYTES
from tritonkit.serve import Endpoint, serve
from tritonkit.serve.install import VENV_VARIABLE
from tritonkit.serve.shm import MIB

SIZES = (1, 2, 4, 8)
INSTANCES = 2
ANY_PORTS = ("--grpc-port", "0", "--metrics-port", "0")
CUBLAS = "nvidia/cu13/lib/libcublas.so.13"


@pytest.fixture(scope="module")
def endpoint(project_for_gpu: GpuProject) -> Iterator[Endpoint]:
    """The project, served; its models leave nothing on the GPU."""
    free = {"grpc_port": 0, "metrics_port": 0}
    with serve(project_for_gpu.repository, root=project_for_gpu.root, **free) as served:
        yield served
    assert project_for_gpu.cuda.counters()["faults"] == 0
    # Triton's own pools end with its process; sessions and streams of models are gone.
    assert project_for_gpu.cuda.left_over().keys() <= {"allocations", "pinned_bytes"}


def rows(kind: str, count: int) -> list[Item]:
    """Requests of one item."""
    return items(kind, count, SMALL.pixels, SMALL.most, seed=5)


def on_the_cpu(project: GpuProject, model: str, batch: Item) -> Any:
    """The answer of ONNX Runtime's CPU provider."""
    file = project.root / "models" / model / f"{model}.onnx"
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, batch)[0]


def test_a_build_judges_on_the_gpu_and_places_networks_there(project_for_gpu: GpuProject) -> None:
    """No note says that the CPU judged; fixed shapes have a graph for each size, and texts are padded."""
    assert "judged on the CPU" not in project_for_gpu.built
    files = (project_for_gpu.repository / name / "config.pbtxt" for name in ("camera", "letters"))
    camera, letters = (file.read_text() for file in files)
    for config in (camera, letters):
        assert f"instance_group {{ count: {INSTANCES} kind: KIND_GPU }}" in config
    assert [f"batch_size: {size} }}" in camera for size in SIZES] == [True] * len(SIZES)
    assert "graphs: true" in camera
    assert "graphs" not in letters
    assert "allow_ragged_batch: true" in letters


def test_other_models_are_served_where_one_names_another_gpu(project_for_gpu: GpuProject, endpoint: Endpoint) -> None:
    """Device 1 of 1 is a reason of its own, before Triton starts; the graphs of the others are captured."""
    assert endpoint.models == ("camera", "letters")
    assert "names GPU 1, and CUDA sees 1 here" in endpoint.failed["second"]
    assert project_for_gpu.cuda.counters()["captures"] == INSTANCES * len(SIZES)


def test_answers_of_all_batches_are_those_of_the_cpu(project_for_gpu: GpuProject, endpoint: Endpoint) -> None:
    """Batches between two sizes are filled up and cut back."""
    batch = padded(rows("resnet50", 8))
    expected = on_the_cpu(project_for_gpu, "camera", batch)
    with Client(endpoint.grpc) as client:
        for size in (1, 3, 5, 8):
            reply = client.model("camera").predict(inputs={name: array[:size] for name, array in batch.items()})
            np.testing.assert_allclose(reply["logits"], expected[:size], rtol=1e-4, atol=1e-5)
    assert project_for_gpu.cuda.counters()["replays"] > 0


def test_texts_of_different_lengths_share_runs(project_for_gpu: GpuProject, endpoint: Endpoint) -> None:
    """Many callers at the same time get what each gets alone."""
    texts = rows("encoder", 16)
    assert len({len(text["input_ids"]) for text in texts}) > 1

    async def call() -> list[Any]:
        async with AsyncClient(endpoint.grpc) as client:
            model = await client.model("letters")
            return await asyncio.gather(*(model.predict(inputs=text) for text in texts))

    for text, reply in zip(texts, asyncio.run(call()), strict=True):
        expected = on_the_cpu(project_for_gpu, "letters", padded([text]))
        np.testing.assert_allclose(np.atleast_2d(reply["embedding"]), expected, rtol=1e-3, atol=1e-4)


def test_commands_call_load_and_diagnose_the_server(
    project_for_gpu: GpuProject, endpoint: Endpoint, tmp_path: Path
) -> None:
    """`call` prints the answer of the CPU; a load is answered rightly; a diagnosis knows the model."""
    root, batch = project_for_gpu.root, padded(rows("resnet50", 1))
    np.save(tmp_path / "pixels.npy", batch["pixels"])
    told = ("--address", endpoint.grpc, "--json")
    called = tritonkit("call", "camera", "--input", f"pixels=@{tmp_path / 'pixels.npy'}", *told, cwd=root)
    assert called.returncode == 0, called.stderr
    answer = np.array(json.loads(called.stdout)["outputs"]["logits"])
    np.testing.assert_allclose(answer, on_the_cpu(project_for_gpu, "camera", batch), rtol=1e-4, atol=1e-5)
    loaded = tritonkit("load", "camera", "letters", "--rate", "20", "--duration", "2s", *told, cwd=root)
    assert loaded.returncode in (0, 1), loaded.stderr  # 1 where this machine had no core to send in time
    series = json.loads(loaded.stdout)["series"]
    assert [(one["model"], one["failures"]) for one in series] == [("camera", 0), ("letters", 0)]
    assert all(one["right"] == one["requests"] > 0 for one in series)
    diagnosed = tritonkit("diagnose", "camera", "--load", "20", "--duration", "2s", *told, cwd=root)
    assert diagnosed.returncode == 0, diagnosed.stderr
    assert "camera" in diagnosed.stdout


def test_tune_searches_ways_on_the_gpu(project_for_gpu: GpuProject) -> None:
    """The present way and others are measured on servers of its own, and one holds the target.

    The search ends by itself, long before its budget.
    """
    search = ("--objective", "latency", "--rate", "20", "--slo", "p50=10s", "--budget", "10m", "--trial", "1s")
    done = tritonkit("tune", "camera", "--target", "gpu", *search, "--json", cwd=project_for_gpu.root)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["target"], facts["best"]["rate_per_s"]) == ("gpu", 20)
    assert facts["ended"] == ""
    assert any(one["point"]["group"]["gpus"] for one in facts["evaluations"])


OBSTACLES = {
    "environment": "the server environment is for CPUs",
    "library": "CUDA's libraries are incomplete: libcublas.so.13",
    "memory": f"64 MiB of {GPU_BYTES // MIB} MiB free; processes hold it: 4711 ({GPU_BYTES // MIB - 64} MiB)",
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_each_obstacle_is_one_message(project_for_gpu: GpuProject, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment for CPUs, a library that is gone, and memory that another process holds."""
    if case == "memory":
        project_for_gpu.driver.answer(monkeypatch, free=CONTEXT_BYTES)
    if case == "environment":
        monkeypatch.setenv(VENV_VARIABLE, str(SERVER))
    library = next(project_for_gpu.environment.glob(f"lib/python3.*/site-packages/{CUBLAS}"))
    with without(library) if case == "library" else nullcontext():
        ended = tritonkit("serve", "--repository", str(project_for_gpu.repository), "--model", "camera", *ANY_PORTS)
    assert OBSTACLES[case] in failed(ended, 4)


@contextmanager
def without(file: Path) -> Iterator[None]:
    """The file is not there for the duration of a block."""
    aside = file.rename(file.with_suffix(".aside"))
    try:
        yield
    finally:
        aside.rename(file)
