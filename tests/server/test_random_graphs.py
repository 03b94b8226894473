"""Random networks, built as any model is and served by a real Triton: each answer under load is the one alone.

`TRITONKIT_FUZZ_SERVED=1000` makes it that many, in place of 8, with 100 to a server.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc

from tests.conftest import PROJECT
from tests.export.random_graphs import items, random_network, runner
from tritonkit.errors import BuildError
from tritonkit.pipeline import build_repository
from tritonkit.serve import serve

COUNT = int(os.environ.get("TRITONKIT_FUZZ_SERVED", "8"))
TO_A_SERVER = 100
CALLERS = 16
REQUESTS = 8
"""Of each caller, to each model."""

SPEC = "name: {name}\nnetwork: {{onnx: net.onnx}}\n"


def write(root: Path, seed: int) -> tuple[str, list[Any], list[Any]]:
    """A model of a random network, with requests of one row or more that it takes, and their answers alone."""
    ids = seed % 5 == 4
    content, graph = random_network(seed, ids=ids)
    name = f"net{seed}"
    folder = root / "models" / name
    folder.mkdir(parents=True)
    (folder / "net.onnx").write_bytes(content)
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
    return name, requests, answers


def ask(client: grpc.InferenceServerClient, model: str, x: Any) -> Any:
    """y for x."""
    tensor = grpc.InferInput("x", list(x.shape), "INT32" if x.dtype == np.int32 else "FP32")
    tensor.set_data_from_numpy(x)
    return client.infer(model, [tensor], client_timeout=60).as_numpy("y")


def wrong_of(address: str, name: str, requests: list[Any], answers: list[Any]) -> tuple[int, int]:
    """How many answers under load are not those alone, and of how many."""

    def call(caller: int) -> int:
        order = np.random.default_rng(caller).permutation(len(requests))[:REQUESTS]
        with grpc.InferenceServerClient(address) as client:
            found = [(ask(client, name, requests[place]), answers[place]) for place in order]
        return sum(not is_same(a, b) for a, b in found)

    with ThreadPoolExecutor(CALLERS) as pool:
        wrong = list(pool.map(call, range(CALLERS)))
    return sum(wrong), CALLERS * min(REQUESTS, len(requests))


def is_same(found: Any, wanted: Any) -> bool:
    """Within the default tolerance of a build; a discrete value that rounding tips over is one of few."""
    if found.shape != wanted.shape:
        return False
    near = np.isclose(found, wanted, rtol=1e-3, atol=1e-4, equal_nan=True)
    return bool(near.all())


def served_wrong(root: Path, seeds: range) -> tuple[list[str], int]:
    """What is wrong with the answers of a server of these networks, and how many there were."""
    (root / "python_backends").symlink_to(PROJECT / "python_backends")
    models = [write(root, seed) for seed in seeds]
    repository = build_repository(root, cores=2).path
    problems, count = [], 0
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=PROJECT) as endpoint:
        for name, requests, answers in models:
            wrong, asked = wrong_of(endpoint.grpc, name, requests, answers)
            count += asked
            if wrong:
                problems.append(f"{name}: {wrong} of {asked} answers are wrong")
    return problems, count


@pytest.mark.slow
def test_answers_under_load_are_those_alone(tmp_path: Path) -> None:
    """Batched or not, coupled or not, with the defaults of a build."""
    problems, count = [], 0
    for first in range(0, COUNT, TO_A_SERVER):
        root = tmp_path / f"from{first}"
        root.mkdir()
        found, asked = served_wrong(root, range(first, min(COUNT, first + TO_A_SERVER)))
        problems, count = problems + found, count + asked
    assert not problems, "\n".join([*problems, f"{count} answers"])
    assert count >= COUNT * CALLERS
