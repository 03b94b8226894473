"""The loads of `make gpu`: perf_analyzer's command line, its complaints, and the GPU's utilization."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import perf_analyzer
from bench.gpu.loads import Loads, Utilization, reason
from tests.waiting import eventually

SMI = """#!/bin/sh
for value in 0 0 70 80 80 70 0 0; do echo $value; done
touch {done}
exec sleep 600
"""


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    """Loads of a server that is not called, on a machine where perf_analyzer runs."""
    monkeypatch.setattr(perf_analyzer, "binary", lambda: Path("/opt/perf_analyzer"))
    return Loads("127.0.0.1:8001", "secret", pixels=224, most=130, seconds=2.1)


def test_the_key_goes_along_only_where_memory_is_registered(loads: Loads, tmp_path: Path) -> None:
    """perf_analyzer sends its -H over gRPC, too."""
    by_grpc = loads.words("resnet50_fp16", "grpc", 256, 0.0, tmp_path)
    assert by_grpc[by_grpc.index("--concurrency-range") + 1] == "256:256"
    assert by_grpc[by_grpc.index("--measurement-interval") + 1] == "700"
    assert "secret" not in " ".join(by_grpc)
    shared = loads.words("resnet50_fp16", "cuda", 0, 812.4, tmp_path)
    assert shared[shared.index("--shared-memory") + 1] == "cuda"
    assert shared[shared.index("--request-rate-range") + 1] == "812"
    assert shared[shared.index("-H") + 1] == "triton-grpc-protocol-admin-key:secret"


def test_its_own_words_say_why_a_load_failed() -> None:
    """The first line that complains; else its exit code."""
    text = "*** Measurement Settings ***\nerror: Unable to init infer data manager: no memory\nmore\n"
    assert reason(subprocess.CompletedProcess([], 99, text, "")).startswith("error: Unable to init")
    assert reason(subprocess.CompletedProcess([], -11, "", "")) == "it ended with -11 and no figures"


def test_the_middle_of_the_samples_is_the_utilization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load begins and ends within the others; nvidia-smi is ended with the block."""
    smi, done = tmp_path / "nvidia-smi", tmp_path / "done"
    smi.write_text(SMI.format(done=done))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with Utilization() as use:
        eventually(done.exists, "the samples")
    assert use.mean() == pytest.approx(0.75)


def test_without_nvidia_smi_the_utilization_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is None, and no reason to fail."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with Utilization() as use:
        pass
    assert use.mean() is None
