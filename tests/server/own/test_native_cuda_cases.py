"""Networks that cannot have CUDA graphs, captures that fail, and models of unusual kinds, on a fake GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from tests.fakecuda import FakeCuda
from tests.server.cuda_gpu import Gpu, loaded, serving, write_product
from tests.server.cuda_models import (
    ON_CPU,
    ON_GPU,
    ROWS,
    WINDOW,
    caller,
    cuda,
    double,
    ensemble,
    product,
    unbatched,
    warm_up,
    window,
    with_default,
)
from tests.server.onnx_models import BATCH, identity, through
from tests.server.openvino_models import parameters
from tests.server.raw import ask, ask_together, items
from tests.waiting import eventually

TWO_ON_GPU = ON_GPU.replace("count: 1", "count: 2")
ONE_THREAD = parameters(intra_op_thread_count="1", **{"tritonkit.threads_alone": "2"})
"""A thread for each instance, and two for a run that is alone."""
NO_GRAPHS = "is served without CUDA graphs: "
MODELS: dict[str, Callable[[Path], None]] = {
    "cpu": write_product(ON_CPU),
    "erf": lambda folder: product(folder, TWO_ON_GPU + cuda() + warm_up(), "Erf"),
    "erf_cpu": lambda folder: product(folder, ON_CPU, "Erf"),
    "graphs": write_product(ON_GPU + cuda() + warm_up()),
    "negative": lambda folder: product(folder, ON_GPU + cuda(), "Neg"),
    "window": lambda folder: window(folder, ON_GPU + cuda()),
    "double": lambda folder: double(folder, ON_GPU + cuda()),
    "pair": lambda folder: ensemble(folder, "double", "double"),
    "calls_double": lambda folder: caller(folder, "double"),
    "calls_pair": lambda folder: caller(folder, "pair"),
    "plain": lambda folder: double(folder, ON_GPU),
    "spread": write_product(ON_CPU.replace("count: 1", "count: 2") + ONE_THREAD),
    "unbatched": lambda folder: unbatched(folder, ON_GPU + cuda()),
    "strings": lambda folder: identity(
        folder, TensorProto.STRING, ["n", 1], f"max_batch_size: {BATCH}\n" + through("STRING [1]") + ON_GPU + cuda()
    ),
    "with_default": lambda folder: with_default(folder, ON_GPU + cuda()),
}


@pytest.fixture(scope="module")
def gpu(native: Path, compiled_fake_cuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    """A server whose GPU cannot capture an Erf, and whose provider leaves `starts` and inputs of a Neg to the CPU."""
    folder = tmp_path_factory.mktemp("gpu")
    fake = replace(compiled_fake_cuda.for_server(folder), waits="Erf", copies="Neg", on_host="starts")
    with serving(native, fake, folder, **MODELS) as made:
        yield made


@pytest.fixture
def rows() -> np.ndarray:
    """A full batch."""
    return np.random.default_rng(3).random((BATCH, ROWS), np.float32)


def test_an_input_that_the_cpu_reads_keeps_its_meaning(gpu: Gpu) -> None:
    """A graph would repeat the first value: there is none, and the log names the input and its reader."""
    x = np.arange(ROWS, dtype=np.float32)
    with loaded(gpu, "window"):
        for start in (0, 3, 7, 1):
            answer = ask(gpu.client, "window", x=x, starts=np.array([start]))["y"]
            np.testing.assert_array_equal(answer, x[start : start + WINDOW])
    reason = "the CPU reads input 'starts', which is given to Add (), Slice (window)"
    assert gpu.log.count(f"model 'window' {NO_GRAPHS}{reason}") == 1


def test_copies_within_a_network_are_named(gpu: Gpu, rows: np.ndarray) -> None:
    """No node is on the CPU, and a tensor is: the log says so, and there is no graph."""
    with loaded(gpu, "negative", "cpu"):
        expected = -ask(gpu.client, "cpu", x=rows[:3])["y"]
        np.testing.assert_array_equal(ask(gpu.client, "negative", x=rows[:3])["y"], expected)
    assert f"model 'negative' {NO_GRAPHS}ONNX Runtime copies tensors between the GPU and the CPU" in gpu.log


def test_a_failed_capture_is_not_tried_again(gpu: Gpu, rows: np.ndarray) -> None:
    """The model answers without graphs, and its instances share a session; others have theirs."""
    with loaded(gpu, "erf_cpu", "graphs"):
        before = gpu.fake.counters()
        with loaded(gpu, "erf"):
            expected = ask(gpu.client, "erf_cpu", x=rows)["y"]
            for _ in range(3):
                answers = ask_together(gpu.client, "erf", [{"x": rows}] * 4)
                for answer in answers:
                    np.testing.assert_array_equal(answer["y"], expected)  # type: ignore[index]
            np.testing.assert_array_equal(ask(gpu.client, "erf", x=rows[:3])["y"], expected[:3])
            changes = gpu.changes(before)
            assert changes["broken_captures"] == 2
            assert changes["sessions"] == 1
        counters = gpu.fake.counters()
        assert ask(gpu.client, "graphs", x=rows)["y"].shape == expected.shape
        assert gpu.changes(counters)["replays"] == 1
    reason = "by one of its instances: a capture failed: ONNX Runtime: CUDA failure 900"
    assert gpu.log.count(f"model 'erf' is served without CUDA graphs {reason}") == 2


def test_a_run_on_a_gpu_leaves_the_cores_to_others(gpu: Gpu, rows: np.ndarray) -> None:
    """A run on the CPU that begins next to it has the threads of one that is alone."""
    with loaded(gpu, "plain", "spread"), ThreadPoolExecutor(1) as pool:
        counters = gpu.fake.counters()
        with gpu.fake.holding():
            held = pool.submit(ask, gpu.client, "plain", x=rows)
            eventually(lambda: gpu.fake.counters()["runs"] > counters["runs"], "the run on the GPU to begin")
            ask(gpu.client, "spread", x=rows)
            assert gpu.changes(counters)["spread_runs"] == 1
            assert not held.done()
        np.testing.assert_array_equal(held.result()["y"], 2 * rows)


@pytest.mark.parametrize("name", ["double", "pair"])
def test_a_python_model_reads_the_answers_of_a_model_on_a_gpu_as_arrays(gpu: Gpu, rows: np.ndarray, name: str) -> None:
    """Its code is the same as for a model on the CPU, also where it calls an ensemble."""
    with loaded(gpu, "double", "pair", f"calls_{name}"):
        factor = 2 if name == "double" else 4
        for size in (1, 1, 1, 3, BATCH):
            answer = ask(gpu.client, f"calls_{name}", x=rows[:size])["y"]
            np.testing.assert_array_equal(answer, factor * rows[:size])


def test_a_model_without_a_batch_axis_has_one_graph(gpu: Gpu, rows: np.ndarray) -> None:
    """The first run captures it; each request is a run."""
    before = gpu.fake.counters()
    with loaded(gpu, "unbatched"):
        for row in rows:
            np.testing.assert_array_equal(ask(gpu.client, "unbatched", x=row)["y"], 2 * row)
        changes = gpu.changes(before)
        assert (changes["captures"], changes["replays"]) == (1, len(rows))


def test_strings_are_served_without_graphs(gpu: Gpu) -> None:
    """They stay in the host's memory, and batches are filled up with empty ones."""
    with loaded(gpu, "strings"):
        for values in (items(b"one"), items(b"one", b"", b"three"), items(*[b"x" * 1000] * BATCH)):
            np.testing.assert_array_equal(ask(gpu.client, "strings", x=values)["y"], values)
    assert f"model 'strings' {NO_GRAPHS}'x' has strings" in gpu.log


def test_an_input_may_be_left_out(gpu: Gpu, rows: np.ndarray) -> None:
    """The file's default takes its place, and a request may give another; there is no graph."""
    with loaded(gpu, "with_default"):
        np.testing.assert_array_equal(ask(gpu.client, "with_default", x=rows[0])["y"], rows[0] + 1)
        bias = np.array([3], np.float32)
        np.testing.assert_array_equal(ask(gpu.client, "with_default", x=rows[0], bias=bias)["y"], rows[0] + 3)
        np.testing.assert_array_equal(ask(gpu.client, "with_default", x=rows[1])["y"], rows[1] + 1)
    assert f"model 'with_default' {NO_GRAPHS}'bias' has a default" in gpu.log
