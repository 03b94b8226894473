"""The client against a real Triton that serves the models of `models/`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tritonclient.grpc import InferenceServerClient, InferInput

from tests.server.models import ModelText
from tests.server.sharing import SharedServer
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.errors import DeadlineExceeded, InferenceError, InvalidInput, ModelNotFound
from tritonkit.serve import Endpoint


@pytest.fixture
def client(digits_server: Any) -> Iterator[Client]:
    """A client of the served models."""
    with Client(digits_server.grpc, timeout_s=PATIENCE_S) as client:
        yield client


@pytest.fixture
def pixels() -> Any:
    """Four images as the network takes them: float32 [4, 1, 8, 8], 0..1."""
    return np.random.default_rng(0).random((4, 1, 8, 8), dtype=np.float32)


def test_the_network_answers_as_tritonclient_hears_it(client: Client, digits_server: Any, pixels: Any) -> None:
    """The same tensor gives the same numbers through NVIDIA's own client."""
    tensor = InferInput("pixels", pixels.shape, "FP32")
    tensor.set_data_from_numpy(pixels)
    raw = InferenceServerClient(digits_server.grpc)
    answer = raw.infer("digits_network", [tensor])
    reply = client.model("digits_network").predict(pixels=pixels)
    for name in reply:
        np.testing.assert_allclose(reply[name], answer.as_numpy(name), rtol=1e-5)
    raw.close()


def test_items_and_batches_agree(client: Client, pixels: Any) -> None:
    """One image alone gets what it gets in a batch, with a batch axis of length 1."""
    network = client.model("digits_network")
    (output,) = network.signature.outputs
    batch = network.predict(pixels=pixels)[output]
    item = network.predict(pixels=pixels[2])[output]
    assert item.shape == (1, *batch.shape[1:])
    np.testing.assert_allclose(item[0], batch[2], rtol=1e-4, atol=1e-5)


def test_an_image_goes_in_as_its_file(client: Client) -> None:
    """The ensemble takes a PNG's bytes and gives the three best labels with their scores."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(file, format="PNG")
    reply = client.model("digits").predict(image=file.getvalue())
    assert reply["label"].shape == reply["score"].shape == (1, 3)
    assert isinstance(reply["label"][0, 0], bytes)
    assert np.all(np.diff(reply["score"][0]) <= 0)


def test_what_is_no_image_is_the_servers_error(client: Client) -> None:
    """A model that refuses an input answers with an error that names itself."""
    with pytest.raises(InferenceError, match="digits"):
        client.model("digits").predict(image=b"not an image")


def test_texts_of_any_length(client: Client) -> None:
    """Open axes take a different size in each call."""
    network = client.model("sentences_network")
    for length in (8, 32):
        ids = np.arange(1000, 1000 + length)
        reply = network.predict(input_ids=ids, attention_mask=np.ones(length, np.int64))
        assert reply["last_hidden_state"].shape == (1, length, 384)


def test_what_the_model_does_not_take_is_not_sent(client: Client, pixels: Any) -> None:
    """Type, shape and batch limit come from the served model itself."""
    network = client.model("digits_network")
    limit = network.signature.max_batch_size
    for bad in (pixels.astype(np.float64), pixels[:, :, :7], np.zeros((limit + 1, 1, 8, 8), "f4")):
        with pytest.raises(InvalidInput, match="digits_network"):
            network.predict(pixels=bad)


def test_unknown_models_and_versions(client: Client) -> None:
    """Triton's answer for a model it does not have is ours to name."""
    with pytest.raises(ModelNotFound, match="nope"):
        client.model("nope")
    with pytest.raises(ModelNotFound, match="digits_network"):
        client.model("digits_network", 987654)
    with pytest.raises(ModelNotFound, match="nope"):
        client.statistics("nope")


def test_no_time_at_all(client: Client, pixels: Any) -> None:
    """A deadline shorter than the network takes ends the call."""
    network = client.model("digits_network")
    with pytest.raises(DeadlineExceeded):
        network.predict(pixels=pixels, timeout_s=2e-5)


def test_the_server_tells_about_itself(client: Client, digits_server: Endpoint) -> None:
    """Readiness is for everyone, the list of models for who has the key."""
    assert client.is_ready()
    assert client.is_ready("digits_network")
    assert not client.is_ready("nope")
    with Client(digits_server.grpc, admin_key=digits_server.admin_key) as owner:
        assert {"digits", "digits_network"} <= {m.name for m in owner.models() if m.ready}
    with pytest.raises(InferenceError, match="restricted"):
        client.models()
    assert client.server_metadata().name == "triton"


def test_counters_are_of_items_and_of_executions(shared: SharedServer) -> None:
    """One request of four items, to a model that nobody else calls."""
    with Client(shared.serving({"counted": ModelText()}).grpc) as client:
        client.model("counted").predict(x=np.zeros((4, 4), np.float32))
        # Triton counts a request after it has answered it.
        eventually(lambda: client.statistics("counted")[0].inference_count == 4, "four items counted")
        assert client.statistics("counted")[0].execution_count == 1


def test_threads_share_one_connection(client: Client, pixels: Any) -> None:
    """Eight threads on one client each get the answer to their own image."""
    network = client.model("digits_network")
    (output,) = network.signature.outputs
    alone = network.predict(pixels=pixels)[output]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: network.predict(pixels=pixels[n % 4])[output], range(80)))
    for number, answer in enumerate(answers):
        np.testing.assert_allclose(answer[0], alone[number % 4], rtol=1e-4, atol=1e-5)
