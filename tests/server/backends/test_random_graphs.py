"""Random networks, built as any model is and served by a real Triton: each answer under load is the one alone.

`TRITONKIT_FUZZ_SERVED=1000` makes it that many, in place of 8, with 100 to a server.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc

from tests.conftest import PROJECT
from tests.repository.export.random_graphs import Rows, items, random_network, runner
from tritonkit.errors import BuildError
from tritonkit.repository.export.shaken import shaken
from tritonkit.repository.modelspec.quality import Quality
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve

COUNT = int(os.environ.get("TRITONKIT_FUZZ_SERVED", "8"))
TO_A_SERVER = 100
CALLERS = 16
REQUESTS = 8
"""The number of requests of each caller to each model."""
SHAKES = 16

SPEC = "name: {name}\nnetwork: {{onnx: net.onnx}}\n"


@dataclass(frozen=True)
class Network:
    """A random network, with requests of one row or more that it takes, and their answers alone."""

    name: str
    file: Path
    run: Rows
    rounds: bool
    """Dynamic INT8 has one range for a whole batch: its items are held to the gate's drop, not to the tolerance."""
    requests: list[Any]
    answers: list[Any]


def write(root: Path, seed: int) -> Network:
    """Write the folder of a model."""
    ids = seed % 5 == 4
    content, graph = random_network(seed, ids=ids)
    name = f"net{seed}"
    folder = root / "models" / name
    folder.mkdir(parents=True)
    file = folder / "net.onnx"
    file.write_bytes(content)
    (folder / "model.yaml").write_text(SPEC.format(name=name))
    run, random = runner(content), np.random.default_rng(seed)
    requests, answers = [], []
    for number in range(CALLERS):
        x = items(random, 1 + number % 3, graph.inputs, ids=ids)
        try:
            answers.append(run({"x": x})["y"])
        except BuildError:
            continue
        requests.append(x)
    return Network(name, file, run, "dynamic INT8" in graph.names, requests, answers)


def ask(client: grpc.InferenceServerClient, model: str, x: Any) -> Any:
    """y for x."""
    tensor = grpc.InferInput("x", list(x.shape), "INT32" if x.dtype == np.int32 else "FP32")
    tensor.set_data_from_numpy(x)
    return client.infer(model, [tensor], client_timeout=60).as_numpy("y")


def answers_of(address: str, network: Network) -> list[tuple[int, Any]]:
    """The answers under load, each with the number of its request."""

    def call(caller: int) -> list[tuple[int, Any]]:
        order = np.random.default_rng(caller).permutation(len(network.requests))[:REQUESTS]
        with grpc.InferenceServerClient(address) as client:
            return [(int(n), ask(client, network.name, network.requests[n])) for n in order]

    with ThreadPoolExecutor(CALLERS) as pool:
        return [answer for answers in pool.map(call, range(CALLERS)) for answer in answers]


def problem_of(network: Network, answers: list[tuple[int, Any]]) -> str:
    """The faults of the answers under load."""
    if network.rounds:
        return loss_of(network, answers)
    wrong = sum(not is_same(network, number, answer) for number, answer in answers)
    return f"{network.name}: {wrong} of {len(answers)} answers are wrong" if wrong else ""


def loss_of(network: Network, answers: list[tuple[int, Any]]) -> str:
    """Whether R2 of all answers falls by more than the default `quality.max_drop`."""
    expected = [network.answers[number] for number, _ in answers]
    if any(a.shape != b.shape for (_, a), b in zip(answers, expected, strict=True)):
        return f"{network.name}: answers of another shape"
    a, b = (
        np.concatenate([np.ravel(array).astype(float) for array in side])
        for side in ([answer for _, answer in answers], expected)
    )
    drop = float(((a - b) ** 2).mean() / (b.var() or 1.0))
    return f"{network.name}: R2 falls by {drop:.4f}" if drop > Quality().max_drop else ""


def is_same(network: Network, number: int, answer: Any) -> bool:
    """Within the default tolerance of a build; a discrete value may be another one where rounding tips it over."""
    expected = network.answers[number]
    if answer.shape != expected.shape:
        return False
    near = np.isclose(answer, expected, rtol=1e-3, atol=1e-4, equal_nan=True)
    return bool((near | (not near.all() and tipped(network, number))).all())


def tipped(network: Network, number: int) -> Any:
    """The discrete values of an answer alone that change when its input does by a millionth, or the weights: ids have
    nothing to move."""
    x, expected = network.requests[number], network.answers[number]
    changes = np.zeros(expected.shape, bool)
    if np.issubdtype(expected.dtype, np.floating):
        return changes
    random = np.random.default_rng(number)
    for seed in range(SHAKES):
        if np.issubdtype(x.dtype, np.floating):
            moved = (x * (1 + 1e-6 * random.standard_normal(x.shape))).astype(x.dtype)
            changes |= network.run({"x": moved})["y"] != expected
        elif run := shaken(network.file, network.name, seed):
            changes |= run({"x": x})["y"] != expected
    return changes


def served_wrong(root: Path, seeds: range) -> tuple[list[str], int]:
    """The faults of the answers of a server of these networks, and the number of answers."""
    (root / "python_backends").symlink_to(PROJECT / "python_backends")
    networks = [write(root, seed) for seed in seeds]
    repository = build_repository(root, cores=2).path
    problems, count = [], 0
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=PROJECT) as endpoint:
        for network in networks:
            answers = answers_of(endpoint.grpc, network)
            count += len(answers)
            problems += filter(None, [problem_of(network, answers)])
    return problems, count


@pytest.mark.slow
@pytest.mark.timeout(300 + COUNT)
def test_answers_under_load_are_those_alone(tmp_path: Path) -> None:
    """Batched or not, coupled or not, with the defaults of a build."""
    problems, count = [], 0
    for first in range(0, COUNT, TO_A_SERVER):
        root = tmp_path / f"from{first}"
        root.mkdir()
        faults, requests = served_wrong(root, range(first, min(COUNT, first + TO_A_SERVER)))
        problems, count = problems + faults, count + requests
    assert not problems, "\n".join([*problems, f"{count} answers"])
    assert count >= COUNT * CALLERS
