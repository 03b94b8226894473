"""TensorRT plans: what each is for, and the models that a machine with another TensorRT or GPU serves without."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path

import pytest

from tests.fakedriver import Compile, FakeDriver, WriteTensorRT
from tests.parts import PROJECT
from tests.server.models import ModelText, write_repository
from tests.waiting import eventually
from tritonkit.serve.core import plans
from tritonkit.serve.core.plans import BuiltFor, built_for, find_tensorrt
from tritonkit.serve.gpus import doing_without
from tritonkit.serve.install import ServerInstallation
from tritonkit.serve.repository import read_models
from tritonkit.serve.selection import Selection, select

PLAN = BuiltFor("10.5.0", "9.0", "NVIDIA H100 80GB HBM3")
FACTS = {"tensorrt_version": "10.5.0", "compute_capability": "9.0", "gpu": "NVIDIA H100 80GB HBM3"}
H100, L4 = ("GPU 0 (NVIDIA H100 80GB HBM3)", "9.0"), ("GPU 0 (NVIDIA L4)", "8.9")
TENSORS = """input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] }
"""
ON_GPU = 'backend: "tensorrt"\n' + TENSORS + "instance_group { kind: KIND_GPU }\n"
ON_CPU = 'backend: "onnxruntime"\n' + TENSORS + "instance_group { kind: KIND_CPU }\n"
JOINED = (
    'platform: "ensemble"\n' + TENSORS + 'ensemble_scheduling { step { model_name: "plan"'
    ' input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } }\n'
)


@pytest.mark.parametrize(
    ("plan", "tensorrt", "device", "wrong"),
    [
        (PLAN, "10.5.0", H100, ""),
        (PLAN, "10.5.0.18", H100, ""),
        (PLAN, "", H100, ""),
        (PLAN, "10.6.0", H100, "its plan was built by TensorRT 10.5.0, and here is 10.6.0"),
        (PLAN, "10.5.0", L4, "for compute capability 9.0 (NVIDIA H100 80GB HBM3), and GPU 0 (NVIDIA L4) has 8.9"),
        (BuiltFor("10.5.0.18", "9.0", "H100", newer=True), "10.6.0", H100, ""),
        (BuiltFor("10.5.0", "9.0", "H100", newer=True), "10.4.1", H100, "here is 10.4.1"),
        (BuiltFor("10.5.0", "9.0", "H100", newer=True), "11.0.0", H100, "here is 11.0.0"),
        (BuiltFor("10.5.0", "8.0", "A100", "ampere_plus"), "10.5.0", L4, ""),
        (BuiltFor("10.5.0", "8.0", "A100", "ampere_plus"), "10.5.0", ("GPU 1 (T4)", "7.5"), "GPU 1 (T4) has 7.5"),
        (BuiltFor("10.5.0", "9.0", "H100", "same_compute_capability"), "10.5.0", L4, "has 8.9"),
    ],
)
def test_a_plan_fits_its_version_and_its_gpu(
    plan: BuiltFor, tensorrt: str, device: tuple[str, str], wrong: str
) -> None:
    """Flags of the build widen both; an unknown version is TensorRT's own to judge."""
    found = plan.misfit(tensorrt, [device])
    assert wrong in found
    assert bool(wrong) == bool(found)


def test_what_a_plan_is_for_is_read_from_its_record(tmp_path: Path) -> None:
    """A plan of somebody else's, and a record that cannot be read, say nothing."""
    record = tmp_path / "plan.json"
    assert built_for(tmp_path) is None
    (tmp_path / "model.plan").write_bytes(b"plan")
    assert built_for(tmp_path) is None
    settings = {"hardware_compatibility": "ampere_plus", "version_compatible": True}
    record.write_text(json.dumps({**FACTS, "tensorrt": settings}))
    assert built_for(tmp_path) == BuiltFor(*FACTS.values(), "ampere_plus", newer=True)
    for text in ("{", "[]", "3", json.dumps({"gpu": "H100"})):
        record.write_text(text)
        assert built_for(tmp_path) is None


@pytest.mark.skipif(find_library("nvinfer") is not None, reason="this machine has TensorRT")
@pytest.mark.parametrize(("number", "version"), [(100500, "10.5.0"), (101303, "10.13.3"), (8601, "8.6.1")])
def test_the_library_says_its_version(
    number: int, version: str, write_tensorrt: WriteTensorRT, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in gives the numbers of NVIDIA's releases; without a library there is no version."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert find_tensorrt() == ""
    write_tensorrt(tmp_path, number)
    assert find_tensorrt() == version


@pytest.mark.skipif(find_library("nvinfer") is not None, reason="this machine has TensorRT")
def test_the_version_is_that_of_tritons_backend(
    write_tensorrt: WriteTensorRT, compile_c: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A newer library next to it is not the one that the server opens; one that is missing leaves the version open."""
    for major, number in ((10, 100500), (11, 110400)):
        write_tensorrt(tmp_path, number, major=major)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert find_tensorrt(tmp_path) == "11.4.0"
    backend = tmp_path / "tensorrt" / "libtriton_tensorrt.so"
    backend.parent.mkdir()
    source = tmp_path / "backend.c"
    source.write_text("int getInferLibVersion(void);\nint backend(void) { return getInferLibVersion(); }\n")
    compile_c(backend, source, "-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libnvinfer.so.10")
    assert find_tensorrt(tmp_path) == "10.5.0"
    (tmp_path / "libnvinfer.so.10").unlink()
    assert find_tensorrt(tmp_path) == ""


def test_a_library_that_hangs_is_left_alone(
    write_tensorrt: WriteTensorRT, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CUDA's driver may hang in the kernel, which then ends no process: nothing waits for that."""
    processes: list[subprocess.Popen[str]] = []
    write_tensorrt(tmp_path, 100500, "__attribute__((constructor)) static void hang(void) { for (;;) pause(); }")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(plans, "_ASK_S", 0.5)
    with monkeypatch.context() as unkillable:
        unkillable.setattr(subprocess.Popen, "kill", lambda process: processes.append(process))
        assert find_tensorrt() == ""
    (process,) = processes
    process.kill()
    eventually(lambda: process.returncode is not None, "the process is waited for once it can end")


def repository(folder: Path, version: str) -> Path:
    """A plan of this TensorRT, an ensemble of it, and another model."""
    write_repository(folder, {n: ModelText(t) for n, t in {"joined": JOINED, "other": ON_CPU, "plan": ON_GPU}.items()})
    (folder / "plan" / "1" / "model.plan").write_bytes(b"plan")
    (folder / "other" / "1" / "model.onnx").write_bytes(b"network")
    (folder / "plan" / "1" / "plan.json").write_text(json.dumps({**FACTS, "tensorrt_version": version}))
    return folder


def selected(folder: Path, version: str) -> Selection:
    """The selection of NVIDIA's server."""
    models = read_models(repository(folder, version))
    server = ServerInstallation(folder / "t", "1", folder, folder, native=True)
    return doing_without(server, select(models, {}, None, ())).selection


def test_serve_does_without_a_plan_for_another_version(
    fake_driver: FakeDriver, write_tensorrt: WriteTensorRT, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message says both versions and the command; the ensemble of it goes, too, and the others are served."""
    fake_driver.answer(monkeypatch)
    write_tensorrt(tmp_path, 100500)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path), prepend=":")
    assert set(selected(tmp_path / "same", "10.5.0").models) == {"joined", "other", "plan"}
    selection = selected(tmp_path / "r", "10.3.0")
    assert set(selection.models) == {"other"}
    assert set(selection.refused) == {"joined", "plan"}
    error = selection.refused["plan"]
    assert error.found == "its plan was built by TensorRT 10.3.0, and here is 10.5.0"
    assert "tritonkit build --target nvidia --in-container" in error.todo


LEFT_OUT = """if True:
    import json, sys
    sys.path.insert(0, sys.argv[1])
    from core.devices import Device, Driver, find_driver
    from fitting import Path, left_out, refusals
    cards = [Device("card", "", 1, None, capability) for capability in sys.argv[4:]]
    driver = (lambda: Driver(devices=tuple(cards))) if cards else find_driver
    print(*refusals(left_out(Path(sys.argv[2]), needs=json.loads(sys.argv[3]), driver=driver)), sep=chr(10))
"""
Lines = Callable[..., list[str]]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    """A function that gives the lines of the image about a repository, with GPUs of these compute capabilities."""
    image = tmp_path / "image"
    shutil.copytree(PROJECT / "deploy/docker", image, ignore=shutil.ignore_patterns("keys", "wheels"))
    shutil.copytree(PROJECT / "src/tritonkit/serve/core", image / "core")

    def read(folder: Path, needs: str = "{}", *capabilities: str) -> list[str]:
        command = [sys.executable, "-IS", "-c", LEFT_OUT, str(image), str(folder), needs, *capabilities]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]

    return read


def test_the_image_compares_with_the_gpus_of_the_model(lines: Lines, tmp_path: Path) -> None:
    """A GPU of another kind that does not run the plan does not matter; without the builder's word all count."""
    folder = repository(tmp_path / "r", "10.5.0")
    first, second = (json.dumps({"gpu_models": {"plan": {"groups": [[1, [n]]], "batch_bytes": 1}}}) for n in (0, 1))
    assert lines(folder, first, "9.0", "7.5") == [""]
    assert "and GPU 1 (card) has 7.5" in "".join(lines(folder, second, "9.0", "7.5"))
    assert "and GPU 1 (card) has 7.5" in "".join(lines(folder, "{}", "9.0", "7.5"))


@pytest.mark.parametrize(("older", "newer", "served"), [("10.3.0", "10.5.0", True), ("10.5.0", "10.3.0", False)])
def test_the_image_compares_the_newest_version(
    lines: Lines,
    write_tensorrt: WriteTensorRT,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    older: str,
    newer: str,
    served: bool,
) -> None:
    """Version 10 is newer than 9, though not by its letters."""
    write_tensorrt(tmp_path, 100500)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    plan = repository(tmp_path / "r", older) / "plan"
    shutil.copytree(plan / "1", plan / "10")
    (plan / "1").rename(plan / "9")
    (plan / "10" / "plan.json").write_text(json.dumps({**FACTS, "tensorrt_version": newer}))
    assert (lines(tmp_path / "r", "{}", "9.0") == [""]) is served


def test_the_image_does_without_it_too(
    lines: Lines,
    fake_driver: FakeDriver,
    write_tensorrt: WriteTensorRT,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """In the image the same module decides; a repository without plans needs no driver."""
    fake_driver.answer(monkeypatch)
    write_tensorrt(tmp_path, 100500)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path), prepend=":")
    assert lines(repository(tmp_path / "same", "10.5.0")) == [""]
    joined, plan = sorted(lines(repository(tmp_path / "r", "10.3.0")))
    assert plan.startswith("model plan: not served: its plan was built by TensorRT 10.3.0, and here is 10.5.0; do: ")
    assert joined.startswith("model joined: not served: it calls plan, which cannot be served")
