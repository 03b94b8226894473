"""The measuring programs run and say what they should; their figures need a quiet machine and are not tested."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bench.h2load import find_h2load
from tritonkit.errors import UsageError
from tritonkit.testing import FakeModel

ROOT = Path(__file__).parents[2]
NETWORK = FakeModel(
    inputs={"pixels": ("FP32", [1, 8, 8])},
    outputs={"logits": ("FP32", [10])},
    function=lambda inputs: {"logits": np.zeros((len(inputs["pixels"]), 10), np.float32)},
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
        "pipeline",
        "map",
        "flags",
        "spinning",
        "container",
        "locust",
        "loadgen",
        "tune",
        "plan",
        "gateway",
        "lambda",
        "client",
        "generate",
        "variants",
        "gpu",
        "peers",
        "families",
        "chaos",
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


H2LOAD = pytest.mark.skipif(shutil.which("h2load") is None, reason="needs h2load (nghttp2-client)")


@pytest.mark.parametrize("generator", ["python", pytest.param("h2load", marks=H2LOAD)])
def test_the_load_counts_answers(serve: Any, generator: str) -> None:
    """A closed loop of four callers reports its rate, its latencies in order and no failures."""
    with serve({"digits_network": NETWORK}) as address:
        done = run(
            "bench.load",
            address,
            "digits_network",
            "--concurrency=4",
            "--seconds=0.5",
            "--warm=0.1",
            f"--generator={generator}",
        )
    load = json.loads(done.stdout)
    assert load["generator"] == generator
    assert load["answers"] > 0
    assert load["failures"] == 0
    assert 0 < load["p50_ms"] <= load["p95_ms"] <= load["p99_ms"]
    assert load["effective_batch"] == 1.0


def test_the_load_reports_failures(serve: Any) -> None:
    """Requests that the server refuses are counted, with the first one's words."""
    with serve({"digits_network": failing_after(3)}) as address:
        done = run("bench.load", address, "digits_network", "--seconds=0.3", "--warm=0.1", "--generator=python")
    load = json.loads(done.stdout)
    assert load["failures"] > 0
    assert "tired" in load["first_failure"]


def failing_after(answers: int) -> FakeModel:
    """The network, which fails from then on."""
    calls: list[object] = []

    def answer(inputs: Any) -> Any:
        calls.append(inputs)
        if len(calls) > answers:
            raise ArithmeticError("tired")
        return {"logits": np.zeros((1, 10), np.float32)}

    return FakeModel(NETWORK.inputs, NETWORK.outputs, answer)


@H2LOAD
def test_h2load_takes_no_error_for_an_answer(serve: Any) -> None:
    """A gRPC error has HTTP's status 200: it ends the load with the client's code all the same."""
    with serve({"digits_network": failing_after(3)}) as address:
        done = run("bench.load", address, "digits_network", "--seconds=0.3", "--warm=0.1", "--generator=h2load")
    assert done.returncode == 5
    assert "errors among them" in done.stderr


def test_a_missing_h2load_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, the message says what to install."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="apt-get install nghttp2-client"):
        find_h2load()


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    """A network that adds tokens and mask, with open batch and length."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask", "sum")
    ]
    node = helper.make_node("Add", ["input_ids", "attention_mask"], ["sum"])
    model = helper.make_model(
        helper.make_graph([node], "g", ends[:2], ends[2:]), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_the_engine_alone_is_measured_for_each_batch_size(onnx_file: Path) -> None:
    """Items per second for every requested batch size, with the version that ran."""
    done = run("bench.inprocess", str(onnx_file), "--threads=1", "--batches=1,4", "--seconds=0.1")
    engine = json.loads(done.stdout)
    assert set(engine["items_per_s"]) == {"1", "4"}
    assert all(rate > 0 for rate in engine["items_per_s"].values())
    assert engine["onnxruntime"].count(".") >= 2
