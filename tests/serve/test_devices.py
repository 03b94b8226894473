"""The driver's answers about GPUs, and whether the CUDA provider of an environment can be used."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fakedriver import FakeDriver, WriteDriver, write_cuda_packages
from tests.waiting import eventually
from tritonkit.serve.core import devices
from tritonkit.serve.core.cuda import cuda_libraries, why_no_provider
from tritonkit.serve.core.devices import find_driver
from tritonkit.serve.shm import MIB

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def environment(folder: Path, driver: FakeDriver) -> Path:
    """An environment for GPUs of libraries that do nothing."""
    write_cuda_packages(folder / "lib" / "python3.12" / "site-packages", driver)
    return folder


def test_the_driver_names_its_gpus(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's version, its CUDA, and of each GPU what a person and a plan need."""
    fake_driver.answer(monkeypatch, devices=2)
    driver = find_driver()
    assert (driver.version, driver.cuda, driver.wrong, driver.too_old) == ("580.159.04", (13, 0), "", "")
    first, second = driver.devices
    assert (first.name, first.memory_bytes, first.capability) == ("NVIDIA H100 80GB HBM3", 80 * GIB, "9.0")
    assert (first.free_bytes, first.holders, first.mig) == (80 * GIB, (), False)
    assert first.uuid == "01010101-0101-0101-0101-010101010101" != second.uuid


def test_memory_that_others_hold_is_named(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The free memory, and the process that has the rest; a part of a GPU is known under its own name."""
    fake_driver.answer(monkeypatch, free=3 * MIB, bytes=10 * MIB, mig=1)
    (device,) = find_driver().devices
    assert (device.free_bytes, device.holders, device.mig) == (3 * MIB, ((4711, 7 * MIB),), True)


def test_an_old_driver_says_what_it_runs(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA 13 needs a driver that has it; the message has the version of this one."""
    fake_driver.answer(monkeypatch, cuda=12080, version="570.86.10")
    assert find_driver().too_old == "the driver 570.86.10 runs CUDA 12.8 at most"


def test_a_driver_that_lacks_newer_functions_is_too_old(
    write_driver: WriteDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its GPU and version are known without the functions of drivers 470 and 510, and no process is named."""
    functions = {"cuDeviceGetUuid_v2": "cuDeviceGetUuid", "nvmlDeviceGetComputeRunningProcesses_v3": "unknown"}
    driver = write_driver(tmp_path, *(f"-D{new}={old}" for new, old in functions.items()))
    driver.answer(monkeypatch, cuda=11020, version="460.106.00", free=3 * MIB, bytes=10 * MIB)
    found = find_driver()
    assert found.too_old == "the driver 460.106.00 runs CUDA 11.2 at most"
    assert (found.devices[0].free_bytes, found.devices[0].holders) == (3 * MIB, ())


def test_without_a_gpu_the_driver_says_why(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's own name of the error, or that none is visible."""
    fake_driver.answer(monkeypatch, error=100)
    assert find_driver().wrong == "CUDA sees no GPU (CUDA_ERROR_NO_DEVICE)"
    fake_driver.answer(monkeypatch, error=0, devices=0)
    assert find_driver().wrong == "CUDA sees no GPU (none is visible to it)"
    assert find_driver().too_old == ""


def test_a_driver_that_breaks_is_reported(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library without the functions of a driver does not end the caller."""
    (fake_driver.folder.parent / "broken").mkdir(exist_ok=True)
    (fake_driver.folder.parent / "broken" / "libcuda.so.1").write_bytes(b"no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_driver.folder.parent / "broken"))
    assert "libcuda.so.1" in find_driver().wrong


def test_a_driver_that_hangs_is_left_alone(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may not end its process: nothing waits for that, and the answer says what happened."""
    processes: list[subprocess.Popen[str]] = []
    fake_driver.answer(monkeypatch, hangs=1)
    monkeypatch.setattr(devices, "_ASK_S", 0.5)
    with monkeypatch.context() as unkillable:
        unkillable.setattr(subprocess.Popen, "kill", lambda process: processes.append(process))
        driver = find_driver()
    assert (driver.wrong, driver.hangs) == ("the NVIDIA driver hangs: no answer within 0.5 s", True)
    (process,) = processes
    assert process.poll() is None
    process.kill()
    eventually(lambda: process.returncode is not None, "the process is waited for once it can end")


def test_a_driver_that_speaks_no_text_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 do not end the caller."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nprintf 'lost: \\377\\n' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    assert find_driver().wrong == "the NVIDIA driver cannot be asked: lost: \ufffd"


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_a_machine_without_a_driver_says_so() -> None:
    """The loader's words say which library is missing."""
    driver = find_driver()
    assert driver.wrong.startswith("there is no NVIDIA driver (libcuda.so.1")
    assert (driver.devices, driver.cuda) == ((), (0, 0))


def test_libraries_come_in_the_order_of_their_needs(fake_driver: FakeDriver, tmp_path: Path) -> None:
    """cuBLAS needs cuBLASLt, and all need the runtime; an environment for CPUs has none."""
    assert cuda_libraries(tmp_path) == ()
    names = [file.name for file in cuda_libraries(environment(tmp_path, fake_driver))]
    assert names[:4] == ["libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcublas.so.13"]
    assert names[4:] == ["libcurand.so.10", "libcufft.so.12", "libcudnn.so.9"]


def test_the_provider_is_really_tried(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its libraries are loaded and the runtime asks the driver; the words of whichever refuses are the reason."""
    assert "for CPUs" in why_no_provider(tmp_path)
    folder = environment(tmp_path, fake_driver)
    assert why_no_provider(folder) == ""
    monkeypatch.setenv("FAKE_DRIVER_CUDA", "12080")
    assert why_no_provider(folder) == "CUDA driver version is insufficient for CUDA runtime version"
    (cudnn,) = folder.rglob("libcudnn.so.9")
    cudnn.unlink()
    assert why_no_provider(folder) == "CUDA's libraries are incomplete: libcudnn.so.9"
    cudnn.write_bytes(b"no library")
    assert "libcudnn.so.9" in why_no_provider(folder)
