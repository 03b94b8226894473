"""Many items with the blocking client: order, back-pressure, errors, parts, futures, the cache."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np
import pytest

from tritonkit.client import Adaptive, Cache, Client
from tritonkit.errors import InferenceError, InvalidInput, UsageError
from tritonkit.testing import FakeModel, MemoryTransport


@pytest.fixture
def client(models: dict[str, FakeModel]) -> Iterator[Client]:
    """A client of models in memory."""
    with Client(transport=MemoryTransport(models)) as client:
        yield client


def test_replies_come_in_the_items_order(client: Client) -> None:
    """Also when a later item is answered first."""
    images = [b"x" * (7 - n) for n in range(7)]
    replies = list(client.model("digits").predict_many(images, concurrency=4))
    assert [int(reply["score"][0, 0]) for reply in replies] == [len(image) for image in images]


def test_an_endless_iterable_is_read_a_little_ahead(client: Client) -> None:
    """No more than `concurrency` items are taken before a reply is read."""
    taken = count()
    replies = client.model("digits").predict_many((b"x" * next(taken) for _ in count()), concurrency=3)
    assert [int(reply["score"][0, 0]) for reply in islice(replies, 5)] == [0, 1, 2, 3, 4]
    replies.close()
    assert next(taken) <= 5 + 3


def test_progress_is_told(client: Client) -> None:
    """Once for each reply that is handed on."""
    done: list[int] = []
    items: list[Any] = [{"image": b"1"}, {"image": b"2"}, b"3"]
    assert len(list(client.model("digits").predict_many(items, progress=done.append))) == 3
    assert done == [1, 2, 3]


def test_a_large_batch_travels_in_parts(client: Client) -> None:
    """An item of ten where the model takes four is three requests and one reply."""
    (reply,) = client.model("digits").predict_many([[b"x" * n for n in range(10)]])
    assert reply["score"].ravel().tolist() == list(range(10))
    assert (reply.batch_size, reply.attempts) == (4, 3)
    with pytest.raises(InvalidInput, match="at most 4"):
        client.model("digits").predict(image=[b"x"] * 10)


def test_an_error_ends_it_or_stands_in_its_place(client: Client) -> None:
    """`predict_many` raises, `try_many` goes on."""
    model = client.model("digits")
    with pytest.raises(InvalidInput):
        list(model.predict_many([b"1", 2, b"3"]))
    kinds = [type(result).__name__ for result in model.try_many([b"1", 2, b"3"])]
    assert kinds == ["Reply", "InvalidInput", "Reply"]


def test_a_value_alone_needs_a_model_of_one_input(client: Client) -> None:
    """With two inputs an item must say which value is whose."""
    with pytest.raises(InvalidInput, match="values for a, b"):
        list(client.model("add").predict_many([np.ones((1, 2), np.float32)]))


@pytest.mark.parametrize("concurrency", [0, -1, 2000])
def test_a_senseless_concurrency_is_refused_at_once(client: Client, concurrency: int) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError, match="concurrency"):
        client.model("digits").predict_many([], concurrency=concurrency)


def test_submitted_calls_run_beside_the_caller(models: dict[str, FakeModel]) -> None:
    """Two calls that wait for each other both end, and an error is the future's."""
    meeting = threading.Barrier(2, timeout=20)

    def meet(inputs: Any) -> Any:
        meeting.wait()
        return {"twice": inputs["odd-name"]}

    served = {"plain": replace(models["plain"], function=meet), "digits": models["digits"]}
    with Client(transport=MemoryTransport(served)) as client:
        plain = client.model("plain")
        futures = [plain.submit(inputs={"odd-name": [n]}) for n in range(2)]
        assert [future.result(20)["twice"].tolist() for future in futures] == [[0], [1]]
        with pytest.raises(InvalidInput):
            client.model("digits").submit(image=5).result(20)


def test_items_under_way_together_share_a_request(models: dict[str, FakeModel]) -> None:
    """Sixteen callers of a slow model that takes four at a time send fewer requests than items."""
    sizes: list[int] = []

    def note(inputs: Any) -> Any:
        sizes.append(len(inputs["image"]))
        time.sleep(0.005)
        return models["digits"].function(inputs)

    served = {"digits": replace(models["digits"], function=note, independent_items="declared")}
    with Client(transport=MemoryTransport(served), batching=Adaptive()) as client:
        images = [b"x" * n for n in range(64)]
        replies = list(client.model("digits").predict_many(images, concurrency=16))
    assert [int(reply["score"][0, 0]) for reply in replies] == list(range(64))
    assert sum(sizes) == 64
    assert len(sizes) < 64
    assert max(reply.batch_size for reply in replies) > 1


def test_one_bad_item_does_not_spoil_its_batch(models: dict[str, FakeModel]) -> None:
    """The model refuses a batch for one item's sake: that item's caller alone hears of it."""

    sizes: list[int] = []

    def picky(inputs: Any) -> Any:
        sizes.append(len(inputs["image"]))
        time.sleep(0.005)  # so that others come meanwhile
        if any(image == b"bad" for image in inputs["image"].ravel()):
            raise InferenceError("model digits", found="it cannot read an image")
        return models["digits"].function(inputs)

    # Only requests that may run twice are sent again.
    served = {"digits": replace(models["digits"], function=picky, independent_items="declared", idempotent=True)}
    with Client(transport=MemoryTransport(served), batching=Adaptive()) as client:
        images = [b"bad" if n % 7 == 3 else b"x" * n for n in range(40)]
        replies = list(client.model("digits").try_many(images, concurrency=16))
    for image, reply in zip(images, replies, strict=True):
        assert isinstance(reply, InferenceError) == (image == b"bad")
    assert max(sizes) > 1


def test_the_cache_answers_equal_calls(models: dict[str, FakeModel]) -> None:
    """The second call of the same item is kept; another item, output or model is not the same."""
    with Client(transport=MemoryTransport(models), cache=Cache(ttl_s=60)) as client:
        digits = client.model("digits")
        assert [digits(image=b"1").origin for _ in range(2)] == ["server", "l1"]
        assert digits(image=b"2").origin == "server"
        assert digits(image=b"1", outputs=["score"]).origin == "server"
        assert client.precompute("digits", [b"1", b"3"]) == 2
        assert digits(image=b"3").origin == "l1"
