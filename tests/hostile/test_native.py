"""Damaged networks and damaged requests against the native backends: an error each, the server alive.

`TRITONKIT_NATIVE_CAMPAIGN=10000` says how many of each; the seeds are always the same, so that a failure can be
repeated. Without it there are few enough for every run of the tests.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import openvino
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto
from openvino import opset13 as op
from tritonclient.utils import InferenceServerException

from tests.hostile import grpc_requests
from tests.hostile.native_models import Damaged, damaged, is_outside
from tests.hostile.native_requests import Network, Sender
from tests.server.conftest import native
from tests.server.onnx_models import identity, tensors, through, write_model
from tests.server.raw import Running, ask, start_triton
from tests.server.shared.test_padding import parameter

__all__ = ["native"]  # a fixture

pytestmark = pytest.mark.timeout(7200)

ROUNDS = int(os.environ.get("TRITONKIT_NATIVE_CAMPAIGN", "0"))
MODELS = ROUNDS or 150
REQUESTS = ROUNDS or 1500
CALLERS = 2
STATUSES = grpc_requests.STATUSES | {"UNSENT"}
BATCH = "max_batch_size: 4\n"
MERGING = "dynamic_batching { max_queue_delay_microseconds: 500 }\n"
PADS = 'parameters { key: "ENABLE_BATCH_PADDING" value { string_value: "YES" } }\n'

ONNX_NETWORKS = {
    "vector": (TensorProto.FLOAT, ["n", 4], "FP32 [4]", True),
    "free": (TensorProto.INT64, ["n", "m"], "INT64 [-1]", True),
    "lengths": (TensorProto.INT64, ["n", "m"], "INT64 [-1]", True),
    "text": (TensorProto.STRING, ["n", 2], "STRING [2]", True),
    "whole": (TensorProto.FLOAT16, ["n", 3], "FP16 [-1, 3]", False),
    "scalar": (TensorProto.BOOL, [], "BOOL [1]", False),
}
OPENVINO_NETWORKS = {
    "ov_vector": (np.float32, [-1, 4], "FP32 [4]", True),
    "ov_free": (np.int32, [-1, -1], "INT32 [-1]", True),
    "ov_lengths": (np.int32, [-1, -1], "INT32 [-1]", True),
    "ov_whole": (np.uint8, [-1, 3], "UINT8 [-1, 3]", False),
}
NETWORKS = [
    Network("vector", "FP32", (-1, 4)),
    Network("free", "INT64", (-1, -1)),
    Network("lengths", "INT64", (-1, -1)),
    Network("text", "BYTES", (-1, 2)),
    Network("whole", "FP16", (-1, 3)),
    Network("scalar", "BOOL", (1,)),
    Network("ov_vector", "FP32", (-1, 4)),
    Network("ov_free", "INT32", (-1, -1)),
    Network("ov_lengths", "INT32", (-1, -1)),
    Network("ov_whole", "UINT8", (-1, 3)),
]


def both_ways(name: str, declared: str) -> str:
    """Input x and output y of one type and shape; those of `lengths` are padded to the longest of a batch."""
    if "lengths" not in name:
        return through(declared)
    ragged = tensors("input", x=declared).replace("dims", "allow_ragged_batch: true dims")
    pad = parameter({"x": {"axis": 0, "value": 0}, "y": {"axis": 0}})
    return f"{ragged}{tensors('output', y=declared)}{pad}"


def write_networks(root: Path) -> None:
    """Identities of both backends, with and without a batch axis."""
    for name, (kind, dims, declared, batched) in ONNX_NETWORKS.items():
        size = BATCH + MERGING if batched else ""
        identity(root / name, kind, dims, size + both_ways(name, declared))
    for name, (dtype, shape, declared, batched) in OPENVINO_NETWORKS.items():
        x = op.parameter(shape, dtype, "x")
        x.output(0).set_names({"x"})
        y = op.reshape(x, op.constant([0, 0]), True)
        y.output(0).set_names({"y"})
        size = BATCH + MERGING + PADS if batched else ""
        version = write_model(root / name, f'backend: "openvino"\n{size}{both_ways(name, declared)}')
        openvino.save_model(openvino.Model([y], [x]), version / "model.xml", compress_to_fp16=False)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models; damaged ones are added."""
    root = tmp_path_factory.mktemp("repository")
    write_networks(root)
    return root


@pytest.fixture(scope="module")
def triton(native: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Triton with the sound networks; others are loaded on demand."""
    names = [network.name for network in NETWORKS]
    flags = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in names)]
    with start_triton(repository, tmp_path_factory.mktemp("server"), native, flags) as running:
        yield running


def answers_rightly(client: grpc.InferenceServerClient) -> None:
    """The sound networks of both backends answer as ever."""
    x = np.arange(4, dtype=np.float32)[None]
    for name in ("vector", "ov_vector"):
        np.testing.assert_array_equal(ask(client, name, x=x)["y"], x)


def place(folder: Path, model: Damaged) -> None:
    """Write a model over the one before it; each file appears in one step."""
    version = folder / "1"
    version.mkdir(parents=True, exist_ok=True)
    for old in version.iterdir():
        old.unlink()
    for name, content in model.files.items():
        (version / name).write_bytes(content)
    (folder / "config.pbtxt").write_text(f'name: "{folder.name}"\n{model.config}')


def try_model(client: grpc.InferenceServerClient, name: str) -> str:
    """Load it, and ask it where it loads; `served`, or the reason why not."""
    try:
        client.load_model(name, client_timeout=120)
    except InferenceServerException as error:
        return str(error)
    try:
        ask(client, name, x=np.ones((1, 4), np.float32))
    except InferenceServerException as error:
        assert f"'{name}'" in str(error), error  # noqa: PT017
    client.unload_model(name)
    return "served"


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_damaged_networks(triton: Running, repository: Path, backend: str) -> None:
    """Each is refused by name, in the answer and in the log, or serves; the others go on, in the same process."""
    random = Random(f"{backend} models")
    results: Counter[str] = Counter()
    with grpc.InferenceServerClient(triton.address) as client:
        for number in range(MODELS):
            model = damaged(random, backend)
            name = f"damaged_{backend}_{number % 50}"
            place(repository / name, model)
            reason = try_model(client, name)
            assert triton.process.poll() is None, f"model {number} ({model.kind}) ended the server"
            assert reason == "served" or f"model '{name}'" in reason, reason
            assert not (is_outside(model.kind) and reason == "served"), number
            results[f"{model.kind}: {'served' if reason == 'served' else 'refused'}"] += 1
            if number % 100 == 0:
                answers_rightly(client)
        answers_rightly(client)
    print(f"{MODELS} networks for {backend}: {dict(results)}")  # noqa: T201
    assert sum(count for kind, count in results.items() if kind.endswith("refused")) > MODELS / 3
    assert f"model 'damaged_{backend}_0': " in triton.log.read_text(errors="replace")


def test_damaged_requests(triton: Running) -> None:
    """Each gets an error that is Triton's or the right answer; none is missing, and the process is the same."""
    senders = [Sender(triton.address, NETWORKS, f"tk_test_{uuid.uuid4().hex[:12]}") for _ in range(CALLERS)]

    def run(number: int) -> Counter[str]:
        random = Random(number)
        return Counter(senders[number].send(random) for _ in range(REQUESTS // CALLERS))

    try:
        with ThreadPoolExecutor(CALLERS) as pool:
            statuses = sum(pool.map(run, range(CALLERS)), Counter[str]())
    finally:
        for sender in senders:
            sender.close()
    print(f"{sum(statuses.values())} requests: {dict(statuses)}")  # noqa: T201
    assert triton.process.poll() is None
    assert set(statuses) <= STATUSES, statuses
    assert statuses["OK"] > REQUESTS / 10
    assert statuses["INVALID_ARGUMENT"] > REQUESTS / 10
    with grpc.InferenceServerClient(triton.address) as client:
        answers_rightly(client)
