"""The measuring programs run and say what they should; their figures need a quiet machine and are not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tritonkit.testing import FakeModel

ROOT = Path(__file__).parents[2]
NETWORK = FakeModel(
    inputs={"pixels": ("FP32", [1, 8, 8])},
    outputs={"logits": ("FP32", [10])},
    function=lambda given: {"logits": np.zeros((len(given["pixels"]), 10), np.float32)},
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m ...` at the root of the project."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )


def test_without_a_name_the_measurements_are_listed() -> None:
    """Each is named with one line on what it measures."""
    done = run("bench")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "overhead",
        "serving",
        "container",
        "locust",
        "client",
        "variants",
        "gpu",
        "peers",
    ]


@pytest.mark.slow
def test_overhead_writes_a_report(serve: Any, tmp_path: Path) -> None:
    """Every round stands in the JSON, with the limit and whether it was kept."""
    with serve({"digits_network": NETWORK}) as address:
        file = tmp_path / "report.json"
        done = run("bench", "overhead", "--address", address, "--rounds", "1", "--json", str(file))
    report = json.loads(file.read_text())
    assert done.returncode == (0 if report["holds"] else 1), done.stderr
    assert report["ratios"][0]["at_most"] == 1.10
    assert all(ratio["median"] == ratio["rounds"][0] > 0 for ratio in report["ratios"])


def test_a_missing_model_ends_with_the_clients_code(serve: Any) -> None:
    """Errors are told as everywhere else, with the exit code of their branch."""
    with serve({}) as address:
        done = run("bench", "overhead", "--address", address, "--rounds", "1")
    assert done.returncode == 5
    assert "digits_network" in done.stderr


def test_the_load_counts_answers(serve: Any) -> None:
    """A closed loop of four callers reports its rate, its latencies in order and no failures."""
    with serve({"digits_network": NETWORK}) as address:
        done = run(
            "bench.load",
            address,
            "digits_network",
            "--concurrency=4",
            "--seconds=0.5",
            "--warm=0.1",
        )
    load = json.loads(done.stdout)
    assert load["answers"] > 0
    assert load["failures"] == 0
    assert 0 < load["p50_ms"] <= load["p95_ms"] <= load["p99_ms"]
    assert load["effective_batch"] == 1.0


def test_the_load_reports_failures(serve: Any) -> None:
    """Requests that the server refuses are counted, with the first one's words."""
    calls = []

    def fail_later(given: Any) -> Any:
        calls.append(given)
        if len(calls) > 3:
            raise ArithmeticError("tired")
        return {"logits": np.zeros((1, 10), np.float32)}

    failing = FakeModel(NETWORK.inputs, NETWORK.outputs, fail_later)
    with serve({"digits_network": failing}) as address:
        done = run("bench.load", address, "digits_network", "--seconds=0.3", "--warm=0.1")
    load = json.loads(done.stdout)
    assert load["failures"] > 0
    assert "tired" in load["first_failure"]


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    """A network that adds tokens and mask, with open batch and length."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask", "sum")
    ]
    node = helper.make_node("Add", ["input_ids", "attention_mask"], ["sum"])
    model = helper.make_model(
        helper.make_graph([node], "g", ends[:2], ends[2:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_the_engine_alone_is_measured_for_each_batch_size(onnx_file: Path) -> None:
    """Items per second for every batch size asked for, with the version that ran."""
    done = run("bench.inprocess", str(onnx_file), "--threads=1", "--batches=1,4", "--seconds=0.1")
    engine = json.loads(done.stdout)
    assert set(engine["items_per_s"]) == {"1", "4"}
    assert all(rate > 0 for rate in engine["items_per_s"].values())
    assert engine["onnxruntime"].count(".") >= 2
