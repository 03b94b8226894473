"""Tensors in a GPU's memory with a real Triton, where the GPU is not there: see tests/fakecuda.py."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.shm.fake_gpu import CudaTensor, as_torch, fake_gpus
from tests.fakecuda import FakeCuda
from tests.server.cuda_models import ON_GPU, cuda, double, warm_up
from tests.server.cuda_models import ROWS as NUMBERS
from tests.server.models import ModelText, write_repository
from tests.server.raw import start_triton
from tritonkit.client import Client
from tritonkit.client.shm import DeviceArray, SharedMemory

ROWS, SIZE = 4, 1000
CONFIG = f"""backend: "python"
max_batch_size: {ROWS}
input {{ name: "x" data_type: TYPE_FP16 dims: [{SIZE}] }}
output {{ name: "y" data_type: TYPE_FP16 dims: [{SIZE}] }}
instance_group {{ kind: KIND_CPU }}
"""
DOUBLE = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x + x)]) for x in given]
"""


def test_tensors_go_and_come_on_the_gpu(fake_cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton opens the client's memory by its handle; it reads inputs and writes outputs there."""
    torch = pytest.importorskip("torch")
    repository = write_repository(tmp_path / "repository", {"double": ModelText(CONFIG, DOUBLE)})
    values = torch.arange(2 * SIZE).reshape(2, SIZE).to(torch.float16)
    with fake_gpus(monkeypatch) as gpus, start_triton(repository, tmp_path, cuda=fake_cuda) as running:
        with Client(running.address, shared_memory=SharedMemory(device=0, device_outputs=True)) as client:
            x = CudaTensor(gpus, values)
            for given in (x, values):
                y: Any = client.model("double").predict(x=given)["y"]
                assert isinstance(y, DeviceArray)
                assert np.asarray(y).tolist() == (2 * values).tolist()
            again = client.model("double").predict(x=y)["y"]
            tensor = as_torch(gpus, again, max_version=(1, 0))
            assert x.host_copies == 0
            counters = fake_cuda.counters()
            assert (counters["to_host"], counters["to_device"]) == (3, 3)  # inputs for a model on the CPU, its outputs
            regions = len(gpus.taken) - 1
        assert tensor.tolist() == (4 * values).tolist()
        assert regions == 2
        del y, again, tensor
        gc.collect()
        assert len(gpus.taken) == 1  # the tensor's own


def test_a_model_on_the_gpu_uses_the_clients_memory(
    native: Path, fake_cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the client's tensor to the client's output no byte comes to the host: neither here nor in the server."""
    torch = pytest.importorskip("torch")
    repository = tmp_path / "repository"
    double(repository / "plain", ON_GPU)
    double(repository / "graphs", ON_GPU + cuda() + warm_up())
    values = torch.arange(2.0 * NUMBERS).reshape(2, NUMBERS)
    with (
        fake_gpus(monkeypatch) as gpus,
        start_triton(repository, tmp_path, native, cuda=fake_cuda) as running,
        Client(running.address, shared_memory=SharedMemory(device=0, device_outputs=True)) as client,
    ):
        x = CudaTensor(gpus, values)
        for name in ("plain", "graphs"):
            client.model(name).predict(x=x)  # the first run of a size may bring constants to the GPU
            before = fake_cuda.counters()
            y: Any = client.model(name).predict(x=x)["y"]
            after = fake_cuda.counters()
            assert as_torch(gpus, y).tolist() == (2 * values).tolist()
            assert [after[way] - before[way] for way in ("to_host", "to_device")] == [0, 0]
        assert x.host_copies == 0
