"""The serve room with a real Triton and models that ask for a GPU, which is not there or not real."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakecuda import FakeCuda
from tests.fakedriver import FakeDriver
from tests.server.cuda_models import COLUMNS, cuda, product
from tests.server.cuda_models import ON_GPU as ON_GPU_ONCE
from tests.server.models import ModelText, write_repository
from tests.server.onnx_models import BATCH
from tritonkit.repository.publish.integrity import MANIFEST
from tritonkit.repository.render.gpu_memory import CONTEXT_BYTES
from tritonkit.serve import Endpoint, ServeEvent, serve
from tritonkit.serve.shm import MIB

FREE = {"grpc_port": 0, "metrics_port": 0}
ON_CPU = ModelText()
ON_GPU = ModelText(ModelText().config + "instance_group { kind: KIND_GPU count: 2 }\n")
LARGE = ModelText(ON_GPU.config.replace("dims: [4]", "dims: [12000000]"))


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_without_a_gpu_the_other_models_are_served(tmp_path: Path) -> None:
    """The model that asks for a GPU is named with the reason, before Triton starts."""
    repository = write_repository(tmp_path / "repository", {"cpu": ON_CPU, "gpu": ON_GPU})
    events: list[ServeEvent] = []
    with serve(repository, on_event=events.append, **FREE) as endpoint:
        assert endpoint.models == ("cpu",)
        assert "(KIND_GPU): there is no NVIDIA driver" in endpoint.failed["gpu"]
    (refusal,) = (event.message for event in events if event.kind == "not_served")
    assert "tritonkit build --target cpu" in refusal


def test_models_on_gpus_are_served_with_pools_for_them(
    fake_cuda: FakeCuda, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that sees a GPU gets pools with room for the batches of its models, by the driver's count of GPUs."""
    fake_driver.answer(monkeypatch)
    for name, value in replace(fake_cuda, memory_bytes=3 << 30).variables.items():
        monkeypatch.setenv(name, value)
    repository = write_repository(tmp_path / "repository", {"cpu": ON_CPU, "gpu": LARGE})

    def pools(endpoint: Endpoint) -> list[str]:
        return [line.partition("] ")[2] for line in endpoint.log.read_text().splitlines() if "memory pool is" in line]

    with serve(repository, **FREE) as endpoint:
        assert (endpoint.models, dict(endpoint.failed)) == (("cpu", "gpu"), {})
        pinned, cuda = pools(endpoint)
    batch = 550 * MIB  # 4 items of 2 tensors of 48 MB, and half as much again, in whole MiB
    assert "Pinned memory pool is created" in pinned
    assert f"size {2 * batch}" in pinned
    assert "CUDA memory pool is created on device 0" in cuda
    assert f"size {2 * batch}" in cuda


def test_models_that_may_not_fit_are_served_with_a_warning(
    gpu_machine: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The build's figure for a batch is an estimate; a model that surely has no room is left out, with its share."""
    for name, more in (("fits", ""), ("large", cuda((BATCH,)))):
        folder = tmp_path / "repository" / name
        product(folder, ON_GPU_ONCE + more, columns=COLUMNS if name == "fits" else 1_000_000)
        manifest = {"start": {"memory_bytes": 800 * MIB, "processor_s": 0.1}, "files": {}}
        (folder / "1" / MANIFEST).write_text(json.dumps(manifest))
    monkeypatch.setenv("FAKE_DRIVER_FREE", str(CONTEXT_BYTES + 8 * MIB))
    events: list[ServeEvent] = []
    with serve(tmp_path / "repository", on_event=events.append, **FREE) as endpoint:
        assert endpoint.models == ("fits",)
        assert endpoint.failed["large"].startswith("GPU 0 (NVIDIA H100 80GB HBM3) has 72 MiB of 3072 MiB free")
    refusals = [event.message for event in events if event.kind == "not_served"]
    assert any("the server 64 MiB, fits" in refusal and "large" in refusal for refusal in refusals)
    notes = [event.message for event in events if event.kind == "short_of_memory"]
    assert any("a largest batch, by the CPU's figures 800 MiB" in note for note in notes)
