"""Both kinds of the openvino backend inside a real Triton, with small networks made here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from openvino import opset13 as op
from tritonclient.utils import InferenceServerException

from tests.server.onnx_models import BATCH, MERGING, tensors, through
from tests.server.openvino_models import PADS, network, parameters, picky, twice
from tests.server.raw import Running, ask, ask_together, executions
from tests.server.sharing import SharedBackends

WEIGHTS = np.random.default_rng(0).standard_normal((4, 1, 3, 3)).astype(np.float32)


def convolve(x: Any) -> Any:
    """Four 3 x 3 filters, then the mean of each."""
    filtered = op.convolution(x, op.constant(WEIGHTS), [1, 1], [1, 1], [1, 1], [1, 1])
    return op.reduce_mean(op.relu(filtered), op.constant([2, 3]), False)


def convolved(x: np.ndarray) -> np.ndarray:
    """The same in numpy."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, WEIGHTS), 0).mean(axis=(2, 3))


SIZE = f"max_batch_size: {BATCH}\n"
PICTURE = tensors("input", x="FP32 [1, 6, 6]") + tensors("output", y="FP32 [4]")


def write_networks(root: Path) -> None:
    """Networks that are served."""
    merging = SIZE + MERGING + PADS
    network(root / "convolution", convolve, [-1, 1, 6, 6], merging + PICTURE)
    two = "instance_group { count: 2 kind: KIND_CPU }" + parameters(INFERENCE_NUM_THREADS="2")
    network(root / "two", convolve, [-1, 1, 6, 6], SIZE + PADS + PICTURE + two)
    half = PICTURE + parameters(HINT_BF16="YES", INFERENCE_NUM_THREADS="1", UNKNOWN="1")
    network(root / "half", convolve, [-1, 1, 6, 6], SIZE + PADS + half)
    network(root / "picky", picky, [-1, 1], merging + through("FP32 [1]"))
    network(root / "ragged", twice, [-1, -1], merging + through("FP32 [-1]"))
    network(root / "bytes", twice, [-1, 2], merging + through("UINT8 [2]"))
    network(root / "whole", twice, [-1, 2], "max_batch_size: 0\n" + through("FP32 [-1, 2]"))
    network(root / "scalar", twice, [], "max_batch_size: 0\n" + through("FP32 [1]"))
    network(root / "strict", twice, [-1, 2], "max_batch_size: 2\n" + through("FP32 [2]"))


REFUSALS = {
    "bad_device": "parameter TARGET_DEVICE: found GPU, wanted CPU",
    "bad_threads": "parameter INFERENCE_NUM_THREADS: found 'two', wanted a non-negative number",
    "bad_precision": "parameter INFERENCE_PRECISION_HINT: found 'int8', wanted f32/bf16/f16",
    "bad_shape": "input 'x': config.pbtxt says [-1, 3] (the batch axis and dims), the model has",
    "bad_file": "OpenVINO cannot load",
    "no_file": "wanted the OpenVINO model of version 1",
}


def write_refused(root: Path) -> None:
    """Networks that must not load."""
    both = SIZE + PADS + through("FP32 [2]")
    dims = [-1, 2]
    network(root / "bad_device", twice, dims, both + parameters(TARGET_DEVICE="GPU"))
    network(root / "bad_threads", twice, dims, both + parameters(INFERENCE_NUM_THREADS="two"))
    wrong = parameters(INFERENCE_PRECISION_HINT="int8")
    network(root / "bad_precision", twice, dims, both + wrong)
    network(root / "bad_shape", twice, dims, SIZE + PADS + through("FP32 [3]"))
    (network(root / "bad_file", twice, dims, both) / "model.xml").write_text("<net")
    (network(root / "no_file", twice, dims, both) / "model.xml").unlink()


@pytest.fixture(
    scope="module", params=[pytest.param("stand_in_server", id="python"), pytest.param("native_server", id="native")]
)
def triton(request: pytest.FixtureRequest) -> Iterator[Running]:
    """Both kinds of the backend with every model of this file."""
    server: SharedBackends = request.getfixturevalue(request.param)
    with server.serving(write_networks, write_refused) as running:
        yield running


@pytest.fixture(scope="module")
def client(triton: Running) -> Iterator[grpc.InferenceServerClient]:
    """A raw client of it."""
    with grpc.InferenceServerClient(triton.address) as client:
        yield client


Client = grpc.InferenceServerClient
PICTURES = np.random.default_rng(1).random((BATCH, 1, 6, 6), np.float32)


@pytest.mark.parametrize("model", ["convolution", "two"])
@pytest.mark.parametrize("count", range(1, BATCH + 1))
def test_every_batch_size_is_answered(client: Client, model: str, count: int) -> None:
    """Padded or not, by one instance or two, each item's answer is numpy's."""
    answer = ask(client, model, x=PICTURES[:count])["y"]
    np.testing.assert_allclose(answer, convolved(PICTURES[:count]), rtol=1e-4, atol=1e-5)


def test_requests_merge(client: Client) -> None:
    """Eight requests sent together run in fewer executions, each with its own answer."""
    before = executions(client, "convolution")
    answers = ask_together(client, "convolution", [{"x": p[None]} for p in PICTURES])
    assert executions(client, "convolution") - before < BATCH
    for picture, answer in zip(PICTURES, answers, strict=True):
        assert isinstance(answer, dict)
        np.testing.assert_allclose(answer["y"], convolved(picture[None]), rtol=1e-4, atol=1e-5)


def test_bad_request_in_a_merged_batch_fails_alone(client: Client) -> None:
    """The two bad ones of eight requests in one execution get their error, the others answers."""
    values = [1, 5, 2, 3, 4, 7, 1, 2]
    before = executions(client, "picky")
    answers = ask_together(client, "picky", [{"x": np.array([[v]], np.float32)} for v in values])
    assert executions(client, "picky") - before < BATCH, "the requests did not merge"
    for value, answer in zip(values, answers, strict=True):
        if value in (5, 7):
            assert "[StatusCode.INVALID_ARGUMENT] model 'picky': OpenVINO: " in str(answer)
        else:
            assert isinstance(answer, dict)
            assert answer["y"].tolist() == [[value]]


def test_ragged_requests_are_all_answered(client: Client) -> None:
    """Requests of different lengths sent together each get their own length back."""
    requests = [{"x": np.full((1, 1 + k % 3), k, np.float32)} for k in range(BATCH)]
    answers = ask_together(client, "ragged", requests)
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(answer, dict)
        np.testing.assert_array_equal(answer["y"], request["x"] * 2)


def test_scalar_is_served_as_one(client: Client) -> None:
    """Rank 0 in the file is dims [1] in the configuration, in and out."""
    for value in (2, 3):
        answer = ask(client, "scalar", x=np.array([value], np.float32))["y"]
        assert (answer.shape, answer.tolist()) == ((1,), [2 * value])


def test_half_precision_is_a_hint(client: Client) -> None:
    """HINT_BF16 gives answers that are near, and a parameter nobody knows harms nothing."""
    np.testing.assert_allclose(ask(client, "half", x=PICTURES)["y"], convolved(PICTURES), rtol=0.05)


def test_each_model_is_computed_in_fp32_unless_it_asks_for_less(triton: Running) -> None:
    """Whatever the processor has; the log says in what each model was compiled."""
    log = triton.log.read_text()
    for model, precision in (("convolution", "f32"), ("whole", "f32"), ("half", "bf16")):
        (line,) = {
            line.split("] ")[-1]
            for line in log.splitlines()
            if f"model '{model}': " in line and "INFERENCE_NUM_THREADS" in line
        }
        assert f"INFERENCE_PRECISION_HINT {precision}" in line


def test_datatype_of_the_configuration_is_converted(client: Client) -> None:
    """A float network takes and gives the bytes its configuration speaks of."""
    values = np.array([[1, 100]], np.uint8)
    np.testing.assert_array_equal(ask(client, "bytes", x=values)["y"], values * 2)


def test_model_without_a_batch_axis(client: Client) -> None:
    """max_batch_size 0: any first axis."""
    for rows in (1, 3):
        x = np.full((rows, 2), rows, np.float32)
        np.testing.assert_array_equal(ask(client, "whole", x=x)["y"], 2 * x)


def test_batches_that_may_not_be_padded_are_refused(client: Client) -> None:
    """Without ENABLE_BATCH_PADDING only full batches pass, as in the native backend."""
    full = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(ask(client, "strict", x=full)["y"], 2 * full)
    with pytest.raises(InferenceServerException, match="expected requests with batch size '2'"):
        ask(client, "strict", x=full[:1])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 1, 6, 6)), "FP64"),
        (np.zeros((1, 1, 6, 5), np.float32), "shape"),
        (np.zeros((BATCH + 1, 1, 6, 6), np.float32), "batch"),
    ],
)
def test_wrong_dtype_shape_and_batch_are_refused(client: Client, array: np.ndarray, message: str) -> None:
    """An input that the configuration rules out gets an error that names it."""
    with pytest.raises(InferenceServerException, match=message):
        ask(client, "convolution", x=array)


@pytest.mark.parametrize("model", REFUSALS)
def test_model_that_cannot_be_served_does_not_load(client: Client, model: str) -> None:
    """Triton reports the model as unavailable, with its name and the reason."""
    index = client.get_model_repository_index()
    (entry,) = [entry for entry in index.models if entry.name == model]
    assert entry.state == "UNAVAILABLE"
    assert f"model '{model}': " in entry.reason
    assert REFUSALS[model] in entry.reason
