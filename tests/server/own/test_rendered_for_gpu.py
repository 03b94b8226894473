"""Configurations that are rendered for target gpu, in a real Triton with the native backend and a GPU that is not there
(tests/fakecuda.py)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc

from tests.fakecuda import FakeCuda
from tests.repository.render.cases import Case, read_gpu_cases
from tests.server.raw import Client, start_triton
from tests.server.sharing import present
from tests.waiting import PATIENCE_S, eventually
from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.repository.render import ModelPlan

DEVICES = 2
FEATURES = (
    "encoder_padded",
    "image",
    "image_free",
    "int8",
    "no_graphs",
    "on_cpu",
    "own_sizes",
    "sequence",
    "tiny",
    "tiny_on_gpus",
    "unbatched",
)
"""Cases of ONNX networks in tests/repository/render/gpu/specs/."""


@dataclass(frozen=True)
class Gpu:
    """A server with the rendered models, none of them loaded."""

    client: Client
    fake: FakeCuda
    plans: dict[str, ModelPlan]


def publish(case: Case, repository: Path) -> ModelPlan:
    """Write the only model of a case as a build would."""
    (plan,) = case.plans()
    (text,) = case.texts().values()
    version = repository / plan.name / "1"
    version.mkdir(parents=True)
    shutil.copy(case.artifact.folder / "model.onnx", version)
    (version.parent / "config.pbtxt").write_text(text)
    return plan


@pytest.fixture(scope="module")
def gpu(native: Path, compiled_fake_cuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    """A server with two GPUs."""
    folder = tmp_path_factory.mktemp("rendered")
    repository = folder / "repository"
    plans = {name: publish(read_gpu_cases(name, folder / name)["gpu"], repository) for name in FEATURES}
    fake = replace(compiled_fake_cuda.for_server(folder), devices=DEVICES, memory_bytes=8 << 30)
    with (
        start_triton(repository, folder, native, ["--model-control-mode=explicit"], fake) as running,
        grpc.InferenceServerClient(running.address) as client,
    ):
        yield Gpu(client, fake, plans)
        assert fake.counters()["faults"] == 0
    assert fake.left_over() == {}


def graphs_of(plan: ModelPlan) -> int:
    """The number of CUDA graphs on all GPUs together."""
    cuda = plan.optimization.cuda
    instances = sum((group.count or 0) * (len(group.gpus) or DEVICES) for group in plan.instances)
    return len(cuda.graph_spec) * instances if cuda and cuda.graphs else 0


def ask(client: Client, plan: ModelPlan, rows: int) -> tuple[int, ...]:
    """The shape of the first output for a request of zeros."""
    inputs = []
    for tensor in plan.inputs:
        shape = [*([rows] if plan.max_batch_size else []), *(64 if size < 0 else size for size in tensor.client_dims)]
        inputs.append(grpc.InferInput(tensor.name, shape, tensor.dtype))
        inputs[-1].set_data_from_numpy(np.zeros(shape, NUMPY_DTYPES[tensor.dtype]))
    sequence = {"sequence_id": 1, "sequence_start": True} if plan.sequence_batching else {}
    answer = client.infer(plan.name, inputs, client_timeout=PATIENCE_S, **sequence)
    return tuple(answer.as_numpy(plan.outputs[0].name).shape)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_rendered_network_is_served_with_its_graphs(feature: str, gpu: Gpu) -> None:
    """It loads, captures a graph for each size of each instance, and answers a batch that fills no size."""
    plan, before = gpu.plans[feature], gpu.fake.counters()
    gpu.client.load_model(plan.name, client_timeout=PATIENCE_S)
    captured = gpu.fake.counters()["captures"] - before["captures"]
    assert captured == graphs_of(plan)
    assert (gpu.fake.counters()["sessions"] > before["sessions"]) == (plan.instances[0].kind == "gpu")
    rows = min(1 if plan.sequence_batching else 3, plan.max_batch_size)
    free = [64 if size < 0 else size for size in plan.outputs[0].client_dims]
    assert ask(gpu.client, plan, rows) == (*([rows] if plan.max_batch_size else []), *free)
    gpu.client.unload_model(plan.name)
    eventually(lambda: plan.name not in present(gpu.client), "a model that is unloaded")
