"""Instances that share their threads: a run that is alone has all of them, one among others its share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import NodeProto, TensorProto, helper, numpy_helper
from openvino import opset13 as op

from tests.server.onnx_models import BATCH, loop, onnx_model, tensors
from tests.server.openvino_models import PADS, network, parameters
from tests.server.raw import Running, ask, start_triton
from tests.server.sanitizers import SANITIZE
from tests.server.shared.test_native_limits import CORES, SIZE
from tests.waiting import PATIENCE_S, eventually

SMALL, LARGE = 16, 1024
RANDOM = np.random.default_rng(0)
FIRST, MIDDLE, LAST = (
    (RANDOM.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)
    for shape in ((SMALL, LARGE), (LARGE, LARGE), (LARGE, SMALL))
)
FACTORS = ("first", *["middle"] * 48, "last")
"""Size of the product: its own time is many times that of a request, also on a fast processor."""
INSTANCES = 2
ROUNDS = {"onnxruntime": 400_000 if SANITIZE else 2_000_000, "openvino": 40_000 if SANITIZE else 200_000}
"""Initial rounds of the loop that runs during the others; doubled until it outlasts them on this machine."""
MOST_DOUBLINGS = 8
LONGEST_S = 5 * PATIENCE_S
"""The limit for a loop that was doubled because this machine is busy."""
ENGINES = tuple(ROUNDS)
ALONE = CORES + 1
"""Threads of a run that is alone: more than there are cores is a warning. OpenVINO has no more than cores."""
RUNS = 10
SHARE = 0.25
"""The share of the busiest thread's time from which another thread counts as part of a run."""
BUSY_NS = 100_000_000
"""A thread that has had a core for so long since before a loop began is the loop's."""


def product(folder: Path, more: str) -> None:
    """y = x times the factors, which ONNX Runtime splits over its threads."""
    nodes = [constant("first", FIRST), constant("middle", MIDDLE), constant("last", LAST)]
    names = ["x", *(f"z{place}" for place in range(len(FACTORS) - 1)), "y"]
    for place, factor in enumerate(FACTORS):
        nodes.append(helper.make_node("MatMul", [names[place], factor], [names[place + 1]]))
    onnx_model(
        folder,
        nodes,
        [("x", TensorProto.FLOAT, ["n", SMALL])],
        [("y", TensorProto.FLOAT, ["n", SMALL])],
        SIZE + PRODUCT + more,
    )


def constant(name: str, value: np.ndarray) -> NodeProto:
    """A node that gives a tensor."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))


def openvino_product(folder: Path, more: str) -> None:
    """The same for OpenVINO."""

    def build(x: Any) -> Any:
        values = {"first": FIRST, "middle": MIDDLE, "last": LAST}
        constants = {name: op.constant(value) for name, value in values.items()}
        for factor in FACTORS:
            x = op.matmul(x, constants[factor], False, False)
        return x

    network(folder, build, [-1, SMALL], SIZE + PADS + PRODUCT + more)


def multiplied(x: np.ndarray) -> np.ndarray:
    """The same in numpy."""
    values = {"first": FIRST, "middle": MIDDLE, "last": LAST}
    return functools.reduce(np.matmul, (values[factor] for factor in FACTORS), x)


PRODUCT = tensors("input", x=f"FP32 [{SMALL}]") + tensors("output", y=f"FP32 [{SMALL}]")


def shared(alone: str, **threads: str) -> str:
    """Two instances with a thread each."""
    group = f"instance_group {{ count: {INSTANCES} kind: KIND_CPU }}"
    return group + parameters(**threads, **{"tritonkit.threads_alone": alone})


@pytest.fixture(scope="module")
def triton(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Triton with these networks."""
    root = tmp_path_factory.mktemp("repository")
    one = {"intra_op_thread_count": "1"}
    streams = {"INFERENCE_NUM_THREADS": str(INSTANCES), "NUM_STREAMS": str(INSTANCES)}
    product(root / "onnxruntime_product", shared(str(ALONE), **one))
    product(root / "onnxruntime_many", shared("x", **one))
    loop(root / "onnxruntime_loop")
    openvino_product(root / "openvino_product", shared(str(ALONE), **streams))
    openvino_product(root / "openvino_many", shared("x", **streams))
    loop(root / "openvino_loop", "openvino", parameters(INFERENCE_NUM_THREADS="1"))
    with start_triton(root, tmp_path_factory.mktemp("server"), native) as running:
        yield running


def times_ns(process: int) -> dict[str, int]:
    """The time that each thread of a process has had a core (the first field of its schedstat)."""
    times: dict[str, int] = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            times[task.name] = int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return times


def taken_ns(triton: Running, call: Callable[[], object]) -> dict[str, int]:
    """The time that each thread of the server had a core during a call."""
    before = times_ns(triton.process.pid)
    call()
    after = times_ns(triton.process.pid)
    return {name: after_ns - before.get(name, 0) for name, after_ns in after.items()}


def sharing(triton: Running, call: Callable[[], object], without: Set[str] = frozenset()) -> int:
    """The threads that a call's work is spread over."""
    taken = taken_ns(triton, call)
    counted = [each_ns for name, each_ns in taken.items() if name not in without]
    return sum(each_ns >= SHARE * max(counted) for each_ns in counted)


def busy_since(triton: Running, before: Mapping[str, int]) -> set[str]:
    """Threads of the server that have computed for long since then."""
    now = times_ns(triton.process.pid)
    return {name for name, each_ns in now.items() if each_ns - before.get(name, 0) > BUSY_NS}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.skipif(CORES == 1, reason="one core: a run's work is on one thread after another")
def test_a_run_is_spread_over_threads_while_no_other_goes_on(triton: Running, engine: str) -> None:
    """The other run may be of another model: the cores are the same."""
    with grpc.InferenceServerClient(triton.address) as client:

        def multiply() -> None:
            ask(client, f"{engine}_product", x=np.ones((BATCH, SMALL), np.float32))

        def is_spread() -> bool:
            # On a busy machine one thread may do the other's work of a run before that has had a core.
            return sharing(triton, lambda: [multiply() for _ in range(RUNS)]) > 1

        def beside(rounds: int) -> list[int] | None:
            """The threads of each run next to a loop; None where the loop has ended before the runs."""
            before = times_ns(triton.process.pid)
            with going_on(client, f"{engine}_loop", rounds) as goes_on:
                loops = eventually(lambda: busy_since(triton, before) or not goes_on(), "the loop to begin")
                if not goes_on():
                    return None
                spread = [sharing(triton, multiply, loops) for _ in range(RUNS)]
                return spread if goes_on() else None

        multiply()
        eventually(is_spread, "a run that is alone on several threads")
        spreads = (beside(ROUNDS[engine] << doublings) for doublings in range(MOST_DOUBLINGS))
        assert next(spread for spread in spreads if spread is not None) == [1] * RUNS


@contextmanager
def going_on(client: grpc.InferenceServerClient, model: str, rounds: int) -> Iterator[Callable[[], bool]]:
    """A loop that runs during the body; gives a function that tells whether it still runs."""
    answers: Queue[Any] = Queue()
    tensor = grpc.InferInput("x", [1], "INT64")
    tensor.set_data_from_numpy(np.array([rounds]))
    client.async_infer(model, [tensor], lambda result, error: answers.put(error))
    yield answers.empty
    assert answers.get(timeout=LONGEST_S) is None


@pytest.mark.parametrize("engine", ENGINES)
def test_both_kinds_of_runs_answer_alike(triton: Running, engine: str) -> None:
    """Requests that come together, of several sizes, some of them alone."""
    batches = [np.random.default_rng(n).standard_normal((1 + n % 4, SMALL)).astype(np.float32) for n in range(64)]

    def answer(x: np.ndarray) -> np.ndarray:
        with grpc.InferenceServerClient(triton.address) as client:
            return ask(client, f"{engine}_product", x=x)["y"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(answer, batches))
    for x, y in zip(batches, answers, strict=True):
        np.testing.assert_allclose(y, multiplied(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_alone_past_the_cores_are_a_warning(triton: Running, engine: str) -> None:
    """Triton's log names the model, the parameter and the cores."""
    asks = f"model '{engine}_product': tritonkit.threads_alone {ALONE} asks for {ALONE} threads"
    text = f"{asks}; this server may use {CORES} core"
    assert text in triton.log.read_text()


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_alone_must_be_a_number(client: grpc.InferenceServerClient, engine: str) -> None:
    """The model is not loaded, and the reason names the parameter."""
    [entry] = [e for e in client.get_model_repository_index().models if e.name == f"{engine}_many"]
    assert entry.state == "UNAVAILABLE"
    assert "parameter tritonkit.threads_alone: found 'x', wanted a whole number" in entry.reason
