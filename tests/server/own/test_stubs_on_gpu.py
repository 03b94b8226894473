"""Models of instance kind GPU in Triton's Python, on a real tritonserver that sees GPUs of tests/fakecuda.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto
from tritonclient.grpc import InferenceServerClient

from tests.fakecuda import FakeCuda
from tests.server.onnx_models import BATCH, identity, through, write_model
from tests.server.raw import SOURCES, ask, start_triton

PLAIN = f"max_batch_size: {BATCH}\n" + through("FP32 [2]") + "\n"
ON_GPU = PLAIN + "instance_group { kind: KIND_GPU gpus: [1] }\n"
SIZES = "optimization { cuda { graphs: true graph_spec { batch_size: 1 } graph_spec { batch_size: 8 } } }"
WITHOUT_GPU = (
    "torch is not installed in the server's environment",
    "this environment's PyTorch has no CUDA: tritonkit server install --gpu --torch",
    "cuda:1: CUDA error: operation not supported",  # PyTorch's own calls, which tests/fakecuda.py does not have
)
"""Reasons of PyTorch's stand-in: without PyTorch, with one for CPUs, and with one for CUDA."""
REPORT = """
import json
import triton_python_backend_utils as pb_utils
from pytorch_sizes import read_sizes

class TritonPythonModel:
    def initialize(self, args):
        place = args["model_instance_kind"], args["model_instance_device_id"]
        pb_utils.Logger.log_info(f"instance {place} {read_sizes(json.loads(args['model_config']))}")

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", r.inputs()[0].as_numpy())]) for r in requests]
"""


def test_stand_ins_name_what_they_lack_for_a_gpu(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    """ONNX Runtime's stand-in is for the CPU, PyTorch's needs a PyTorch with CUDA; other models are served."""
    repository = tmp_path / "repository"
    identity(repository / "cpu", TensorProto.FLOAT, ["n", 2], PLAIN + "instance_group { kind: KIND_CPU }")
    identity(repository / "onnx", TensorProto.FLOAT, ["n", 2], ON_GPU)
    (write_model(repository / "script", 'backend: "pytorch"\n' + ON_GPU) / "model.pt").touch()
    with start_triton(repository, tmp_path, cuda=replace(fake_cuda, devices=2)) as running:
        with InferenceServerClient(running.address) as client:
            assert ask(client, "cpu", x=np.array([[1.5, 2]], np.float32))["y"].tolist() == [[1.5, 2]]
            assert not client.is_model_ready("onnx")
            assert not client.is_model_ready("script")
        log = running.log.read_text()
    assert "instance kind GPU found; this stand-in of the onnxruntime backend runs on the CPU only" in log
    assert any(reason in log for reason in WITHOUT_GPU)


def test_python_sees_its_gpu_and_the_sizes(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    """The arguments and the configuration as Triton hands them to a model, read as the PyTorch models do."""
    modules = (SOURCES / "backends" / name for name in ("backend_config.py", "pytorch/pytorch_sizes.py"))
    folder = write_model(tmp_path / "repository" / "report", 'backend: "python"\n' + ON_GPU + SIZES, *modules)
    (folder / "model.py").write_text(REPORT)
    with start_triton(tmp_path / "repository", tmp_path, cuda=replace(fake_cuda, devices=2)) as running:
        with InferenceServerClient(running.address) as client:
            assert ask(client, "report", x=np.array([[1.5, 2]], np.float32))["y"].tolist() == [[1.5, 2]]
        log = running.log.read_text()
    assert f"instance ('GPU', '1') Sizes(sizes=(1, {BATCH}), graphs=True)" in log
