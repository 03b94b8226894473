"""Messages about GPUs on a machine without one, and the comparison of the GPU bench."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.gpu.engines import compare
from tests.fakedriver import FakeDriver
from tests.waiting import eventually
from tritonkit.repository.optimize import gpu
from tritonkit.repository.optimize.gpu import find_capability, find_gpu, why_no_gpu


def test_the_gpu_bench_says_in_one_line_that_there_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was measured, so the exit code reports no success."""
    if find_gpu() is not None:
        pytest.skip("there is a GPU: run python -m bench gpu")
    assert main(["gpu"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert "the CUDA driver shows none" in line


@pytest.fixture
def driver(fake_driver: FakeDriver) -> Iterator[FakeDriver]:
    """A driver that no earlier answer hides, and whose answer does not outlast the test."""
    gpu._first_gpu.cache_clear()
    yield fake_driver
    gpu._first_gpu.cache_clear()


def test_the_driver_names_its_first_gpu(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its compute capability, and with the reason where there is none."""
    driver.answer(monkeypatch)
    assert (find_gpu(), find_capability(), why_no_gpu()) == ("NVIDIA H100 80GB HBM3", "9.0", "")
    gpu._first_gpu.cache_clear()
    driver.answer(monkeypatch, devices=0)
    assert (find_gpu(), find_capability(), why_no_gpu()) == (None, "", "CUDA sees no GPU")


def test_a_driver_that_hangs_is_left_alone(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may not end its process: nothing waits for that, and it is asked once."""
    processes: list[subprocess.Popen[bytes]] = []
    driver.answer(monkeypatch, hangs=1)
    monkeypatch.setattr(gpu, "_ASK_S", 0.5)
    with monkeypatch.context() as unkillable:
        unkillable.setattr(subprocess.Popen, "kill", lambda process: processes.append(process))
        assert find_gpu() is None
    assert why_no_gpu() == "the NVIDIA driver hangs: no answer within 0.5 s"
    (process,) = processes
    process.kill()
    eventually(lambda: process.returncode is not None, "the process is waited for once it can end")


def test_forms_ask_the_driver_only_when_their_engine_is_needed(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import asks no driver, which may hang, even where TensorRT is installed."""
    (tmp_path / "tensorrt.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    driver.answer(monkeypatch)
    code = (
        "from tritonkit.repository.optimize import gpu\n"
        "from tritonkit.repository.optimize.variants import FORMS\n"
        "print(gpu._first_gpu.cache_info().currsize, FORMS['onnx-fp32'].runtime)\n"
        "print(FORMS['tensorrt-fp16'].runtime, gpu._first_gpu.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "onnxruntime", "tensorrt", "1"]
    driver.answer(monkeypatch, devices=0)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "onnxruntime", "None", "1"]


def test_contenders_are_compared_with_the_first() -> None:
    """A faster one has a figure above 1, with its time; one that fails leaves the others measured."""

    def broken(batch: object) -> None:
        raise RuntimeError("no kernel")

    passed_s = [0.0]

    def takes(seconds: float) -> Callable[[object], None]:
        def run(batch: object) -> None:
            passed_s[0] += seconds

        return run

    contenders = {"slow": takes(0.004), "quick": takes(0.001), "broken": broken}
    (ratio,) = compare("net", contenders, {"x": np.zeros((8, 2))}, rounds=2, clock=lambda: passed_s[0])
    assert ratio.name == "net, batch 8: quick / slow"
    assert ratio.rounds == pytest.approx([4.0, 4.0])
    assert ratio.facts == {"ms": 1.0, "items/s": 8000}
