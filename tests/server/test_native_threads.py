"""Instances that share their threads: a run that is alone has all of them, one beside others its share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper, numpy_helper

from tests.server.sanitizers import SANITIZE
from tests.server.test_native_limits import CORES, SIZE, loop
from tests.server.test_openvino import parameters
from tests.server.test_python_backends import Running, ask, onnx_model, start_triton, tensors
from tests.waiting import PATIENCE_S, eventually

INNER, OUTER = 256, 4096
WEIGHTS = np.random.default_rng(0).standard_normal((INNER, OUTER)).astype(np.float32)
INSTANCES = 2
ROUNDS = 400_000 if SANITIZE else 2_000_000
"""Of a loop that goes on while others run."""
ALONE = 32
"""Threads of a run that is alone: more than there are cores, so that their waking is seen on any machine."""


def product(folder: Path, more: str) -> None:
    """y = x times WEIGHTS, which ONNX Runtime splits over its threads."""
    onnx_model(
        folder,
        [
            helper.make_node(
                "Constant", [], ["weights"], value=numpy_helper.from_array(WEIGHTS, "weights")
            ),
            helper.make_node("MatMul", ["x", "weights"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, ["n", INNER])],
        [("y", TensorProto.FLOAT, ["n", OUTER])],
        SIZE
        + tensors("input", x=f"FP32 [{INNER}]")
        + tensors("output", y=f"FP32 [{OUTER}]")
        + more,
    )


def shared(alone: str, threads: int = 1) -> str:
    """Two instances with so many threads each."""
    group = f"instance_group {{ count: {INSTANCES} kind: KIND_CPU }}"
    given = {"intra_op_thread_count": str(threads), "tritonkit.threads_alone": alone}
    return group + parameters(**given)


@pytest.fixture(scope="module")
def triton(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Triton with these networks."""
    root = tmp_path_factory.mktemp("repository")
    product(root / "product", shared(str(ALONE)))
    product(root / "many", shared("x"))
    loop(root / "loop")
    with start_triton(root, tmp_path_factory.mktemp("server"), native) as running:
        yield running


def turns(process: int) -> dict[str, int]:
    """How often each thread of a process has had a core (the third field of its schedstat)."""
    found: dict[str, int] = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[2])
        except FileNotFoundError:  # it has ended
            continue
    return found


def woken(triton: Running, call: Callable[[], object]) -> set[str]:
    """Threads of the server that had a core during a call."""
    before = turns(triton.process.pid)
    call()
    return {
        name for name, count in turns(triton.process.pid).items() if count > before.get(name, 0)
    }


def test_a_run_beside_another_wakes_no_threads_of_a_run_alone(triton: Running) -> None:
    """The other run may be of another model: the cores are the same."""
    with grpc.InferenceServerClient(triton.address) as client:

        def multiply() -> None:
            ask(client, "product", x=np.ones((4, INNER), np.float32))

        def go_round() -> None:
            ask(client, "loop", x=np.array([1]))

        go_round()
        multiply()
        tritons = set().union(*(woken(triton, go_round) for _ in range(20)))
        workers: set[str] = set()

        def most_are_seen() -> bool:
            # On a busy machine a run may end before most of its threads have had a core.
            workers.update(woken(triton, multiply) - tritons)
            return len(workers) > ALONE // 2

        eventually(most_are_seen, "the threads of a run alone")

        answers: Queue[Any] = Queue()
        tensor = grpc.InferInput("x", [1], "INT64")
        tensor.set_data_from_numpy(np.array([ROUNDS]))
        client.async_infer("loop", [tensor], lambda result, error: answers.put((result, error)))

        def is_beside() -> bool:
            return len(woken(triton, multiply) & workers) <= INSTANCES

        eventually(is_beside, "the loop to begin")
        beside = [is_beside() for _ in range(10)]
        assert answers.empty(), "the loop goes on"
        assert all(beside)
        assert answers.get(timeout=PATIENCE_S)[1] is None


def test_both_kinds_of_runs_answer_alike(triton: Running) -> None:
    """Requests that come together, of several sizes, some of them alone."""
    given = [
        np.random.default_rng(n).standard_normal((1 + n % 4, INNER)).astype(np.float32)
        for n in range(64)
    ]

    def answer(x: np.ndarray) -> np.ndarray:
        with grpc.InferenceServerClient(triton.address) as client:
            return ask(client, "product", x=x)["y"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(answer, given))
    for x, y in zip(given, answers, strict=True):
        np.testing.assert_allclose(y, x @ WEIGHTS, rtol=1e-4, atol=1e-3)


def test_threads_alone_past_the_cores_are_a_warning(triton: Running) -> None:
    """Triton's log names the model, the parameter and the cores."""
    asks = f"model 'product': tritonkit.threads_alone {ALONE} asks for {ALONE} threads"
    text = f"{asks}; this server may use {CORES} core"
    assert (text in triton.log.read_text()) == (ALONE > CORES)


def test_threads_alone_must_be_a_number(client: grpc.InferenceServerClient) -> None:
    """The model is not loaded, and the reason names the parameter."""
    [entry] = [e for e in client.get_model_repository_index().models if e.name == "many"]
    assert entry.state == "UNAVAILABLE"
    assert "parameter tritonkit.threads_alone: found 'x', wanted a whole number" in entry.reason
