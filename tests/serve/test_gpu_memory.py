"""Memory of a GPU before a start: models that surely have no room are refused, others are named in a warning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakedriver import FakeDriver
from tests.serve.test_gpus import ON_GPU, gpu_server, models_of
from tritonkit.repository.publish.integrity import MANIFEST
from tritonkit.repository.render.gpu_memory import CONTEXT_BYTES, PYTORCH_BYTES, ModelMemory
from tritonkit.serve.gpu_memory import SERVER_BYTES, needs_of
from tritonkit.serve.gpus import OnGpus, doing_without
from tritonkit.serve.install import ServerInstallation
from tritonkit.serve.repository import ServedModel
from tritonkit.serve.selection import select
from tritonkit.serve.shm import MIB

__all__ = ["gpu_server"]

Started = Callable[..., OnGpus]

GRAPHS = ON_GPU + "optimization { cuda { graphs: true graph_spec { batch_size: 64 } } }\n"
BATCH = 64 * (3 * 224 * 224 + 4 * 1000)
"""Bytes of a largest batch: UINT8 images, and FP32 scores."""
NETWORK = 20 * MIB
"""Bytes of a network in PyTorch."""


def published(folder: Path, item_bytes: int, **configs: str) -> tuple[ServedModel, ...]:
    """Models whose build measured the memory of one item."""
    models = models_of(folder, **configs)
    for model in models:
        text = json.dumps({"start": {"memory_bytes": 64 * item_bytes, "processor_s": 0.1}, "files": {}})
        (model.folder / "1" / MANIFEST).write_text(text)
    return models


def test_what_graphs_take_is_an_estimate(tmp_path: Path) -> None:
    """Instances with graphs have a session each and places for tensors; where none can be captured they share one."""
    graphs, plain = published(tmp_path / "r", 0, graphs=GRAPHS, plain=ON_GPU)
    weights = sum(file.stat().st_size for file in (graphs.folder / "1").iterdir() if file.name != MANIFEST)
    assert needs_of(graphs, 3) == ModelMemory(weights, copies=2 * weights, tensors=3 * BATCH)
    assert needs_of(plain, 3) == ModelMemory(weights)
    assert needs_of(graphs, 3).certain == needs_of(plain, 3).certain == weights


def test_what_was_measured_on_a_cpu_is_an_estimate(tmp_path: Path) -> None:
    """Runs of each instance do not count as certain."""
    (plain,) = published(tmp_path / "r", MIB, plain=ON_GPU)
    needs = needs_of(plain, 2)
    assert needs.runs == 2 * 64 * MIB
    assert needs.likely - needs.certain == needs.runs


@pytest.mark.parametrize(
    ("backend", "file"), [("pytorch", "model.pt"), ("python", "program.pt2"), ("python", "model.pt2")]
)
def test_each_instance_of_pytorch_is_a_process(backend: str, file: str, tmp_path: Path) -> None:
    """It has the weights of its own, and CUDA's context, at least."""
    (torch,) = published(tmp_path / "r", MIB, torch=GRAPHS.replace("onnxruntime", backend))
    write_network(torch, file)
    needs = needs_of(torch, 3)
    assert (needs.weights, needs.copies, needs.contexts) == (3 * NETWORK, 0, 3 * CONTEXT_BYTES)
    assert needs.certain == needs.weights + needs.contexts
    assert needs.contexts + needs.processes == 3 * PYTORCH_BYTES
    assert (needs.runs, needs.tensors) == (3 * 64 * MIB, 3 * BATCH)


def write_network(model: ServedModel, file: str) -> None:
    """Put files as a build writes them for PyTorch in place of the model's own."""
    folder = model.folder / "1"
    (folder / "model.onnx").unlink()
    (folder / file).write_bytes(bytes(NETWORK))
    (folder / "pytorch_network.py").write_text("")


@pytest.fixture
def started(
    gpu_server: ServerInstallation,
    fake_driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Started:
    """A start with a number of bytes free."""

    def start(free: int, item_bytes: int = 0, **configs: str) -> OnGpus:
        fake_driver.answer(monkeypatch, free=free)
        return doing_without(gpu_server, select(published(tmp_path / "r", item_bytes, **configs), {}, None, ()))

    return start


def test_a_model_without_room_is_refused_with_every_share(started: Started) -> None:
    """The server, the models before it, and its own weights; graphs, which may not be, take no room from others."""
    on_gpus = started(CONTEXT_BYTES + 5 * MIB // 2, first=GRAPHS, second=GRAPHS, third=ON_GPU)
    assert list(on_gpus.selection.models) == ["first", "second"]
    error = on_gpus.selection.refused["third"]
    assert error.exit_code == 4
    assert error.found.startswith("GPU 0 (NVIDIA H100 80GB HBM3) has 66 MiB of 81920 MiB free; processes hold it: 4711")
    shares = ", ".join(f"{name} 1 MiB (weights 1 MiB)" for name in ("first", "second", "third"))
    assert error.wanted == f"67 MiB at least: the server 64 MiB, {shares}"
    assert "smaller variant, or name" in error.todo


def test_a_model_in_pytorch_without_room_is_refused(
    gpu_server: ServerInstallation, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A model.py of a build counts; one of a user's own does not, which may run anything."""
    fake_driver.answer(monkeypatch, free=CONTEXT_BYTES + 150 * MIB)
    python = ON_GPU.replace("onnxruntime", "python")
    models = published(tmp_path / "r", 0, built=python, own=python)
    write_network(models[0], "program.pt2")
    selection = doing_without(gpu_server, select(models, {}, None, ())).selection
    assert list(selection.models) == ["own"]
    error = selection.refused["built"]
    assert error.wanted == "232 MiB at least: the server 64 MiB, built 168 MiB (weights 40 MiB, CUDA itself 128 MiB)"
    assert "fewer instances" in error.todo


def test_an_estimate_refuses_nothing(started: Started) -> None:
    """It is a warning that names the models; with room for all there is none."""
    on_gpus = started(SERVER_BYTES + 200 * MIB, MIB, first=GRAPHS, second=ON_GPU)
    assert not on_gpus.selection.refused
    (note,) = on_gpus.notes
    assert "its models may take 878 MiB (the server 600 MiB, first 149 MiB" in note
    assert "a largest batch, by the CPU's figures 128 MiB" in note
    assert "an estimate, so they are loaded" in note


def test_a_restart_refuses_no_model_by_memory(
    gpu_server: ServerInstallation, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Others may have grown meanwhile; a model of a server that died is loaded again, and there is no note."""
    fake_driver.answer(monkeypatch, free=MIB)
    models = published(tmp_path / "r", MIB, net=GRAPHS)
    on_gpus = doing_without(gpu_server, select(models, {}, None, ()), by_memory=False)
    assert (list(on_gpus.selection.models), on_gpus.gpus, on_gpus.notes) == (["net"], 1, ())


def test_with_room_there_is_no_note(started: Started) -> None:
    """Nor where the driver does not say what is free."""
    assert started(8 << 30, MIB, first=GRAPHS).notes == ()
