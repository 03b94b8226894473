"""A real tritonserver that sees GPUs of tests/fakecuda.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto
from tritonclient.grpc import InferenceServerClient

from tests.fakecuda import FakeCuda
from tests.server.onnx_models import BATCH, identity, through
from tests.server.raw import ask, start_triton

PLAIN = f"max_batch_size: {BATCH}\n" + through("FP32 [2]") + "\n"
ON_CPU = PLAIN + "instance_group { kind: KIND_CPU }"


def test_a_server_sees_the_gpus_and_gives_all_their_memory_back(
    native: Path, fake_cuda: FakeCuda, tmp_path: Path
) -> None:
    """Triton's log has two GPUs, a model on the CPU is served as well, and nothing stays allocated."""
    identity(tmp_path / "repository" / "cpu", TensorProto.FLOAT, ["n", 2], ON_CPU)
    with start_triton(tmp_path / "repository", tmp_path, native, cuda=replace(fake_cuda, devices=2)) as running:
        with InferenceServerClient(running.address) as client:
            assert ask(client, "cpu", x=np.array([[1.5, 2]], np.float32))["y"].tolist() == [[1.5, 2]]
        log = running.log.read_text()
        assert "CUDA memory pool is created on device 1" in log
        assert "Pinned memory pool is created" in log
        assert fake_cuda.counters()["allocations"] > 0
    assert fake_cuda.left_over() == {}


def test_a_server_without_a_gpu_serves_on_the_cpu(native: Path, fake_cuda: FakeCuda, tmp_path: Path) -> None:
    """A server without a device has no pools and serves as on any machine."""
    identity(tmp_path / "repository" / "cpu", TensorProto.FLOAT, ["n", 2], ON_CPU)
    with start_triton(tmp_path / "repository", tmp_path, native, cuda=replace(fake_cuda, devices=0)) as running:
        with InferenceServerClient(running.address) as client:
            assert ask(client, "cpu", x=np.array([[1.5, 2]], np.float32))["y"].tolist() == [[1.5, 2]]
        assert "memory pool is created on device" not in running.log.read_text()
    assert fake_cuda.counters()["peak_bytes"] == 0
