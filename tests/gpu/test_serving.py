"""Models on a GPU in a real server: right answers in every batch, and nothing left afterwards.

The repository is that of `make gpu`: run it once, and `make lane LANE=gpu` has it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.gpu.requests import Item, items, padded
from tests.parts import PROJECT, SERVER
from tests.waiting import eventually
from tritonkit.client import AsyncClient, Client
from tritonkit.client.shm import SharedMemory
from tritonkit.serve import Endpoint, Server

pytestmark = pytest.mark.gpu

REPOSITORY = Path(os.environ.get("TRITONKIT_GPU_REPOSITORY") or PROJECT / ".tritonkit/gpu/models/repository")
MODELS = ("resnet50_fp32", "resnet50_fp16", "encoder_fp16", "mlp_fp32")
CLOSE = 5e-3
"""A share of the largest number: TF32 and FP16 were within 6e-4 of the CPU's FP32 arithmetic."""
ENGINE = """
import sys
import numpy, onnxruntime
arrays = dict(numpy.load(sys.argv[2]))
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
numpy.save(sys.argv[3], session.run(None, arrays)[0])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server of all models, with shared memory."""
    root = tmp_path_factory.mktemp("gpu")
    ports = {"grpc_port": 0, "metrics_port": 0}
    running = Server(REPOSITORY, models=MODELS, root=root, shared_memory_api=True, require=MODELS, **ports)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def endpoint(server: Server) -> Endpoint:
    """Its addresses."""
    return server.endpoint


def rows(model: str, count: int) -> list[Item]:
    """Requests of one item."""
    return items(model.partition("_")[0], count, seed=7)


def on_the_cpu(model: str, batch: Item, folder: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The answer of ONNX Runtime's CPU provider, in the server environment's Python."""
    arrays: dict[str, Any] = {**batch}
    np.savez(folder / "in.npz", **arrays)
    file = next(REPOSITORY.glob(f"{model}/*/model.onnx"))
    python = SERVER / "bin" / "python"
    subprocess.run([python, "-c", ENGINE, file, folder / "in.npz", folder / "out.npy"], check=True)
    answer: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = np.load(folder / "out.npy")
    return answer


def assert_close(answer: Any, expected: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    """The same within what half precision allows."""
    np.testing.assert_allclose(answer, expected, rtol=0, atol=CLOSE * float(np.abs(expected).max()))


@pytest.mark.parametrize("model", MODELS)
def test_answers_are_those_of_the_cpu_in_every_batch(endpoint: Endpoint, tmp_path: Path, model: str) -> None:
    """Batches between two graphs' sizes are rounded up and cut back, and no answer depends on its neighbors."""
    batch = padded(rows(model, 64))
    expected = on_the_cpu(model, batch, tmp_path)
    with Client(endpoint.grpc) as client:
        for size in (1, 2, 3, 5, 17, 33, 63, 64):
            reply = client.model(model).predict(inputs={name: array[:size] for name, array in batch.items()})
            (answer,) = (reply[name] for name in reply)
            assert answer.shape == expected[:size].shape
            assert_close(answer, expected[:size])


def test_texts_of_all_lengths_share_batches(endpoint: Endpoint, tmp_path: Path) -> None:
    """Many callers at the same time get what each gets alone."""
    texts = rows("encoder_fp16", 64)

    async def call() -> list[object]:
        async with AsyncClient(endpoint.grpc) as client:
            model = await client.model("encoder_fp16")
            replies = await asyncio.gather(*(model.predict(inputs=text) for text in texts))
        return [reply["embedding"] for reply in replies]

    expected = on_the_cpu("encoder_fp16", padded(texts), tmp_path)
    for answer, row in zip(asyncio.run(call()), expected, strict=True):
        assert_close(answer, row[None])


def test_shared_memory_gives_the_same(endpoint: Endpoint, tmp_path: Path) -> None:
    """Pinned staging reads regions that a client wrote."""
    batch = padded(rows("resnet50_fp16", 8))
    with Client(endpoint.grpc, admin_key=endpoint.admin_key, shared_memory=SharedMemory(smallest=1)) as client:
        reply = client.model("resnet50_fp16").predict(inputs=batch)
        assert_close(np.array(reply["logits"]), on_the_cpu("resnet50_fp16", batch, tmp_path))


def test_the_instances_are_on_the_gpu(endpoint: Endpoint) -> None:
    """The served configuration says so, and so do Triton's metrics once NVIDIA's library has begun to sample."""
    import urllib.request

    with Client(endpoint.grpc) as client:
        for model in MODELS:
            kinds = {group.kind for group in client.config(model).instance_group}
            assert kinds <= {1, 2}, model  # KIND_GPU or, for a tiny network, KIND_CPU
        assert {group.kind for group in client.config("resnet50_fp16").instance_group} == {1}

    def used() -> bool:
        with urllib.request.urlopen(f"http://{endpoint.metrics}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        memory = [line.split()[-1] for line in lines if line.startswith("nv_gpu_memory_used_bytes")]
        return any(float(value) > 1e8 for value in memory)

    eventually(used, "GPU memory in Triton's metrics")


def test_nothing_is_left_on_the_gpu(tmp_path: Path) -> None:
    """A server that ends gives its memory back, and its process is gone from nvidia-smi's list."""
    server = Server(REPOSITORY, models=["resnet50_fp16"], root=tmp_path, grpc_port=0, metrics_port=0)
    pid = server.start().pid
    server.stop()
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    eventually(lambda: str(pid) not in subprocess.run(query, capture_output=True, text=True).stdout.split())
