"""The asyncio client: what `Client` does, awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tritonkit.client import AsyncClient, AsyncModel, Cache, Client, Model
from tritonkit.errors import InferenceError, InvalidInput, ModelNotFound, UsageError
from tritonkit.testing import AsyncMemoryTransport, FakeModel


def run(program: Coroutine[Any, Any, Any]) -> Any:
    """A program of one event loop."""
    return asyncio.run(program)


def public(kind: type) -> dict[str, inspect.Signature]:
    """The public methods of a class and what they take."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(method) for name, method in methods if name[0] != "_"}


@pytest.mark.parametrize(("blocking", "awaited"), [(Client, AsyncClient), (Model, AsyncModel)])
def test_both_clients_take_the_same(blocking: type, awaited: type) -> None:
    """Every method of one is a method of the other, with the same arguments and defaults."""
    theirs = public(awaited)
    ours = public(blocking)
    read = {"signature", "joining"}  # attributes of the one, methods of the other
    assert {*ours, *read} == {*theirs, *read}
    for name, signature in ours.items():
        parameters = [(p.name, p.default, p.kind) for p in signature.parameters.values()]
        also = [(p.name, p.default, p.kind) for p in theirs[name].parameters.values()]
        assert parameters == also, name


def test_a_call(models: dict[str, FakeModel]) -> None:
    """An item, a batch, a callable model, and what the server says of itself."""

    async def program() -> None:
        async with AsyncClient(transport=AsyncMemoryTransport(models)) as client:
            digits = await client.model("digits")
            assert (await digits.predict(image=b"123"))["label"].tolist() == [[b"3"]]
            assert (await digits(image=[b"1", b""]))["label"].ravel().tolist() == [b"1", b"0"]
            assert (await digits.signature()).max_batch_size == 4
            assert await client.is_ready("digits")
            assert not await client.is_ready("nope")
            assert {status.name for status in await client.models()} == set(models)
            (counters,) = await client.statistics("digits")
            assert counters.inference_count == 3
            assert (await client.config("digits")).max_batch_size == 4
            await client.load("digits")

    run(program())


def test_errors_are_the_same(models: dict[str, FakeModel]) -> None:
    """A bad input, an unknown model, a failing model, and a closed client."""

    def fail(inputs: Any) -> Any:
        raise InferenceError("here", found="it fails")

    async def program() -> None:
        failing = models | {"fails": replace(models["digits"], function=fail)}
        client = AsyncClient(transport=AsyncMemoryTransport(failing))
        digits = await client.model("digits")
        with pytest.raises(InvalidInput, match="did you mean image"):
            await digits.predict(imag=b"")
        with pytest.raises(ModelNotFound):
            await client.model("nope")
        with pytest.raises(InferenceError, match="it fails"):
            await (await client.model("fails")).predict(image=b"1")
        await client.close()
        await client.close()
        with pytest.raises(UsageError):
            await digits.predict(image=b"1")

    run(program())


def test_many_in_order_from_any_iterable(models: dict[str, FakeModel]) -> None:
    """Plain and asynchronous iterables, with progress; an error can be handed on in its place."""

    async def endless() -> AsyncIterator[bytes]:
        length = 0
        while True:
            yield b"x" * length
            length += 1

    async def program() -> None:
        async with AsyncClient(transport=AsyncMemoryTransport(models)) as client:
            digits = await client.model("digits")
            done: list[int] = []
            many = digits.predict_many([b"1", b"22"], concurrency=2, progress=done.append)
            assert [reply["score"][0, 0] async for reply in many] == [1, 2]
            assert done == [1, 2]
            scores = []
            replies = digits.predict_many(endless(), concurrency=4)
            async for reply in replies:
                scores.append(int(reply["score"][0, 0]))
                if len(scores) == 20:
                    break
            await replies.aclose()
            assert scores == list(range(20))
            kinds = [type(r).__name__ async for r in digits.try_many([b"1", 5, b"2"])]
            assert kinds == ["Reply", "InvalidInput", "Reply"]

    run(program())


def test_a_submitted_call_is_a_task(models: dict[str, FakeModel]) -> None:
    """It runs while the caller does something else."""

    async def program() -> None:
        async with AsyncClient(transport=AsyncMemoryTransport(models)) as client:
            add = await client.model("add")
            ones = np.ones((1, 2), np.float32)
            task = add.submit(a=ones, b=ones)
            assert (await task)["sum"].tolist() == [[[2.0, 2.0]]]

    run(program())


def test_a_filled_cache_answers_alone(models: dict[str, FakeModel]) -> None:
    """After `precompute` the same items are not asked again; without a cache it is refused."""

    async def program() -> None:
        transport = AsyncMemoryTransport(models)
        async with AsyncClient(transport=transport, cache=Cache(ttl_s=60)) as client:
            assert await client.precompute("digits", [b"1", b"22"]) == 2
            reply = await (await client.model("digits")).predict(image=b"22")
            assert (reply.origin, reply.attempts, reply.endpoint) == ("l1", 0, "")
            assert reply["score"].tolist() == [[2.0]]
        async with AsyncClient(transport=AsyncMemoryTransport(models)) as client:
            with pytest.raises(UsageError, match="has no cache"):
                await client.precompute("digits", [])

    run(program())
