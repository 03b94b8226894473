"""The native ONNX Runtime backend on a GPU of tests/fakecuda.py, in a real Triton.

test_native_backends and test_padding run on it as well.
"""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc

from tests.fakecuda import FakeCuda
from tests.parts import SERVER
from tests.server.at_once import at_once
from tests.server.cuda_gpu import Gpu, loaded, serving, write_product
from tests.server.cuda_models import (
    COLUMNS,
    ON_CPU,
    ON_GPU,
    ON_GPU_AFTER,
    ROWS,
    branch,
    convolution,
    cuda,
    double,
    ensemble,
    product,
    summed,
    warm_up,
)
from tests.server.onnx_models import BATCH, MERGING
from tests.server.raw import Client, ask, ask_together, forget
from tests.server.sanitizers import sanitizer_variables
from tests.waiting import PATIENCE_S
from tritonkit.serve.core.native_backends import why_not_on_gpu

HANDLE_BYTES = 64
SIZES = (1, 2, 4, BATCH)


REFUSED = {
    "unknown_option": (
        write_product(ON_GPU + cuda(user_compute_stream="1")),
        "option 'user_compute_stream' found in gpu_execution_accelerator 'cuda'; wanted arena_extend_strategy, cudnn_",
    ),
    "wrong_value": (
        write_product(ON_GPU + cuda(cudnn_conv_algo_search="9")),
        "cudnn_conv_algo_search: found '9', wanted one of EXHAUSTIVE, HEURISTIC, DEFAULT",
    ),
    "openvino": (
        write_product(ON_GPU + cuda(accelerator="openvino")),
        "gpu_execution_accelerator 'openvino' found; this backend has ONNX Runtime's CPU, CUDA and TensorRT providers",
    ),
    "large_size": (
        write_product(ON_GPU + cuda([1, 2 * BATCH])),
        f"graph_spec: found batch_size {2 * BATCH}, wanted 1 to max_batch_size {BATCH}",
    ),
    "small_sizes": (
        write_product(ON_GPU + cuda([1, 2])),
        f"the largest batch_size is 2, wanted max_batch_size {BATCH}",
    ),
    "no_such_device": (
        write_product("instance_group { kind: KIND_GPU gpus: [1] }"),
        "invalid or unsupported gpu id 1",
    ),
    "no_such_memory": (
        lambda folder: double(folder, ON_GPU + ON_GPU_AFTER.replace('"gpu"', '"GPU"')),
        "parameter tritonkit.output_memory: found 'GPU', wanted cpu or gpu",
    ),
    "limited": (
        write_product(ON_GPU + cuda(graphs=False, gpu_mem_limit="100")),
        "Failed to allocate memory for requested buffer",
    ),
}
SERVED: dict[str, Callable[[Path], None]] = {
    "cpu": write_product(ON_CPU),
    "graphs": write_product(ON_GPU + cuda(SIZES, prefer_nhwc="1") + warm_up()),
    "cold": write_product(ON_GPU.replace("count: 1", "count: 2") + cuda() + MERGING),
    "sizes": write_product(ON_GPU + cuda([4, BATCH], graphs=False)),
    "plain": write_product(ON_GPU + MERGING),
    "shared": write_product(ON_GPU.replace("count: 1", "count: 3")),
    "double": lambda folder: double(folder, ON_GPU),
    "double_graphs": lambda folder: double(folder, ON_GPU + cuda()),
    "double_cpu": lambda folder: double(folder, ON_CPU),
    "kept": lambda folder: double(folder, ON_GPU + MERGING + ON_GPU_AFTER),
    "kept_graphs": lambda folder: double(folder, ON_GPU + cuda() + MERGING + ON_GPU_AFTER),
    "twice": lambda folder: ensemble(folder, "kept", "kept_graphs", "kept"),
    "mixed": lambda folder: ensemble(folder, "kept", "double_cpu", "kept"),
    "free": lambda folder: convolution(folder, "-1", ON_GPU + cuda()),
    "branch": lambda folder: branch(folder, ON_GPU.replace("count: 1", "count: 2") + cuda()),
    "summed": lambda folder: summed(folder, ON_GPU.replace("count: 1", "count: 2") + cuda()),
    "fixed": lambda folder: convolution(folder, "4", ON_GPU + cuda([1, BATCH])),
}


@pytest.fixture(scope="module")
def gpu(native: Path, compiled_fake_cuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    """A server with one GPU."""
    folder = tmp_path_factory.mktemp("gpu")
    fake = compiled_fake_cuda.for_server(folder)
    with serving(native, fake, folder, **SERVED, **{name: write for name, (write, _) in REFUSED.items()}) as made:
        yield made


@pytest.fixture
def rows() -> np.ndarray:
    """A full batch."""
    return np.random.default_rng(3).random((BATCH, ROWS), np.float32)


def test_each_batch_size_is_captured_once_and_repeated(gpu: Gpu, rows: np.ndarray) -> None:
    """The first warm-up captures every size; a batch is filled up to the next one and its answer cut back."""
    before = gpu.fake.counters()["captures"]
    with loaded(gpu, "cpu", "graphs"):
        assert gpu.fake.counters()["captures"] == before + len(SIZES)
        for size in (3, 1, BATCH, 5, 2, 1, 7):
            expected = ask(gpu.client, "cpu", x=rows[:size])["y"]
            counters = gpu.fake.counters()
            np.testing.assert_array_equal(ask(gpu.client, "graphs", x=rows[:size])["y"], expected)
            assert gpu.changes(counters) == {"to_device": 1, "to_host": 1, "replays": 1}


def test_joined_requests_are_one_copy_each_way(gpu: Gpu, rows: np.ndarray) -> None:
    """Without a warm-up the first run captures; two instances answer as the CPU does."""
    with loaded(gpu, "cpu", "cold"):
        expected = ask(gpu.client, "cpu", x=rows)["y"]
        for _ in range(3):
            answers = ask_together(gpu.client, "cold", [{"x": row[None]} for row in rows])
            np.testing.assert_array_equal(np.concatenate([answer["y"] for answer in answers]), expected)  # type: ignore[index]
        counters = gpu.fake.counters()
        assert counters["to_device"] <= counters["replays"] + counters["captures"]


@pytest.mark.parametrize("name", ["sizes", "plain"])
def test_without_graphs_the_answers_are_the_same(gpu: Gpu, rows: np.ndarray, name: str) -> None:
    """Sizes without graphs are filled up and cut back as well."""
    with loaded(gpu, "cpu", name):
        for size in (1, 3, BATCH, 2):
            expected = ask(gpu.client, "cpu", x=rows[:size])["y"]
            np.testing.assert_array_equal(ask(gpu.client, name, x=rows[:size])["y"], expected)


def test_instances_without_graphs_share_their_weights(gpu: Gpu) -> None:
    """Three instances have one session."""
    before = gpu.fake.counters()["sessions"]
    with loaded(gpu, "shared"):
        assert gpu.fake.counters()["sessions"] == before + 1


@contextlib.contextmanager
def region(gpu: Gpu, content: np.ndarray) -> Iterator[np.memmap]:
    """Memory of the GPU that a client shares with the server, by the name "region"."""
    file = gpu.running.log.with_name("region")
    content.tofile(file)
    handle = base64.b64encode(str(file).encode().ljust(HANDLE_BYTES, b"\0"))
    gpu.client.register_cuda_shared_memory("region", handle, 0, content.nbytes)
    try:
        yield np.memmap(file, content.dtype, "r+", shape=content.shape)
    finally:
        forget(gpu.client.unregister_cuda_shared_memory, "region")


def in_region(gpu: Gpu, model: str, count: int) -> None:
    """A request whose input is the region's first half, and whose output its second half."""
    size = count * ROWS * 4
    tensor = grpc.InferInput("x", [count, ROWS], "FP32")
    tensor.set_shared_memory("region", size)
    output = grpc.InferRequestedOutput("y")
    output.set_shared_memory("region", size, size)
    gpu.client.infer(model, [tensor], outputs=[output], client_timeout=PATIENCE_S)


@pytest.mark.parametrize("name", ["double", "double_graphs", "double_cpu"])
@pytest.mark.parametrize("count", [1, 3])
def test_tensors_in_memory_of_the_gpu_are_used_where_they_are(
    gpu: Gpu, rows: np.ndarray, name: str, count: int
) -> None:
    """No tensor takes a way through the host, unless the model is on the CPU."""
    x = rows[:count]
    with loaded(gpu, name), region(gpu, np.concatenate([x, np.zeros_like(x)])) as shared:
        for _ in range(2):
            counters = gpu.fake.counters()
            shared[count:] = 0
            in_region(gpu, name, count)
            np.testing.assert_array_equal(shared[count:], 2 * x)
        changes = gpu.changes(counters)
    if name == "double":
        assert changes == {"runs": 1}
    elif name == "double_cpu":
        assert changes == {"to_host": 1, "to_device": 1}
    elif count in SIZES:
        assert changes == {"on_device": 2, "replays": 1}


@pytest.mark.parametrize("name", ["twice", "mixed"])
def test_models_of_an_ensemble_hand_on_tensors(gpu: Gpu, rows: np.ndarray, name: str) -> None:
    """A tensor that is to stay on the GPU does, also that of a batch; a model on the CPU reads it from there."""
    with loaded(gpu, "kept", "kept_graphs", "double_cpu", name):
        for size in (1, 1, 3, BATCH, 1):
            x = rows[:size]
            counters = gpu.fake.counters()
            np.testing.assert_array_equal(ask(gpu.client, name, x=x)["y"], 8 * x)
        if name == "twice":
            # Into the first model and out of the last; within a graph's own memory once each way.
            changes = gpu.changes(counters)
            assert (changes["to_host"], changes["on_device"], changes.get("to_device", 0)) == (1, 2, 0)
        counters = gpu.fake.counters()
        answers = ask_together(gpu.client, name, [{"x": row[None]} for row in rows])
        np.testing.assert_array_equal(np.concatenate([answer["y"] for answer in answers]), 8 * rows)  # type: ignore[index]
        if name == "twice":
            # Each answer leaves the last model by its own copy; nothing else came to the host.
            changes = gpu.changes(counters)
            assert changes["to_host"] == BATCH
            assert changes["on_device"] > BATCH


def test_free_sizes_are_served_without_graphs(gpu: Gpu) -> None:
    """The log says why there are no graphs and what convolutions of free sizes cost."""
    with loaded(gpu, "free", "fixed"):
        for name, side in (("free", 3), ("free", 5), ("fixed", 4)):
            x = np.random.default_rng(side).random((2, 1, side, side), np.float32)
            np.testing.assert_array_equal(ask(gpu.client, name, x=x)["y"], 2 * x)
    assert "model 'free' is served without CUDA graphs: 'x' has [-1, 1, -1, -1], where -1 is any size" in gpu.log
    assert "model 'free' has convolutions and free sizes, without CUDA graphs" in gpu.log
    assert "model 'fixed'" not in gpu.log


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("branch", "it has control flow (If, Loop or Scan)"),
        ("summed", "'sum' has [], without a free first axis for the batch"),
    ],
)
def test_networks_without_graphs_are_tried_once(gpu: Gpu, rows: np.ndarray, name: str, reason: str) -> None:
    """The log says the reason once for all instances, which share a session."""
    before = gpu.fake.counters()["sessions"]
    with loaded(gpu, name):
        for size in (1, 3, BATCH):
            np.testing.assert_array_equal(ask(gpu.client, name, x=rows[:size])["y"], rows[:size])
        assert gpu.fake.counters()["sessions"] == before + 1
    assert gpu.log.count(f"model '{name}' is served without CUDA graphs: {reason}") == 1


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_configuration_is_refused(gpu: Gpu, rows: np.ndarray, name: str) -> None:
    """The reason says what was found and what is wanted; other models go on."""
    with loaded(gpu, "cpu"):
        assert REFUSED[name][1] in gpu.failure(name)
        assert ask(gpu.client, "cpu", x=rows)["y"].shape == (BATCH, COLUMNS)


def test_a_model_leaves_nothing_on_the_gpu(gpu: Gpu, rows: np.ndarray) -> None:
    """Loaded and unloaded again and again it has as much memory as the first time."""

    def once() -> Mapping[str, int]:
        with loaded(gpu, "graphs", "plain", "double", "kept", "kept_graphs", "twice"):
            for name in ("graphs", "plain", "twice"):
                ask(gpu.client, name, x=rows)
            return gpu.kept()

    empty, first = gpu.kept(), once()
    for _ in range(3):
        assert once() == first
        assert gpu.kept() == empty


def test_a_capture_waits_for_those_who_ask_for_memory(gpu: Gpu, rows: np.ndarray) -> None:
    """Models are captured again and again next to others that run and that load; no capture breaks."""

    def keep_loading(client: Client) -> None:
        client.load_model("shared")
        client.unload_model("shared")

    def keep_asking(client: Client, size: int) -> None:
        np.testing.assert_array_equal(ask(client, "double", x=rows[:size])["y"], 2 * rows[:size])

    def work(number: int, ended: threading.Event) -> None:
        with grpc.InferenceServerClient(gpu.running.address) as client:
            while not ended.is_set():
                keep_asking(client, number) if number else keep_loading(client)

    with loaded(gpu, "double"), at_once(4, work):
        for _ in range(5):
            with loaded(gpu, "graphs"):
                assert ask(gpu.client, "graphs", x=rows)["y"].shape == (BATCH, COLUMNS)
    assert gpu.fake.counters()["broken_captures"] == 0


def test_nodes_that_cuda_lacks_are_named(native: Path, fake_cuda: FakeCuda, tmp_path: Path, rows: np.ndarray) -> None:
    """The model is served without graphs."""
    models = {
        "erf": lambda folder: product(folder, ON_GPU + cuda(SIZES) + warm_up(), "Erf"),
        "graphs": SERVED["graphs"],
    }
    with serving(native, replace(fake_cuda, lacks="Erf"), tmp_path, **models) as gpu:
        with loaded(gpu, "erf", "graphs"):
            assert ask(gpu.client, "erf", x=rows[:3])["y"].shape == (3, COLUMNS)
        assert "model 'erf' is served without CUDA graphs: the CUDA provider lacks Erf (lonely)" in gpu.log
        assert "Identity (other)" not in gpu.log
        assert fake_cuda.counters()["captures"] == len(SIZES)


def test_each_of_two_gpus_has_instances(
    native: Path, fake_cuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory, rows: np.ndarray
) -> None:
    """Whatever device a thread of Triton had before, graphs are captured and batches filled up on the instance's."""
    second, both = (f"instance_group {{ kind: KIND_GPU count: 1 gpus: [{gpus}] }}\n" for gpus in ("1", "0, 1"))
    models = {
        "cpu": write_product(ON_CPU),
        "second": write_product(second + cuda(SIZES) + warm_up()),
        "both": write_product(both + cuda(SIZES) + MERGING),
        "double": lambda folder: double(folder, second + cuda([4, BATCH], graphs=False)),
    }
    folder = tmp_path_factory.mktemp("gpus")  # a short path: the region's is its handle
    with serving(native, replace(fake_cuda, devices=2), folder, **models) as gpu, loaded(gpu, *models):
        expected = ask(gpu.client, "cpu", x=rows)["y"]
        for size in (1, 3, BATCH):
            np.testing.assert_array_equal(ask(gpu.client, "second", x=rows[:size])["y"], expected[:size])
            answers = ask_together(gpu.client, "both", [{"x": row[None]} for row in rows])
            np.testing.assert_array_equal(np.concatenate([answer["y"] for answer in answers]), expected)  # type: ignore[index]
        # The region is on GPU 0, the model on GPU 1; a batch of 3 is filled up to 4.
        with region(gpu, np.concatenate([rows[:3], np.zeros_like(rows[:3])])) as shared:
            for _ in range(2):
                shared[3:] = 0
                in_region(gpu, "double", 3)
                np.testing.assert_array_equal(shared[3:], 2 * rows[:3])


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        ("none", "has no CUDA provider: install it by `tritonkit server install --gpu`, or use kind KIND_CPU"),
        ("missing", "cannot use GPU 0; `tritonkit doctor` looks for the cause: ONNX Runtime: Failed to load library"),
    ],
)
def test_without_the_provider_only_models_on_a_gpu_are_refused(
    native: Path, fake_cuda: FakeCuda, tmp_path: Path, rows: np.ndarray, provider: str, reason: str
) -> None:
    """The reason says what is missing and what brings it."""
    models = {name: SERVED[name] for name in ("cpu", "plain", "graphs")}
    with serving(native, replace(fake_cuda, provider=provider), tmp_path, **models) as gpu, loaded(gpu, "cpu"):
        for name in ("plain", "graphs"):
            assert reason in gpu.failure(name)
        assert ask(gpu.client, "cpu", x=rows)["y"].shape == (BATCH, COLUMNS)


def test_a_full_gpu_refuses_a_model_and_serves_the_others(
    native: Path, fake_cuda: FakeCuda, tmp_path: Path, rows: np.ndarray
) -> None:
    """A pool of pinned memory that is too small is named, and the answers are the same."""
    small = replace(fake_cuda, memory_bytes=(1 << 20) + 64 * 4096)
    models = {
        "cpu": write_product(ON_CPU),
        "graphs": SERVED["graphs"],
        "wide_cpu": lambda folder: product(folder, ON_CPU, columns=512),
        "wide": lambda folder: product(folder, ON_GPU + cuda(), columns=512),
        "large": lambda folder: product(folder, ON_GPU + cuda(), columns=1 << 14),
        "large_plain": lambda folder: product(folder, ON_GPU, columns=1 << 14),
    }
    flags = ("--cuda-memory-pool-byte-size=0:1048576", "--pinned-memory-pool-byte-size=8192")
    with serving(native, small, tmp_path, *flags, **models) as gpu, loaded(gpu, "cpu", "graphs", "wide_cpu", "wide"):
        assert "Failed to allocate memory" in gpu.failure("large")
        assert "Failed to allocate memory" in gpu.failure("large_plain")
        for on_cpu, name in (("cpu", "graphs"), ("wide_cpu", "wide"), ("wide_cpu", "wide")):
            expected = ask(gpu.client, on_cpu, x=rows[:3])["y"]
            np.testing.assert_array_equal(ask(gpu.client, name, x=rows[:3])["y"], expected)
        assert gpu.log.count("Triton's pool of pinned memory has no room for") == 1


def test_libraries_are_opened_before_the_engine(
    native: Path, fake_cuda: FakeCuda, tmp_path: Path, rows: np.ndarray
) -> None:
    """One that is not there is named by the model's failure, with the setting that names it."""
    for name, first, reason in (
        ("there", f"{fake_cuda.real_engine}:", ""),
        (
            "absent",
            f"{fake_cuda.real_engine}:/no/lib.so",
            "onnxruntime,load-first: /no/lib.so: cannot open shared object",
        ),
    ):
        flag = f"--backend-config=onnxruntime,load-first={first}"
        (tmp_path / name).mkdir()
        with serving(native, fake_cuda, tmp_path / name, flag, plain=SERVED["plain"]) as gpu:
            if reason:
                assert reason in gpu.failure("plain")
            else:
                gpu.client.load_model("plain")
                assert ask(gpu.client, "plain", x=rows)["y"].shape == (BATCH, COLUMNS)


def test_a_backend_is_tried_on_a_gpu(
    native: Path, fake_cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is empty if a network runs there, and else says what is wrong; `doctor` says it."""
    (server,) = SERVER.glob("lib/python*/site-packages/nvidia_pytriton.libs")
    for name, file in (
        ("lib/tritonkit/libtriton_onnxruntime.so", native / "libtriton_onnxruntime.so"),
        ("lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1", fake_cuda.engine),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).symlink_to(file)

    def attempt(fake: FakeCuda) -> str:
        for name, value in {**fake.variables, **sanitizer_variables(fake.runtime)}.items():
            monkeypatch.setenv(name, value)
        return why_not_on_gpu(tmp_path, server)

    assert attempt(fake_cuda) == ""
    assert "this server sees no GPU" in attempt(replace(fake_cuda, devices=0))
    assert "has no CUDA provider" in attempt(replace(fake_cuda, provider="none"))
    assert "libcublasLt.so.13: cannot open" in attempt(replace(fake_cuda, provider="missing"))
    assert why_not_on_gpu(tmp_path / "empty", server) == ""
