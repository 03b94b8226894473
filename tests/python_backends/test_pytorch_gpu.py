"""A PyTorch function on a GPU gives the answers that it gives on the CPU, with and without CUDA graphs.

`torch_gpu.py` stands for `torch.cuda`: no GPU is needed, and nothing here shows that one is used well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from backend_batch import Network, Request, RequestError
from backend_config import ModelError, TensorSpec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytorch_device import NO_CUDA, Graph, open_device
from pytorch_engine import Function
from pytorch_gpu import GpuFunction, engine_for

from tests.python_backends.torch_gpu import GPU, Gpu, gpu

__all__ = ["gpu"]

SPECS = {"a": TensorSpec("a", "FP32", (-1, 2)), "ids": TensorSpec("ids", "INT64", (-1,))}


def configuration(largest: int = 8, *sizes: int, graphs: bool = True) -> dict[str, Any]:
    """A configuration as Triton gives it."""
    specs = [{"batch_size": size} for size in sizes]
    cuda = {"graphs": graphs, "graph_spec": specs}
    return {"name": "net", "max_batch_size": largest, "optimization": {"cuda": cuda}}


def scaled(a: Any, ids: Any) -> Any:
    """Two results of different rank and type."""
    return torch.tanh(a) * ids[:, None], ids + 1


def function(call: Any = scaled) -> Function:
    """`call` on a and ids, whose results are y and next."""
    return Function(torch, call, {"ids": 1, "a": 0}, {"y": 0, "next": 1})


def engine(config: dict[str, Any], call: Any = scaled, specs: Any = None) -> tuple[Any, list[str]]:
    """The engine on the first GPU, and what it logged."""
    log: list[str] = []
    device = open_device(torch, GPU)
    return engine_for(function(call), device, config, specs or SPECS, log.append), log


def request(rows: int, seed: int = 0) -> Request:
    """A request of seeded values."""
    random = np.random.default_rng(seed)
    a = random.standard_normal((rows, 2)).astype(np.float32)
    return Request({"a": a, "ids": random.integers(1, 9, rows)}, ["y", "next"])


def answers(made: Any, *requests: Request) -> list[Any]:
    """The network's answers, copied out of the engine's memory."""
    results = Network("net", made, SPECS, batched=True).answer(requests)
    return [r if isinstance(r, RequestError) else {k: v.copy() for k, v in r.items()} for r in results]


def same(ours: list[Any], theirs: list[Any]) -> None:
    """All outputs of all requests are equal."""
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    rows=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    sizes=st.sets(st.integers(1, 8)),
    graphs=st.booleans(),
    again=st.integers(1, 8),
)
def test_answers_are_those_of_the_cpu(gpu: Gpu, rows: list[int], sizes: set[int], graphs: bool, again: int) -> None:
    """For any sizes, batches within and above the largest, and the same engine used twice."""
    made, _ = engine(configuration(8, *sizes | {8} if sizes else (), graphs=graphs))
    for batch in ([request(count, seed) for seed, count in enumerate(rows)], [request(again, 99)]):
        same(answers(made, *batch), answers(function(), *batch))


def test_each_size_has_a_graph_in_one_pool(gpu: Gpu) -> None:
    """The largest first; a batch replays the graph of the next size."""
    made, log = engine(configuration(8))
    assert list(made.graphs) == [8, 4, 2, 1]
    assert len(gpu.pools) == 4
    assert len(set(gpu.pools)) == 1
    assert log == ["model 'net': CUDA graphs on cuda:0 for batches of 1, 2, 4, 8"]
    before = gpu.replays
    answers(made, request(3))
    assert gpu.replays == before + 1


def test_a_batch_runs_at_a_size(gpu: Gpu) -> None:
    """Without graphs too: the function sees the rounded size, and zeros in rows that nobody sent."""
    seen: list[Any] = []

    def call(a: Any, ids: Any) -> Any:
        seen.append(ids.tolist())
        return scaled(a, ids)

    made, log = engine(configuration(8, 4, 8, graphs=False), call)
    assert not log
    seen.clear()
    sent = request(3)
    (answer,) = answers(made, sent)
    assert seen == [[*sent.inputs["ids"].tolist(), 0]]
    assert len(answer["y"]) == 3


def test_answers_outlive_the_next_run(gpu: Gpu) -> None:
    """A replay overwrites the graph's outputs, not the arrays of the run before."""
    made, _ = engine(configuration(4))
    first = made.run([request(2, 1).inputs], ["y"])["y"]
    kept = first.copy()
    made.run([request(2, 2).inputs], ["y"])
    np.testing.assert_array_equal(first, kept)


def test_no_sizes_no_graphs(gpu: Gpu) -> None:
    """A configuration that says nothing of sizes runs batches as they are."""
    made, log = engine({"name": "net", "max_batch_size": 8})
    same(answers(made, request(3)), answers(function(), request(3)))
    assert not log
    assert not gpu.pools


def test_a_free_axis_has_no_graph(gpu: Gpu) -> None:
    """The log says why; batches are still rounded up."""
    seen: list[int] = []

    def call(a: Any, ids: Any) -> Any:
        seen.append(len(a))
        return scaled(a, ids)

    specs = SPECS | {"a": TensorSpec("a", "FP32", (-1, -1))}
    made, log = engine(configuration(8), call, specs)
    assert not seen
    same(answers(made, request(3)), answers(function(), request(3)))
    assert seen == [4]
    assert log == ["model 'net': input 'a' has a free axis, so there are no CUDA graphs"]
    assert not gpu.pools


def test_a_model_without_a_batch_axis_has_one_graph(gpu: Gpu) -> None:
    """max_batch_size 0 with fixed dims; results of one element keep their shape."""
    specs = {"x": TensorSpec("x", "FP32", (3,)), "s": TensorSpec("s", "FP32", ())}
    of_two = Function(torch, lambda x, s: (x * s, x.sum()), {"x": 0, "s": 1}, {"y": 0, "total": 1})
    log: list[str] = []
    made = engine_for(of_two, open_device(torch, GPU), configuration(0), specs, log.append)
    assert log == ["model 'net': a CUDA graph on cuda:0"]
    net = Network("net", made, specs, batched=False, scalars={"total": (1,)})
    x = np.array([1, 2, 3], np.float32)
    (answer,) = net.answer([Request({"x": x, "s": np.array([2], np.float32)}, ["y", "total"])])
    assert not isinstance(answer, RequestError)
    assert answer["y"].tolist() == [2, 4, 6]
    assert answer["total"].tolist() == [6]


def test_torchscript_is_captured(gpu: Gpu) -> None:
    """A traced module's operators are in the graph."""
    example = (torch.ones(3, 2), torch.ones(3, dtype=torch.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and what the pytorch backend loads
        traced = torch.jit.trace(scaled, example, check_trace=False)
    made, log = engine(configuration(4), traced)
    assert "CUDA graphs" in log[0]
    same(answers(made, request(3)), answers(function(), request(3)))


def test_a_function_that_cannot_be_captured_is_served_without(gpu: Gpu) -> None:
    """The log has the reason, not the error that CUDA gives after it."""

    def call(a: Any, ids: Any) -> Any:
        return scaled(a, ids) if a.sum() < 1e9 else None

    made, log = engine(configuration(4), call)
    assert log == [
        "model 'net': served without CUDA graphs, which a lone request feels most:"
        " CUDA error: operation not permitted when stream is capturing"
    ]
    assert not made.graphs
    same(answers(made, request(3)), answers(function(), request(3)))


def test_a_failing_size_stops_the_load(gpu: Gpu) -> None:
    """The message has the GPU, the batch and PyTorch's reason."""

    def call(a: Any, ids: Any) -> Any:
        torch._assert(len(a) < 8, "too many")
        return scaled(a, ids)

    with pytest.raises(ModelError, match="cuda:0, a batch of 8: too many"):
        engine(configuration(8), call)


def test_a_missing_output_stops_the_load(gpu: Gpu) -> None:
    """A model with sizes is run while it loads."""
    with pytest.raises(ModelError, match="output 'next' is number 1; the model gives 1"):
        engine(configuration(8), lambda a, ids: a)


def out_of_memory(a: Any, ids: Any) -> Any:
    """A network larger than the GPU."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 1.00 GiB free.")


def test_too_little_memory_stops_the_load(gpu: Gpu) -> None:
    """The message has CUDA's figures and says what to lower."""
    with pytest.raises(ModelError, match=r"Tried to allocate 20\.00 GiB\..*; wanted memory .* instance_group count"):
        engine(configuration(8), out_of_memory)


def test_too_little_memory_for_graphs_stops_the_load(gpu: Gpu) -> None:
    """Requests would not find it either."""
    gpu.full = True
    with pytest.raises(ModelError, match=r"Tried to allocate 2\.00 MiB\.; wanted memory"):
        engine(configuration(8))


def test_too_little_memory_for_a_request_is_its_error(gpu: Gpu) -> None:
    """The GPU answers on: the process stays."""
    made, _ = engine({"name": "net", "max_batch_size": 8}, out_of_memory)
    lost: list[int] = []
    (answer,) = answers(replace(made, on_loss=lambda: lost.append(1)), request(3))
    assert "out of memory" in str(answer)
    assert not lost


def test_a_gpu_that_is_lost_ends_the_process(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fault in a kernel CUDA refuses every call of the process: the answer has its first line."""
    made, log = engine(configuration(8))
    left: list[int] = []
    monkeypatch.setattr("pytorch_gpu.leave", lambda: left.append(1))
    gpu.failure = torch.AcceleratorError("CUDA error: device-side assert triggered\nFor debugging consider ...")
    (answer,) = answers(made, request(3))
    assert str(answer) == "model 'net': PyTorch: CUDA error: device-side assert triggered"
    assert left == [1]
    assert log[-1] == "model 'net': cuda:0 no longer answers this process, which ends to be started again"


def test_leaving_ends_the_process() -> None:
    """With a code that Triton's log and `tritonkit serve` see, whatever its threads do."""
    script = "import threading; from pytorch_device import leave; leave(); threading.Event().wait()"
    ended = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    assert ended.returncode == 1


def test_memory_is_given_back_where_the_model_says_so(gpu: Gpu) -> None:
    """ENABLE_CACHE_CLEANING, after each run."""
    device = open_device(torch, GPU)
    made = engine_for(function(), device, {"max_batch_size": 8}, SPECS, print, cleaning=True)
    answers(made, request(1))
    assert gpu.cleanings == 1


def test_an_instance_on_the_cpu_is_as_before() -> None:
    """The function itself is the engine, whatever the configuration says of CUDA."""
    device = open_device(torch, {"model_instance_kind": "CPU", "model_instance_device_id": "0"})
    on_cpu = function()
    assert engine_for(on_cpu, device, configuration(8), SPECS, print) is on_cpu


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this PyTorch has CUDA")
def test_a_pytorch_without_cuda_is_refused() -> None:
    """This environment's own, with the command that installs another."""
    with pytest.raises(ModelError, match=NO_CUDA):
        open_device(torch, GPU)


def test_a_machine_without_a_gpu_is_refused(gpu: Gpu) -> None:
    """A PyTorch with CUDA that finds none."""
    gpu.count = 0
    with pytest.raises(ModelError, match="finds no GPU that it can use: tritonkit doctor"):
        open_device(torch, GPU)


def test_a_gpu_that_is_not_there_is_refused(gpu: Gpu) -> None:
    """The message has the number and those there are."""
    with pytest.raises(ModelError, match="gpus: found 1; PyTorch sees 1 GPU, wanted 0 to 0"):
        open_device(torch, GPU | {"model_instance_device_id": "1"})


def test_a_gpu_that_another_process_fills_is_refused(gpu: Gpu) -> None:
    """CUDA needs memory for its context before PyTorch allocates any."""
    gpu.failure = torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later")
    with pytest.raises(ModelError, match=r"^cuda:0: CUDA error: out of memory$"):
        open_device(torch, GPU)


def test_a_replay_reads_what_was_staged(gpu: Gpu) -> None:
    """Each input goes to the address that the graph reads."""
    device = open_device(torch, GPU)
    assert device is not None
    static = device.static((2,), torch.float32)
    graph = device.capture(lambda x: [x * 2], [static], None)
    assert isinstance(graph, Graph)
    assert graph.replay([torch.tensor([1.0, 5.0])])[0].tolist() == [2.0, 10.0]


def test_engines_are_of_one_kind(gpu: Gpu) -> None:
    """Every instance on a GPU stages its tensors, with or without sizes."""
    assert isinstance(engine({"max_batch_size": 0})[0], GpuFunction)
