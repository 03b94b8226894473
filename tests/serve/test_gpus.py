"""Models that ask for a GPU: which ones a machine can serve, why the others cannot be, and the pools that they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakedriver import FakeDriver, write_cuda_packages
from tests.server.models import ModelText, write_repository
from tritonkit.serve.core import devices
from tritonkit.serve.core.flags import server_arguments
from tritonkit.serve.core.pools import CUDA_BYTES, PINNED_BYTES, Pools
from tritonkit.serve.gpus import devices_of, doing_without, plan_pools
from tritonkit.serve.install import ServerInstallation, how_to_change
from tritonkit.serve.managed import managed_place
from tritonkit.serve.repository import ServedModel, read_models
from tritonkit.serve.selection import Selection, select
from tritonkit.serve.shm import MIB

GIB = 1 << 30
IMAGE = """backend: "onnxruntime"
max_batch_size: 64
input { name: "x" data_type: TYPE_UINT8 dims: [3, 224, 224] }
output { name: "y" data_type: TYPE_FP32 dims: [1000] }
"""
ON_GPU = IMAGE + "instance_group { kind: KIND_GPU count: 2 }\n"
ON_CPU = IMAGE + "instance_group { kind: KIND_CPU }\n"
PYTHON = ON_GPU.replace("onnxruntime", "python")


def models_of(folder: Path, **configs: str) -> tuple[ServedModel, ...]:
    """Models given by their configurations, each with a file of 1 MiB."""
    write_repository(folder, {name: ModelText(text) for name, text in configs.items()})
    for name in configs:
        (folder / name / "1" / "model.onnx").write_bytes(bytes(MIB))
    return read_models(folder)


@pytest.fixture
def gpu_server(fake_driver: FakeDriver, tmp_path: Path) -> ServerInstallation:
    """A server of empty files in an environment for GPUs."""
    folder = tmp_path / "environment"
    write_cuda_packages(folder / "lib" / "python3.12" / "site-packages", fake_driver)
    return ServerInstallation(folder / "t", "1", folder, folder, native=False, python_bin=folder / "bin")


@pytest.fixture
def cpu_server(tmp_path: Path) -> ServerInstallation:
    """The same for CPUs."""
    folder = tmp_path / "for_cpus"
    return ServerInstallation(folder / "t", "1", folder, folder, native=False, python_bin=folder / "bin")


def without(server: ServerInstallation, folder: Path, **configs: str) -> Selection:
    """The selection of these models, without those that cannot be served."""
    return doing_without(server, select(models_of(folder, **configs), {}, None, ())).selection


def test_models_on_the_cpu_ask_no_driver(cpu_server: ServerInstallation, tmp_path: Path) -> None:
    """A machine without a GPU serves them, and has no pools."""
    models = models_of(tmp_path / "r", one=ON_CPU)
    on_gpus = doing_without(cpu_server, select(models, {}, None, ()))
    assert (list(on_gpus.selection.models), on_gpus.gpus, on_gpus.notes) == (["one"], 0, ())
    assert plan_pools(models, on_gpus.gpus) == Pools()


def test_a_model_that_can_be_served_is(
    gpu_server: ServerInstallation, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver, the environment and the provider are there, and so is the memory."""
    fake_driver.answer(monkeypatch)
    assert list(without(gpu_server, tmp_path / "r", one=ON_GPU, two=ON_CPU).models) == ["one", "two"]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_without_a_gpu_the_others_are_served(gpu_server: ServerInstallation, tmp_path: Path) -> None:
    """The message says what is missing and what to build instead; Python that asks for a GPU is refused, too."""
    selection = without(gpu_server, tmp_path / "r", one=ON_GPU, python=PYTHON, two=ON_CPU)
    assert list(selection.models) == ["two"]
    assert list(selection.refused) == ["one", "python"]
    error = selection.refused["one"]
    assert error.where == "model one"
    assert error.found.startswith("its instance_group asks for a GPU (KIND_GPU): there is no NVIDIA driver")
    assert "tritonkit build --target cpu" in error.todo


def test_an_environment_for_cpus_is_named(
    cpu_server: ServerInstallation, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command makes this very environment again; Python that brings its own CUDA is served."""
    fake_driver.answer(monkeypatch)
    selection = without(cpu_server, tmp_path / "r", one=ON_GPU, python=PYTHON)
    assert list(selection.models) == ["python"]
    error = selection.refused["one"]
    assert "the server environment is for CPUs" in error.found
    assert error.todo.endswith(f"python_backends/environment.py {cpu_server.folder} --gpu")


@pytest.mark.parametrize(
    ("facts", "found", "todo"),
    [
        ({"cuda": 12080, "version": "570.86.10"}, "570.86.10 runs CUDA 12.8 at most", "install driver 580"),
        ({"free": 66 * MIB}, "66 MiB of 81920 MiB free; processes hold it: 4711 (81854 MiB)", "CUDA_VISIBLE_DEVICES"),
    ],
    ids=["driver", "memory"],
)
def test_what_the_driver_lacks_is_said(
    gpu_server: ServerInstallation,
    fake_driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    facts: dict[str, str | int],
    found: str,
    todo: str,
) -> None:
    """An old driver refuses every model; memory that another process holds refuses those that have no room left."""
    fake_driver.answer(monkeypatch, **facts)
    selection = without(gpu_server, tmp_path / "r", one=ON_GPU, two=ON_GPU)
    last = selection.refused["two"]
    assert found in last.found
    assert todo in last.todo
    assert list(selection.models) == (["one"] if "free" in facts else [])


def test_a_driver_that_hangs_refuses_its_models_alone(
    gpu_server: ServerInstallation, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The start goes on without the models that ask for a GPU, after a bounded wait."""
    fake_driver.answer(monkeypatch, hangs=1)
    monkeypatch.setattr(devices, "_ASK_S", 0.5)
    selection = without(gpu_server, tmp_path / "r", one=ON_GPU, two=ON_CPU)
    assert list(selection.models) == ["two"]
    assert selection.refused["one"].found.endswith("the NVIDIA driver hangs: no answer within 0.5 s")


def test_a_library_that_is_missing_is_named(
    gpu_server: ServerInstallation, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The provider is tried before the server starts."""
    fake_driver.answer(monkeypatch)
    assert gpu_server.folder is not None
    next(gpu_server.folder.rglob("libcublas.so.13")).unlink()
    error = without(gpu_server, tmp_path / "r", one=ON_GPU, two=ON_CPU).refused["one"]
    assert error.found.endswith("CUDA's libraries are incomplete: libcublas.so.13")


def test_a_gpu_that_is_not_there_is_named(
    gpu_server: ServerInstallation, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """GPUs are counted as CUDA sees them, from 0."""
    fake_driver.answer(monkeypatch)
    text = ON_GPU.replace("count: 2", "gpus: [0, 1]")
    error = without(gpu_server, tmp_path / "r", one=text).refused["one"]
    assert (error.found, error.wanted) == ("its instance_group names GPU 1, and CUDA sees 1 here", "GPU 0 alone")
    fake_driver.answer(monkeypatch, devices=2)
    assert not without(gpu_server, tmp_path / "s", one=text).refused


def test_an_ensemble_goes_with_its_part(
    cpu_server: ServerInstallation, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The ensemble is refused for its part, and what is left is served."""
    fake_driver.answer(monkeypatch, devices=0)
    ensemble = """platform: "ensemble" max_batch_size: 64
input { name: "x" data_type: TYPE_UINT8 dims: [3, 224, 224] }
output { name: "y" data_type: TYPE_FP32 dims: [1000] }
ensemble_scheduling { step { model_name: "one" model_version: -1
  input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } }
"""
    selection = without(cpu_server, tmp_path / "r", all=ensemble, one=ON_GPU, two=ON_CPU)
    assert list(selection.models) == ["two"]
    assert selection.refused["all"].found == "it calls one, which cannot be served"


def test_instances_are_on_every_gpu_unless_it_is_named(tmp_path: Path) -> None:
    """Triton makes a group's instances on each GPU."""
    (model,) = models_of(tmp_path / "r", one=ON_GPU)
    assert devices_of(model, 2) == {0: 2, 1: 2}
    (model,) = models_of(tmp_path / "s", one=ON_GPU + "instance_group { kind: KIND_GPU gpus: [1] }\n")
    assert devices_of(model, 2) == {0: 2, 1: 3}


def test_pools_have_room_for_every_instances_batch(tmp_path: Path) -> None:
    """Two instances on each of two GPUs; small models leave Triton's own sizes."""
    models = models_of(tmp_path / "r", one=ON_GPU.replace("UINT8", "FP32").replace("64", "128"))
    batch = 111 * MIB  # 128 * 1.5 * (602,112 + 4,000 bytes), in whole MiB
    assert plan_pools(models, 2) == Pools(4 * batch, {0: 2 * batch, 1: 2 * batch})
    assert plan_pools(models_of(tmp_path / "s", one=ON_GPU), 1) == Pools(PINNED_BYTES, {0: CUDA_BYTES})


def test_pools_become_flags(tmp_path: Path) -> None:
    """One flag for pinned memory, and one for each GPU; without a GPU nothing is pinned."""

    def pools(pinned: int, cuda: dict[int, int]) -> list[str]:
        words = server_arguments(
            binary=tmp_path,
            repository=tmp_path,
            backends=tmp_path,
            models=[],
            caches=None,
            limits_rate=False,
            drain_s=1,
            prefix="p",
            region_bytes=MIB,
            grpc_host="127.0.0.1",
            grpc_port=1,
            pinned_bytes=pinned,
            cuda_bytes=cuda,
        )
        return [word for word in words if "pool-byte-size" in word]

    assert pools(GIB, {0: MIB, 1: 2 * MIB}) == [
        f"--pinned-memory-pool-byte-size={GIB}",
        f"--cuda-memory-pool-byte-size=0:{MIB}",
        f"--cuda-memory-pool-byte-size=1:{2 * MIB}",
    ]
    if not Path("/dev/nvidiactl").exists():
        assert pools(0, {}) == ["--pinned-memory-pool-byte-size=0"]


def test_the_installed_environment_is_changed_by_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its folder is known below a link, too; another environment is changed by the script that made it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder, command in (
        (managed_place().resolve(), "tritonkit server install --gpu"),
        (tmp_path, f"environment.py {tmp_path} --gpu"),
    ):
        server = ServerInstallation(folder / "t", "1", folder, folder, native=False, python_bin=folder / "bin")
        assert how_to_change(server).endswith(command)
