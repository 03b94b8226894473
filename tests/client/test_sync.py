"""The blocking client, in memory and over gRPC: each test runs on both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tritonkit.client import Client
from tritonkit.errors import DeadlineExceeded, InferenceError, InvalidInput, ModelNotFound, UsageError
from tritonkit.testing import FakeModel, MemoryTransport

Connect = Callable[..., Any]


def test_one_item(client: Client) -> None:
    """A single image gives outputs with a batch axis of length 1."""
    reply = client.model("digits").predict(image=b"12345")
    assert reply["label"].tolist() == [[b"5"]]
    assert reply["score"].tolist() == [[5.0]]
    assert (reply.model, reply.version, reply.origin) == ("digits", "1", "server")
    assert list(reply) == ["label", "score"]
    assert len(reply) == 2


def test_a_batch(client: Client) -> None:
    """A list of images is answered item by item, in order."""
    reply = client.model("digits").predict(image=[b"1", b"", b"333"])
    assert reply["label"].ravel().tolist() == [b"1", b"0", b"3"]


def test_a_setting_that_is_misspelled_is_refused() -> None:
    """It would do nothing; the nearest are named."""
    with pytest.raises(UsageError, match="timeout_s"):
        Client("127.0.0.1:1", timeout=3.0)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="idempotent"):
        Client("127.0.0.1:1", idempotnet=True)  # type: ignore[call-arg]


def test_items_of_open_size(client: Client) -> None:
    """Two inputs agree on batch and length, each call with its own length."""
    add = client.model("add")
    for length in (1, 5):
        a = np.ones((3, length, 2), np.float32)
        np.testing.assert_array_equal(add.predict(a=a, b=a)["sum"], a * 2)
    assert add.predict(a=[[1, 2]], b=[[0.5, 0.25]])["sum"].tolist() == [[[1.5, 2.25]]]


def test_names_that_are_no_identifiers(client: Client) -> None:
    """`inputs` takes any name; a model without batching gets the array as it is."""
    reply = client.model("plain").predict(inputs={"odd-name": [1, 2]}, outputs=["twice"])
    assert reply["twice"].tolist() == [2, 4]
    assert reply.version == "3"


def test_only_the_outputs_asked_for(client: Client) -> None:
    """`outputs` leaves out the rest, and asking the reply for one of those names what there is."""
    reply = client.model("digits").predict(image=b"1", outputs=["score"])
    assert list(reply.outputs) == ["score"]
    with pytest.raises(KeyError, match="no output 'label'; it gave score"):
        reply["label"]


def test_an_input_given_twice_is_refused(client: Client) -> None:
    """The same name in both places is a mistake, not a choice."""
    with pytest.raises(InvalidInput, match="given twice"):
        client.model("digits").predict(inputs={"image": b"1"}, image=b"2")


def test_bad_input_is_not_sent(client: Client) -> None:
    """The model never sees a request that does not fit it."""
    with pytest.raises(InvalidInput, match="a batch of 5"):
        client.model("digits").predict(image=[b"1"] * 5)
    assert client.statistics("digits")[0].execution_count == 0


@pytest.mark.parametrize(("name", "version"), [("digit", None), ("digits", 9), ("digits", "9")])
def test_unknown_models(client: Client, name: str, version: Any) -> None:
    """A model or version that is not served is reported when it is requested."""
    with pytest.raises(ModelNotFound, match=name):
        client.model(name, version)


@pytest.mark.parametrize(("name", "version"), [("", None), ("digits", "latest"), ("digits", -1)])
def test_names_and_versions_that_cannot_be(client: Client, name: str, version: Any) -> None:
    """An empty name or a version that is not a number is the caller's mistake."""
    with pytest.raises(UsageError):
        client.model(name, version)


def test_a_version_can_be_asked_for(client: Client) -> None:
    """The version is part of the request, as a number or as text."""
    assert client.model("plain", 3).predict(inputs={"odd-name": [1]}).version == "3"
    assert client.model("plain", "3").version == "3"


def test_a_failing_model_is_an_inference_error(connect: Connect, models: Any) -> None:
    """An exception in the model's code reaches the caller as one kind of error, with its text."""

    def fail(inputs: Any) -> Any:
        raise ArithmeticError("as asked")

    with (
        connect(models | {"digits": replace(models["digits"], function=fail)}) as client,
        pytest.raises(InferenceError, match="ArithmeticError: as asked"),
    ):
        client.model("digits").predict(image=b"1")


def test_a_slow_model_ends_at_the_deadline(connect: Connect, models: Any) -> None:
    """`timeout_s` of the call wins over the client's, and the error says how long it waited."""

    over = threading.Event()

    def slow(inputs: Any) -> Any:
        over.wait(2)
        return {"label": [["x"]], "score": [[1.0]]}

    with connect(models | {"digits": replace(models["digits"], function=slow)}) as client:
        digits = client.model("digits")
        with pytest.raises(DeadlineExceeded, match="within 0"):
            digits.predict(image=b"1", timeout_s=0.1)
        over.set()
        assert digits.predict(image=b"1", timeout_s=5)["label"].tolist() == [[b"x"]]


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 1e12])
def test_a_timeout_is_a_positive_number_of_seconds(client: Client, timeout_s: float) -> None:
    """Zero, negative, endless and absurd times are refused, for the client and for a call."""
    with pytest.raises(UsageError, match="timeout_s"):
        client.model("digits").predict(image=b"1", timeout_s=timeout_s)
    with pytest.raises(UsageError, match="timeout_s"):
        Client("127.0.0.1:8001", timeout_s=timeout_s)


def test_time_spent_before_sending_counts(client: Client) -> None:
    """A deadline that passed while the request was written sends nothing."""
    with pytest.raises(DeadlineExceeded):
        client.model("digits").predict(image=b"1", timeout_s=1e-9)
    assert client.statistics("digits")[0].execution_count == 0


def test_the_server_says_what_it_serves(client: Client) -> None:
    """Readiness, models and metadata come back as plain values."""
    assert client.is_ready()
    assert client.is_ready("digits")
    assert client.is_ready("digits", 1)
    assert not client.is_ready("digits", 9)
    assert not client.is_ready("nope")
    statuses = {status.name: status for status in client.models()}
    assert set(statuses) == {"add", "digits", "plain"}
    assert statuses["plain"].ready
    assert statuses["plain"].version == "3"
    assert client.server_metadata().name == "memory"
    assert client.config("digits").max_batch_size == 4


def test_statistics_count_items_and_runs(client: Client) -> None:
    """A batch of three is one run of three items."""
    client.model("digits").predict(image=[b"1", b"2", b"3"])
    (counters,) = client.statistics("digits")
    assert (counters.inference_count, counters.execution_count) == (3, 1)


def test_timing_adds_up(client: Client) -> None:
    """The time in the transport is part of the whole."""
    timing = client.model("digits").predict(image=b"1").timing
    assert 0 < timing.wait_s <= timing.total_s < 10


def test_threads_share_a_client(client: Client) -> None:
    """Many threads on one client each get the answer to their own question."""
    digits = client.model("digits")
    with ThreadPoolExecutor(16) as pool:
        replies = pool.map(lambda size: digits.predict(image=b"x" * size)["label"].item(), range(200))
        assert list(replies) == [str(size).encode() for size in range(200)]


def test_a_closed_client_says_so(client: Client) -> None:
    """Closing twice is closing once; a call afterwards is a clear mistake."""
    digits = client.model("digits")
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        digits.predict(image=b"1")


def test_metadata_is_asked_for_once(models: dict[str, FakeModel]) -> None:
    """After the first call of a model only requests travel."""
    transport = _Counting(models)
    with Client(transport=transport) as client:
        for _ in range(3):
            client.model("digits").predict(image=b"1")
    assert transport.calls == ["ModelMetadata", "ModelConfig"] + ["ModelInfer"] * 3


def test_a_replaced_model_is_noticed(models: dict[str, FakeModel], monkeypatch: pytest.MonkeyPatch) -> None:
    """After a refusal the signature is read again, so that a new model can be called."""
    monkeypatch.setattr("tritonkit.client.core._TRUSTED_S", 0.0)
    transport = MemoryTransport(models)
    with Client(transport=transport) as client:
        digits = client.model("digits")
        transport._server._models["digits"] = models["add"]
        with pytest.raises(InvalidInput):
            digits.predict(a=[[1, 2]], b=[[3, 4]])
        assert digits.predict(a=[[1, 2]], b=[[3, 4]])["sum"].tolist() == [[[4, 6]]]


def test_many_refusals_do_not_ask_again_and_again(models: dict[str, FakeModel]) -> None:
    """A fresh signature is trusted: refused calls add no traffic."""
    transport = _Counting(models)
    with Client(transport=transport) as client:
        for _ in range(5):
            with pytest.raises(InvalidInput):
                client.model("digits").predict(img=b"1")
    assert transport.calls == ["ModelMetadata", "ModelConfig"]


class _Counting(MemoryTransport):
    """Remembers what was called."""

    def __init__(self, models: dict[str, FakeModel]) -> None:
        super().__init__(models)
        self.calls: list[str] = []

    def send(self, method: Any, body: Any, timeout_s: float, headers: Any = ()) -> Any:
        self.calls.append(method)
        return super().send(method, body, timeout_s, headers)


@pytest.mark.parametrize("arguments", [{}, {"address": "a:1", "transport": MemoryTransport({})}])
def test_a_client_needs_one_place_to_call(arguments: dict[str, Any]) -> None:
    """Neither an address nor a transport, or both, is a mistake."""
    with pytest.raises(UsageError):
        Client(**arguments)
