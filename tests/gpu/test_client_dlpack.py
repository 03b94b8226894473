"""The client's tensors on a GPU: torch gives them and takes them, and a real Triton reads and writes them there.

Without a GPU, `tests/client/shm/test_device_arrays.py` runs the same code on memory that no processor can read.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.server.models import ModelText, write_repository
from tests.server.own.test_cuda_shared_memory import DOUBLE
from tritonkit.client import Client, Model
from tritonkit.client.shm import DeviceArray, SharedMemory
from tritonkit.serve import Endpoint, serve

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("cuda") is None, reason="there is no package cuda-bindings"),
    pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="this PyTorch has no CUDA"),
]
SIZE = 100_000
TYPES = {"FP32": torch.float32, "FP16": torch.float16, "INT64": torch.int64, "BOOL": torch.bool}
LENT = SharedMemory(device=0, device_outputs=True)


def config(datatype: str) -> str:
    """A model that gives `x + x`, on the CPU."""
    tensors = [
        f'{side} {{ name: "{name}" data_type: TYPE_{datatype} dims: [{SIZE}] }}'
        for side, name in {"input": "x", "output": "y"}.items()
    ]
    return "\n".join(['backend: "python"', "max_batch_size: 4", *tensors, "instance_group { kind: KIND_CPU }"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Endpoint]:
    """Triton with a model for each type, and shared memory."""
    folder = tmp_path_factory.mktemp("dlpack")
    models = {f"double_{name.lower()}": ModelText(config(name), DOUBLE) for name in TYPES}
    repository = write_repository(folder / "model_repository", models)
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=project, shared_memory_api=True) as endpoint:
        yield endpoint


@pytest.fixture
def client(server: Endpoint) -> Iterator[Client]:
    """A client whose outputs stay on the GPU."""
    with Client(server.grpc, admin_key=server.admin_key, shared_memory=LENT) as client:
        yield client


@pytest.fixture
def model(client: Client) -> Model:
    """The model of float32."""
    return client.model("double_fp32")


def taken(output: Any) -> Any:
    """The output as torch's tensor, in the same memory."""
    assert isinstance(output, DeviceArray)
    tensor = torch.utils.dlpack.from_dlpack(output)
    assert tensor.is_cuda
    assert tensor.data_ptr() == output.address
    return tensor


@pytest.mark.parametrize("datatype", TYPES)
def test_tensors_go_and_come(client: Client, datatype: str) -> None:
    """Tensors of each type arrive, and outputs are right; numpy copies the same."""
    x = (torch.arange(3 * SIZE, device="cuda").reshape(3, SIZE) % 100).to(TYPES[datatype])
    y: Any = client.model(f"double_{datatype.lower()}").predict(x=x)["y"]
    assert torch.equal(taken(y), x + x)
    np.testing.assert_array_equal(np.asarray(y), (x + x).cpu().numpy())


def test_strides_gradients_and_casts(client: Client, model: Model) -> None:
    """Transposed tensors, those with a history, and a type that the model's holds."""
    x = torch.rand(SIZE, 4, device="cuda", requires_grad=True)
    assert torch.equal(taken(model.predict(x=x.T)["y"]), (2 * x.T).detach())
    small = torch.arange(SIZE, device="cuda", dtype=torch.int32)
    assert torch.equal(taken(client.model("double_int64").predict(x=small)["y"])[0], 2 * small.long())


@pytest.mark.parametrize("submitted", [False, True])
def test_a_copy_waits_for_the_callers_stream(model: Model, submitted: bool) -> None:
    """Values that a side stream computes late arrive, without a synchronization by the caller."""
    side = torch.cuda.Stream()
    x = torch.zeros(4, SIZE, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for number in range(1, 6):
            torch.cuda._sleep(20_000_000)
            x.fill_(number)
            reply = model.submit(x=x).result() if submitted else model.predict(x=x)
            assert torch.equal(taken(reply["y"]), torch.full_like(x, 2.0 * number))


def test_lent_memory_is_not_overwritten_while_work_reads_it(model: Model) -> None:
    """A tensor that is gone while a slow kernel has yet to read it: the next calls wait."""
    sums = []
    for number in range(1, 6):
        y = taken(model.predict(x=torch.full((1, SIZE), float(number), device="cuda"))["y"])
        torch.cuda._sleep(20_000_000)
        sums.append(y[0, :8].clone())
        del y
    assert [row.unique().tolist() for row in sums] == [[2.0 * number] for number in range(1, 6)]


def test_tensors_outlive_the_client(server: Endpoint) -> None:
    """The memory of a closed client is there until its last tensor is gone."""
    with Client(server.grpc, admin_key=server.admin_key, shared_memory=LENT) as client:
        kept = taken(client.model("double_fp32").predict(x=torch.ones(1, SIZE, device="cuda"))["y"])
    torch.zeros(64, SIZE, device="cuda")
    assert torch.equal(kept, torch.full_like(kept, 2.0))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_a_tensor_of_another_gpu(model: Model) -> None:
    """It is copied over, and torch's current GPU stays what it was."""
    with torch.cuda.device(1):
        x = torch.rand(1, SIZE, device="cuda:1")
        y = taken(model.predict(x=x)["y"])
        assert torch.cuda.current_device() == 1
    assert torch.equal(y.cpu(), 2 * x.cpu())


def test_without_shared_memory(server: Endpoint) -> None:
    """A plain client copies the tensor to the host once, and gets numpy's arrays."""
    x = torch.rand(1, SIZE, device="cuda")
    with Client(server.grpc) as client:
        np.testing.assert_array_equal(client.model("double_fp32").predict(x=x)["y"], (2 * x).cpu().numpy())
