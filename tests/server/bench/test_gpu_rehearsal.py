"""`make gpu` from beginning to end, on the CPU with small networks: a real build, a real server, real loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu.cuda import stand_ins
from tests.conftest import PROJECT

PATIENCE_S = 280
KINDS = {
    ("engine", "resnet50_fp16"),
    ("engine", "encoder_fp16"),
    ("served", "resnet50_fp16"),
    ("served", "resnet50_fp32"),
    ("served", "encoder_fp16"),
    ("served", "mlp_fp32"),
    ("served", "resnet50_tf32"),
    ("served", "resnet50_int8"),
    ("paced", "resnet50_fp16"),
    *(("accuracy", f"resnet50_{variant}") for variant in ("fp32", "tf32", "fp16", "int8")),
}
"""Figures that every run has."""


def program(root: Path, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run tools/gpu.py of a folder; the tests that it starts are not counted as this run's."""
    variables = {key: value for key, value in os.environ.items() if key not in ("TEST_COUNTS", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, root / "tools" / "gpu.py", *words],
        capture_output=True,
        text=True,
        env=variables | {"PIP_NO_INDEX": "1"} | more,
        timeout=PATIENCE_S,
    )


@pytest.mark.timeout(3 * PATIENCE_S)
def test_a_rehearsal_runs_every_step_and_its_bundle_starts_elsewhere(tmp_path: Path) -> None:
    """All steps end well, --resume repeats none, and the unpacked bundle has all that the command needs to begin."""
    folder, result = tmp_path / "run", tmp_path / "result.json"
    done = program(PROJECT, "--rehearse", "--folder", folder, "--json", result, "--seconds", "270")
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads(result.read_text())
    assert {name: step["problem"] for name, step in content["steps"].items()} == dict.fromkeys(
        ("environment", "models", "variants", "serving", "tests"), ""
    )
    assert {(row["what"], row["model"]) for row in content["rows"] if "error" not in row} >= KINDS
    assert "| ResNet-50 FP16 by gRPC / the engine in process |" in done.stdout
    assert "| ONNX INT8 (QDQ) | gRPC | 8 |" in done.stdout
    again = program(PROJECT, "--rehearse", "--folder", folder, "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count(": done before, in ") == 5
    _moves(folder, tmp_path)


def _moves(folder: Path, tmp_path: Path) -> None:
    """The bundle of that run, in archives of 4 MB, is the project again where it is unpacked."""
    stand_ins({"nvidia-cublas": "13.1.1.0"}, tmp_path / "wheels")
    words = ["--rehearse", "--folder", folder, "--wheels", tmp_path / "wheels", "--split", "4MB"]
    made = program(PROJECT, "--bundle", tmp_path / "bundle", *words)
    assert made.returncode == 0, made.stdout + made.stderr
    assert all(file.stat().st_size <= 4_000_000 for file in (tmp_path / "bundle").glob("*.tar"))
    root = tmp_path / "project"
    subprocess.run([sys.executable, tmp_path / "bundle" / "join.py", root], check=True, capture_output=True)
    assert (root / ".tritonkit" / "gpu" / "small" / "repository" / "mlp_fp32" / "1" / "model.onnx").is_file()
    assert (root / "wheels" / "nvidia_cublas-13.1.1.0-py3-none-any.whl").is_file()
    assert list((root / "tests" / "gpu").glob("test_*.py"))
    refused = program(root, "--wheels", root / "wheels", "--resume", PATH="/nowhere")
    assert refused.returncode == 2
    assert "no NVIDIA GPU" in refused.stderr
