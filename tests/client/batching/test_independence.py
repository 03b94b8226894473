"""Calls are joined only where an item's answer does not depend on the others of its request."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tritonkit.client import Adaptive, AsyncClient, Client
from tritonkit.client.batching.closeness import difference
from tritonkit.errors import InferenceError, InvalidInput, Overloaded
from tritonkit.testing import AsyncMemoryTransport, FakeModel, MemoryTransport

Function = Callable[[Any], Any]
WIDTH = 3
CALLERS, CALLS = 8, 64
BATCHING = Adaptive(max_wait_ms=50)


class Noting:
    """A model that notes the sizes of its requests.

    Args:
        compute: the answers to a batch.
    """

    def __init__(self, compute: Callable[[Any], Any], **declared: Any) -> None:
        self.sizes: list[int] = []
        self._lock = threading.Lock()
        self._compute = compute
        tensor = ("FP32", [WIDTH])
        self.model = FakeModel({"x": tensor}, {"y": tensor}, self._answer, **{"idempotent": True} | declared)

    def _answer(self, inputs: Any) -> Any:
        with self._lock:
            self.sizes.append(len(inputs["x"]))
        time.sleep(0.002)  # meanwhile the others gather
        return {"y": self._compute(inputs["x"]).astype(np.float32)}


def doubled(x: Any) -> Any:
    """Each item for itself."""
    return 2 * x


def items(count: int = CALLS) -> Any:
    """Different items."""
    return np.random.default_rng(0).standard_normal((count, WIDTH)).astype(np.float32)


def called(noting: Noting, batching: Adaptive = BATCHING) -> tuple[Any, Any]:
    """The answers of many concurrent calls, and what the client says of joining."""
    with (
        Client(transport=MemoryTransport({"m": noting.model}), batching=batching) as client,
        ThreadPoolExecutor(CALLERS) as pool,
    ):
        model = client.model("m")
        replies = list(pool.map(lambda x: model.predict(x=x)["y"][0], items()))
        return np.array(replies), model.joining


COUPLED: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x - x.mean(0),
    "time": lambda x: np.tanh(np.cumsum(x, 0)),
    "backwards": lambda x: np.tanh(np.cumsum(x[::-1], 0))[::-1],
    "norm": lambda x: x / np.linalg.norm(x, axis=0, keepdims=True),
    "places": lambda x: x + np.arange(len(x))[:, None],
    "rank": lambda x: np.argsort(np.argsort(x, 0), 0).astype(np.float32),
    "scale": lambda x: np.round(x / np.abs(x).max() * 7) * np.abs(x).max() / 7,
}


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_items_are_never_joined(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every answer is the item's own, and the log and the client say why nothing is joined."""
    noting = Noting(COUPLED[name])
    with caplog.at_level("WARNING", "tritonkit"):
        answers, joining = called(noting)
    np.testing.assert_array_equal(answers, [COUPLED[name](x[None])[0].astype(np.float32) for x in items()])
    # The one request with several items is the check.
    assert sorted(noting.sizes) == [1] * CALLS + [4]
    assert joining.state == "refused"
    assert "depends on the other items of its request: output y differs by" in joining.reason
    assert [record.getMessage() for record in caplog.records] == [f"model m: calls are not joined: {joining.reason}"]


@pytest.mark.parametrize(
    ("declared", "batching", "state"),
    [
        ({}, BATCHING, "independent"),
        ({"independent_items": "proven", "idempotent": False}, BATCHING, "proven"),
        ({"independent_items": "declared", "idempotent": False}, BATCHING, "declared"),
        ({"idempotent": False}, Adaptive(max_wait_ms=50, independent_items=True), "unknown"),
    ],
)
def test_independent_items_are_joined(declared: Any, batching: Adaptive, state: str) -> None:
    """After the check where nothing else says so."""
    noting = Noting(doubled, **declared)
    answers, joining = called(noting, batching)
    np.testing.assert_array_equal(answers, 2 * items())
    assert len(noting.sizes) < CALLS
    assert joining.state == state
    assert sum(noting.sizes) == CALLS + (4 if state == "independent" else 0)


def test_kernels_that_differ_by_batch_size_are_no_coupling() -> None:
    """The fifth digit is nobody's neighbor."""
    noting = Noting(lambda x: x * (1 + 1e-5 * len(x)))
    assert called(noting)[1].state == "independent"


def test_a_model_that_may_not_run_twice_is_neither_checked_nor_joined() -> None:
    """Every item runs once, and the reason names what would change that."""
    noting = Noting(doubled, idempotent=False)
    _, joining = called(noting)
    assert noting.sizes == [1] * CALLS
    assert joining.state == "unknown"
    assert "a check would run a request twice" in joining.reason
    assert "independent_items=True" in joining.reason


def test_equal_items_show_nothing() -> None:
    """A batch of one item again and again says nothing of neighbors: none is joined."""
    noting = Noting(COUPLED["mean"])
    with Client(transport=MemoryTransport({"m": noting.model}), batching=BATCHING) as client:
        for _ in range(12):
            assert client.model("m").predict(x=[1.0, 2.0, 3.0])["y"].tolist() == [[0, 0, 0]]
        assert client.model("m").joining.state == "unknown"
    assert noting.sizes == [1] * 12


def test_a_model_without_a_batch_axis_is_never_joined() -> None:
    """Its requests are whole items, of as many rows as they have."""
    noting = Noting(lambda x: x, max_batch_size=0)
    noting.model = FakeModel(
        {"x": ("FP32", [-1, WIDTH])},
        {"y": ("FP32", [-1, WIDTH])},
        noting._answer,
        max_batch_size=0,
        idempotent=True,
        independent_items="proven",
    )
    with Client(transport=MemoryTransport({"m": noting.model}), batching=BATCHING) as client:
        for rows in (1, 5, 1, 7, 1, 2):
            client.model("m").predict(x=items(rows))
        assert client.model("m").joining.state == "refused"
    assert noting.sizes == [1, 5, 1, 7, 1, 2]


@pytest.mark.parametrize(
    ("error", "state", "sizes"),
    [
        (InferenceError("m", found="one item alone"), "refused", [4]),
        (Overloaded("m", found="a full queue"), "refused", [4] * 3),
    ],
)
def test_a_check_that_fails_is_nobodys_error(error: Exception, state: str, sizes: Any) -> None:
    """Each caller has its answer; what says nothing of the model is tried three times."""

    def alone(x: Any) -> Any:
        if len(x) > 1:
            raise error
        return x

    noting = Noting(alone)
    with Client(transport=MemoryTransport({"m": noting.model}), batching=BATCHING, retry=None) as client:
        for x in items(12):
            np.testing.assert_array_equal(client.model("m").predict(x=x)["y"][0], x)
        assert client.model("m").joining.state == state
    assert [size for size in noting.sizes if size > 1] == sizes


def test_a_new_version_is_checked_again() -> None:
    """Items that the new one couples are answered alone: also those that were joined for the old one."""
    noting = Noting(doubled)
    transport = MemoryTransport({"m": noting.model})
    with Client(transport=transport, batching=BATCHING) as client, ThreadPoolExecutor(CALLERS) as pool:
        model = client.model("m")

        def call(x: Any) -> Any:
            return model.predict(x=x)["y"][0]

        np.testing.assert_array_equal(list(pool.map(call, items())), 2 * items())
        assert model.joining.state == "independent"
        other = Noting(COUPLED["mean"], version="2")
        transport._server._models["m"] = other.model
        assert not np.any(list(pool.map(call, items())))
        assert model.joining.state == "refused"


def test_tasks_are_checked_as_threads_are() -> None:
    """The same steps on an event loop."""

    async def story(noting: Noting) -> tuple[Any, str]:
        transport = AsyncMemoryTransport({"m": noting.model})
        async with AsyncClient(transport=transport, batching=BATCHING) as client:
            model = await client.model("m")
            rounds = [await asyncio.gather(*[model.predict(x=x) for x in items()]) for _ in range(2)]
            answers = [reply["y"][0] for replies in rounds for reply in replies]
            return np.array(answers), (await model.joining()).state

    answers, state = asyncio.run(story(fine := Noting(doubled)))
    np.testing.assert_array_equal(answers, np.concatenate([2 * items()] * 2))
    assert state == "independent"
    assert max(fine.sizes) > 4
    answers, state = asyncio.run(story(coupled := Noting(COUPLED["mean"])))
    assert not answers.any()
    assert (state, sorted(coupled.sizes)) == ("refused", [1] * 2 * CALLS + [4])


@pytest.mark.parametrize(
    ("alone", "together", "datatype", "message"),
    [
        ([1.0, 2.0], [1.0, 2.001], "FP32", None),
        ([1.0, 2.0], [1.0, 2.01], "FP32", "output y differs by 0.01 where its largest value is 2"),
        ([1.0, 2.0], [1.0, 2.01], "FP16", None),
        ([np.nan, 2.0], [np.nan, 2.0], "FP32", None),
        ([1.0, 2.0], [np.nan, 2.0], "FP32", "output y differs by nan where its largest value is 2"),
        ([np.inf, 2.0], [1.0, 2.0], "FP32", "output y is another one"),
        ([0.0, 0.0], [0.0, 1e-7], "FP32", None),
        ([1, 2], [1, 3], "INT64", "output y is another one"),
        ([b"a", b"b"], [b"a", b"b"], "BYTES", None),
        ([b"a", b"b"], [b"a", b"c"], "BYTES", "output y is another one"),
    ],
)
def test_how_answers_are_compared(alone: Any, together: Any, datatype: str, message: Any) -> None:
    """Floating-point numbers within a tolerance of the largest one, everything else exactly."""
    kind = object if datatype == "BYTES" else None
    one, other = ({"y": np.array(values, kind)[None]} for values in (alone, together))
    mismatch = difference(one, other, {"y": datatype})
    assert (None if mismatch is None else str(mismatch)) == message


def test_a_long_series_is_not_cut_into_parts() -> None:
    """More rows than max_batch_size, where axis 0 is time: an error that says so, never a wrong answer."""
    noting = Noting(COUPLED["time"])
    with Client(transport=MemoryTransport({"m": noting.model})) as client:
        model = client.model("m")
        with pytest.raises(InvalidInput, match="20 rows, which depend on each other"):
            list(model.predict_many([items(20)]))
        (whole,) = model.predict_many([items(8)])
        np.testing.assert_allclose(whole["y"], COUPLED["time"](items(8)), rtol=1e-6)
    assert sorted(noting.sizes) == [1] * 4 + [4, 8]


@pytest.mark.parametrize("idempotent", [True, False])
def test_independent_rows_go_in_parts(idempotent: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Checked once where they may run twice; else there is a warning."""
    noting = Noting(doubled, idempotent=idempotent)
    with caplog.at_level("WARNING", "tritonkit"), Client(transport=MemoryTransport({"m": noting.model})) as client:
        for reply in client.model("m").predict_many([items(20)] * 2, concurrency=1):
            np.testing.assert_array_equal(reply["y"], 2 * items(20))
    checks = [1] * 4 + [4] if idempotent else []
    assert sorted(noting.sizes) == sorted([8, 8, 4] * 2 + checks)
    assert len(caplog.records) == (0 if idempotent else 1)
