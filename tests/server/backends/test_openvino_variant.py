"""A network built as openvino-int8 and openvino-bf16, served as any model is, asked by a raw Triton client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

from tests.conftest import PROJECT
from tests.waiting import PATIENCE_S
from tritonkit.repository.export.onnx_file import open_session
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve

SPEC = """
name: {name}
network:
  torch: network:build
  inputs: {{x: {{dtype: UINT8, shape: [3, 16, 16]}}}}
  outputs: {{y: {{dtype: FP32, shape: [5]}}}}
quality: {{samples: data:held_out}}
optimize: {{calibration: data:calibration}}
serving:
  variant: openvino-{form}
  dynamic_batching: {{preferred_batch_size: [4], max_queue_delay: 100ms}}
"""
NETWORK = """
import torch
from torch import nn
class Scaled(nn.Sequential):
    def forward(self, x):
        return super().forward(x.float() / 255 - 0.5)
def build():
    torch.manual_seed(1)
    return Scaled(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(1024, 5))
"""
DATA = """
import numpy as np
def batches(seed):
    random = np.random.default_rng(seed)
    return [{"x": random.integers(0, 256, (8, 3, 16, 16), np.uint8)} for _ in range(3)]
def calibration():
    return batches(0)
def held_out():
    return batches(1)
"""
MODELS = ("int8", "bf16")
PICTURES = np.random.default_rng(2).integers(0, 256, (8, 3, 16, 16), np.uint8)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two specs of one network, built and published."""
    root = tmp_path_factory.mktemp("project")
    (root / "python_backends").symlink_to(PROJECT / "python_backends")
    for form in MODELS:
        folder = root / "models" / form
        folder.mkdir(parents=True)
        (folder / "model.yaml").write_text(SPEC.format(name=form, form=form))
        (folder / "network.py").write_text(NETWORK)
        (folder / "data.py").write_text(DATA)
    build_repository(root, cores=2)
    return root


@pytest.fixture(scope="module")
def client(project: Path) -> Iterator[grpc.InferenceServerClient]:
    """A raw client of both."""
    with (
        serve(project / "model_repository", grpc_port=0, http_port=0, metrics_port=0, root=PROJECT) as endpoint,
        grpc.InferenceServerClient(endpoint.grpc) as client,
    ):
        yield client


def ask(client: grpc.InferenceServerClient, model: str, x: np.ndarray) -> np.ndarray:
    """y for x, which is sent as bytes."""
    tensor = grpc.InferInput("x", list(x.shape), "UINT8")
    tensor.set_data_from_numpy(x)
    answer: np.ndarray = client.infer(model, [tensor], client_timeout=PATIENCE_S).as_numpy("y")
    return answer


def plain(project: Path, model: str, x: np.ndarray) -> np.ndarray:
    """The answers of the FP32 file."""
    (file,) = (project / ".tritonkit" / "cache" / model).glob("onnx-fp32-*/model.onnx")
    answer: np.ndarray = open_session(file, "test").run(None, {"x": x})[0]
    return answer


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_answers_are_near_those_of_fp32(
    client: grpc.InferenceServerClient, project: Path, model: str, count: int
) -> None:
    """At every batch size, padded or not, by item."""
    answers, expected = ask(client, model, PICTURES[:count]), plain(project, model, PICTURES[:count])
    assert answers.shape == expected.shape
    cosines = (answers * expected).sum(1) / np.linalg.norm(answers, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.99


@pytest.mark.parametrize("model", MODELS)
def test_requests_are_batched(client: grpc.InferenceServerClient, model: str) -> None:
    """Eight concurrent callers make fewer than eight executions, and each gets its own answer."""
    alone = [ask(client, model, picture[None]) for picture in PICTURES]
    before = client.get_inference_statistics(model).model_stats[0].execution_count
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda picture: ask(client, model, picture[None]), PICTURES))
    after = client.get_inference_statistics(model).model_stats[0].execution_count
    assert after - before < 8
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    ("x", "message"), [(np.zeros((1, 3, 16, 15), np.uint8), "shape"), (np.zeros((9, 3, 16, 16), np.uint8), "batch")]
)
def test_bad_input_is_refused(client: grpc.InferenceServerClient, x: np.ndarray, message: str) -> None:
    """A wrong size and a batch above the largest, which for OpenVINO is 8."""
    with pytest.raises(InferenceServerException, match=message):
        ask(client, "int8", x)


def test_published_configuration(client: grpc.InferenceServerClient) -> None:
    """The native backend's name and parameters; its bfloat16 hint for that form alone."""
    for model in MODELS:
        config = client.get_model_config(model).config
        assert config.backend == "openvino"
        parameters = {key: value.string_value for key, value in config.parameters.items()}
        expected = {"ENABLE_BATCH_PADDING": "YES", "INFERENCE_NUM_THREADS": "2", "NUM_STREAMS": "1"}
        expected |= {"tritonkit.independent_items": "proven"}
        assert parameters == expected | ({"HINT_BF16": "YES"} if model == "bf16" else {})
