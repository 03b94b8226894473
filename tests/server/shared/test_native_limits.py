"""Faults around the native backends, inside a real Triton: named, contained, and counted."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from tests.server.onnx_models import BATCH, MERGING, identity, onnx_model, tensors, through
from tests.server.openvino_models import PADS, network, parameters, picky, twice
from tests.server.raw import Running, ask, ask_together, executions, forget, start_triton
from tests.server.sharing import SharedBackends
from tests.waiting import PATIENCE_S, eventually

SIZE = f"max_batch_size: {BATCH}\n"
CORES = len(os.sched_getaffinity(0))
STATE = """
sequence_batching {
  state {
    input_name: "total_in" output_name: "total_out" data_type: TYPE_FP32 dims: [1]
    initial_state { name: "zero" data_type: TYPE_FP32 dims: [1] zero_data: true }
  }
}
"""


def write_networks(root: Path) -> None:
    """Networks that break a promise, ask for much, or take long."""
    free = SIZE + tensors("input", x="FP32 [-1]") + tensors("output", y="FP32 [2]")
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    wide: list[Any] = [("x", TensorProto.FLOAT, ["n", "m"])]
    outputs: list[Any] = [("y", TensorProto.FLOAT, ["n", 2])]
    onnx_model(root / "larger", nodes, wide, outputs, free)
    onnx_model(root / "larger_at_once", nodes, wide, outputs, free)
    # The network leaves the batch as it is in x, and makes one row of it in y.
    summed = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=1),
        helper.make_node("Constant", [], ["all"], value=helper.make_tensor("all", TensorProto.BOOL, [1], [True])),
        helper.make_node("Compress", ["sum", "all"], ["y"], axis=0),
    ]
    both = through("FP32 [1]")
    one: list[Any] = [("x", TensorProto.FLOAT, ["n", 1])]
    onnx_model(root / "one_row", summed, one, [("y", TensorProto.FLOAT, ["m", 1])], SIZE + MERGING + both)
    identity(root / "merged", TensorProto.FLOAT, ["n", 4], SIZE + MERGING + through("FP32 [4]"))
    network(root / "ov_merged", twice, [-1, 4], SIZE + MERGING + PADS + through("FP32 [4]"))
    network(root / "ov_picky", picky, [-1, 1], SIZE + MERGING + PADS + through("FP32 [1]"))
    onnx_model(
        root / "sum",
        [helper.make_node("Add", ["x", "total_in"], ["total_out"]), helper.make_node("Identity", ["total_out"], ["y"])],
        [*one, ("total_in", TensorProto.FLOAT, ["n", 1])],
        [("y", TensorProto.FLOAT, ["n", 1]), ("total_out", TensorProto.FLOAT, ["n", 1])],
        SIZE + both + STATE,
    )
    pinned = {"intra_op_thread_count": "2", "session.intra_op_thread_affinities": str(min(os.sched_getaffinity(0)) + 1)}
    identity(root / "pinned", TensorProto.FLOAT, ["n", 2], SIZE + through("FP32 [2]") + parameters(**pinned))
    many = parameters(intra_op_thread_count=str(CORES)) + "instance_group { count: 2 kind: KIND_CPU }"
    identity(root / "many", TensorProto.FLOAT, ["n", 2], SIZE + through("FP32 [2]") + many)
    ov_many = parameters(INFERENCE_NUM_THREADS=str(CORES + 1))
    network(root / "ov_many", twice, [-1, 2], SIZE + PADS + through("FP32 [2]") + ov_many)


REFUSALS = {
    "too_many": "parameter intra_op_thread_count: found 4294967297, wanted at most",
    "ov_too_many": "parameter INFERENCE_NUM_THREADS: found 99999, wanted at most",
    "flat_state": "input 'total_in': max_batch_size is above 0, so it needs a first axis; the model has none",
}


def write_refused(root: Path) -> None:
    """Networks that must not load."""
    both = SIZE + PADS + through("FP32 [2]")
    threads = parameters(intra_op_thread_count="4294967297")
    identity(root / "too_many", TensorProto.FLOAT, ["n", 2], both + threads)
    network(root / "ov_too_many", twice, [-1, 2], both + parameters(INFERENCE_NUM_THREADS="99999"))
    onnx_model(
        root / "flat_state",
        [helper.make_node("Add", ["x", "total_in"], ["y"]), helper.make_node("Identity", ["total_in"], ["total_out"])],
        [("x", TensorProto.FLOAT, ["n", 2]), ("total_in", TensorProto.FLOAT, [])],
        [("y", TensorProto.FLOAT, ["n", 2]), ("total_out", TensorProto.FLOAT, [])],
        both + STATE,
    )


@pytest.fixture(scope="module")
def triton(native_server: SharedBackends) -> Iterator[Running]:
    """The native backends with the networks of this file."""
    with native_server.serving(write_networks, write_refused) as running:
        yield running


Client = grpc.InferenceServerClient


@pytest.fixture
def region(client: Client) -> Iterator[SharedMemory]:
    """64 bytes that Triton knows, under the region's own name."""
    name = f"tk_test_{uuid.uuid4().hex[:12]}"
    memory = SharedMemory(name, create=True, size=64)
    client.register_system_shared_memory(name, f"/{name}", 64)
    yield memory
    forget(client.unregister_system_shared_memory, name)
    memory.close()
    memory.unlink()


def into(region: SharedMemory, size: int, offset: int = 0) -> grpc.InferRequestedOutput:
    """An output y that goes to the region."""
    output = grpc.InferRequestedOutput("y")
    output.set_shared_memory(region.name.lstrip("/"), size, offset)
    return output


def vector(array: np.ndarray) -> grpc.InferInput:
    """An input x."""
    tensor = grpc.InferInput("x", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


# Outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["merged", "ov_merged"])
def test_an_output_lands_in_shared_memory_wherever_that_is(client: Client, model: str, region: SharedMemory) -> None:
    """At any address, again and again, and between answers that go elsewhere."""
    x = np.arange(4, dtype=np.float32)[None]
    expected = (ask(client, model, x=x)["y"] if model == "merged" else 2 * x).tobytes()
    for offset in (0, 16, 3, 1, 0, 48):
        region.buf[:64] = bytes(64)
        client.infer(model, [vector(x)], outputs=[into(region, 16, offset)], client_timeout=PATIENCE_S)
        assert bytes(region.buf[:64]) == bytes(offset) + expected + bytes(48 - offset)
        assert ask(client, model, x=x)["y"].tobytes() == expected


@pytest.mark.parametrize("model", ["merged", "ov_merged"])
def test_a_region_too_small_fails_its_request_alone(client: Client, model: str, region: SharedMemory) -> None:
    """The request whose output has no room gets the error, alone and among others of its execution."""
    x = np.ones((1, 4), np.float32)

    def one(size: int) -> str:
        outputs = [into(region, size, 16 * (size == 16))] if size else None
        try:
            client.infer(model, [vector(x)], outputs=outputs, client_timeout=PATIENCE_S)
        except InferenceServerException as error:
            return str(error)
        return "answered"

    before = executions(client, model)
    sizes = [0, 15, 0, 16, 0, 0, 0, 15]
    with ThreadPoolExecutor(len(sizes)) as pool:
        answers = list(pool.map(one, sizes))
    assert executions(client, model) - before < len(sizes), "the requests did not merge"
    alone = one(15)
    for size, answer in [*zip(sizes, answers, strict=True), (15, alone)]:
        assert (answer == "answered") == (size != 15)
        assert size != 15 or "shared memory" in answer


@pytest.mark.parametrize("model", ["larger", "larger_at_once"])
def test_an_output_larger_than_said_is_an_error(client: Client, model: str) -> None:
    """Named, whether the network kept its promise before or never."""
    good = np.ones((1, 2), np.float32)
    if model == "larger":
        for _ in range(3):
            np.testing.assert_array_equal(ask(client, model, x=good)["y"], good)
    with pytest.raises(InferenceServerException, match=rf"model '{model}'.*1, ?3"):
        ask(client, model, x=np.ones((1, 3), np.float32))
    np.testing.assert_array_equal(ask(client, model, x=good)["y"], good)


def test_an_output_that_is_not_as_long_as_the_batch_is_an_error(client: Client) -> None:
    """A network that makes one row of all answers one request of one row, and names what is wrong with others."""
    one = np.ones((1, 1), np.float32)
    assert ask(client, "one_row", x=one)["y"].tolist() == [[1]]
    with pytest.raises(InferenceServerException, match=r"output 'y': found shape \[1, 1\], wanted 2"):
        ask(client, "one_row", x=np.ones((2, 1), np.float32))
    answers = ask_together(client, "one_row", [{"x": one}] * BATCH)
    assert [answer["y"].tolist() for answer in answers if isinstance(answer, dict)] == [[[1]]] * BATCH


def test_a_step_that_fails_leaves_the_state(client: Client, region: SharedMemory) -> None:
    """The sequence goes on from the last step that was answered."""
    steps = [(1, None), (10, into(region, 3)), (2, None)]
    totals = []
    for number, (value, output) in enumerate(steps):
        call = partial(
            client.infer,
            "sum",
            [vector(np.full((1, 1), value, np.float32))],
            sequence_id=7,
            sequence_start=number == 0,
            sequence_end=number == 2,
            outputs=[output or grpc.InferRequestedOutput("y")],
            client_timeout=PATIENCE_S,
        )
        if output is None:
            totals.append(call().as_numpy("y").item())
            continue
        with pytest.raises(InferenceServerException, match="shared memory"):
            call()
    assert totals == [1, 3]


# Counting, cancelling, ending ------------------------------------------------------------------


def test_statistics_count_requests_and_batches(client: Client) -> None:
    """Successes and failures by request, runs by batch size."""
    before = client.get_inference_statistics("ov_picky").model_stats[0]
    good, bad = np.ones((1, 1), np.float32), np.full((1, 1), 5, np.float32)
    for array in (good, good, np.ones((3, 1), np.float32), bad):
        ask_together(client, "ov_picky", [{"x": array}])

    def counted() -> bool:
        after = client.get_inference_statistics("ov_picky").model_stats[0]
        ended, ended_before = after.inference_stats, before.inference_stats
        sizes = {row.batch_size: row.compute_infer.count for row in after.batch_stats}
        counts = (
            ended.success.count - ended_before.success.count,
            ended.fail.count - ended_before.fail.count,
            after.inference_count - before.inference_count,
        )
        return counts == (3, 1, 5) and sizes == {1: 2, 3: 1}

    # A run is counted after its answers have left.
    eventually(counted, "all of them counted")


# Threads ---------------------------------------------------------------------------------------


def test_threads_past_the_cores_are_a_warning(client: Client, triton: Running) -> None:
    """Triton's log names the model, what it asks for and the cores; the model serves."""
    log = triton.log.read_text()
    rest = f"threads; this server may use {CORES} core"
    assert f"model 'many': intra_op_thread_count {CORES} in each of 2 instances asks for {2 * CORES} {rest}" in log
    assert f"model 'ov_many': INFERENCE_NUM_THREADS asks for {CORES + 1} {rest}" in log
    x = np.ones((1, 2), np.float32)
    np.testing.assert_array_equal(ask(client, "many", x=x)["y"], x)
    np.testing.assert_array_equal(ask(client, "ov_many", x=x)["y"], 2 * x)


@pytest.mark.skipif(CORES < 2, reason="one core: every thread runs there")
def test_threads_are_pinned_as_asked(client: Client, triton: Running) -> None:
    """session.intra_op_thread_affinities reaches ONNX Runtime: a thread may run on that core alone."""
    x = np.ones((1, 2), np.float32)
    np.testing.assert_array_equal(ask(client, "pinned", x=x)["y"], x)
    allowed = {
        line.split()[1]
        for status in Path(f"/proc/{triton.process.pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("Cpus_allowed_list:")
    }
    assert str(min(os.sched_getaffinity(0))) in allowed


def test_all_networks_may_share_threads(native: Path, tmp_path: Path) -> None:
    """With enable-global-threadpool twelve networks have the threads of one."""

    def threads(folder: Path, *flags: str) -> int:
        root = folder / "repository"
        own = parameters(intra_op_thread_count="3")
        for name in "abcdefghijkl":
            identity(root / name, TensorProto.FLOAT, ["n", 2], SIZE + through("FP32 [2]") + own)
        with (
            start_triton(root, folder, native, flags) as running,
            grpc.InferenceServerClient(running.address) as client,
        ):
            x = np.ones((1, 2), np.float32)
            np.testing.assert_array_equal(ask(client, "a", x=x)["y"], x)
            return len(list(Path(f"/proc/{running.process.pid}/task").iterdir()))

    settings = ("enable-global-threadpool=1", "intra_op_thread_count=3")
    shared = [f"--backend-config=onnxruntime,{setting}" for setting in settings]
    for name in ("apart", "shared"):
        (tmp_path / name).mkdir()
    # Each network apart has two more; Triton's own come and go by a few.
    assert threads(tmp_path / "apart") - threads(tmp_path / "shared", *shared) >= 12


# What cannot be loaded -------------------------------------------------------------------------


@pytest.mark.parametrize("model", REFUSALS)
def test_model_that_cannot_be_served_does_not_load(client: Client, model: str) -> None:
    """Triton reports the model as unavailable, with its name and the reason."""
    (entry,) = [entry for entry in client.get_model_repository_index().models if entry.name == model]
    assert entry.state == "UNAVAILABLE"
    assert f"model '{model}': " in entry.reason
    assert REFUSALS[model] in entry.reason


OLD = """
struct base { const void* (*table)(unsigned); const char* (*version)(void); };
static const void* table(unsigned version) { (void)version; return 0; }
static const char* version(void) { return "1.9.0"; }
const struct base* OrtGetApiBase(void) { static const struct base one = {table, version}; return &one; }
"""
ENGINES = {
    "absent": (None, "engine.so: "),
    "other": ("int nothing;\n", "engine.so is no ONNX Runtime: it has no OrtGetApiBase"),
    "old": (OLD, "engine.so is ONNX Runtime 1.9.0, wanted 1.15 or newer"),
}


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_that_cannot_be_used_is_named(native: Path, tmp_path: Path, kind: str) -> None:
    """Its models do not load and say why; those of the other engine are served."""
    source, reason = ENGINES[kind]
    engine = tmp_path / "engine.so"
    if source is not None:
        (tmp_path / "engine.c").write_text(source)
        subprocess.run(
            ["c++", "-x", "c", "-shared", "-fPIC", "-o", engine, tmp_path / "engine.c"],  # noqa: S607
            check=True,
        )
    root = tmp_path / "repository"
    identity(root / "one", TensorProto.FLOAT, ["n", 2], SIZE + through("FP32 [2]"))
    network(root / "other", twice, [-1, 2], SIZE + PADS + through("FP32 [2]"))
    flags = [f"--backend-config=onnxruntime,library={engine}"]
    with start_triton(root, tmp_path, native, flags) as running, grpc.InferenceServerClient(running.address) as client:
        entries = {entry.name: entry for entry in client.get_model_repository_index().models}
        assert entries["one"].state == "UNAVAILABLE"
        assert f"onnxruntime backend: {tmp_path}/{reason}" in entries["one"].reason
        assert reason in running.log.read_text()
        x = np.ones((1, 2), np.float32)
        np.testing.assert_array_equal(ask(client, "other", x=x)["y"], 2 * x)
