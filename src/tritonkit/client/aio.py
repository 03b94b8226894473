"""The asyncio client: `Client` with the same names and meanings, for tasks of one event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from tritonkit.client.build import async_core
from tritonkit.client.inputs import merged_inputs
from tritonkit.client.many import many_async
from tritonkit.client.request import ModelKey, Request, model_key
from tritonkit.client.status import ModelStatistics, ModelStatus, ServerInfo
from tritonkit.client.steps import run_async
from tritonkit.wire.signature import ModelSignature

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        Awaitable,
        Callable,
        Iterable,
        Mapping,
        Sequence,
    )
    from types import TracebackType
    from typing import Unpack

    from tritonkit.client.options import Options
    from tritonkit.client.reply import Reply
    from tritonkit.client.streams import AsyncSequence, AsyncStream
    from tritonkit.errors import ClientError
    from tritonkit.wire.transport import AsyncTransport

__all__ = ["AsyncClient", "AsyncModel"]

T = TypeVar("T")


class AsyncClient:
    """`Client` for asyncio: tasks of one event loop may share it.

    Args:
        address: as for `Client`.
        transport: what carries the calls, instead of an address: an `AsyncMemoryTransport` in tests.
        **options: see `Options`.

    Raises:
        UsageError: a bad address or setting, or not exactly one of address and transport.
    """

    def __init__(
        self,
        address: str | Sequence[str] | None = None,
        *,
        transport: AsyncTransport | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._core = async_core(address, transport, options)
        self._models: dict[ModelKey, AsyncModel] = {}

    @property
    def address(self) -> str:
        """Where calls go; several addresses are joined by commas."""
        return self._core.address

    async def model(self, name: str, version: str | int | None = None) -> AsyncModel:
        """A model to call; see `Client.model`."""
        key = model_key(name, version)
        model = self._models.get(key)
        if model is None:
            await run_async(self._core.signature(key))
            model = self._models.setdefault(key, AsyncModel(self, key))
        return model

    async def is_ready(self, name: str = "", version: str | int | None = None) -> bool:
        """Whether a server (or one model on it) takes requests; False too if nobody answers."""
        return await run_async(self._core.is_ready(name, version))

    async def models(self) -> tuple[ModelStatus, ...]:
        """Every model version in the server's repository, ready or not and why."""
        return await run_async(self._core.models())

    async def load(self, name: str, *, timeout_s: float | None = None) -> None:
        """Load a model; see `Client.load`."""
        await run_async(self._core.load(name, timeout_s))

    async def server_metadata(self) -> ServerInfo:
        """The server's name, version and extensions."""
        return await run_async(self._core.server_metadata())

    async def config(self, name: str, version: str | int | None = None) -> Any:
        """The configuration a model is served with, as Triton's own `ModelConfig` message."""
        return await run_async(self._core.config(name, version))

    async def statistics(
        self, name: str, version: str | int | None = None
    ) -> tuple[ModelStatistics, ...]:
        """Counters of a model since it was loaded, one value per loaded version; sums over servers."""
        return await run_async(self._core.statistics(name, version))

    async def precompute(
        self, name: str, items: Iterable[Any] | AsyncIterable[Any], *, concurrency: int = 8
    ) -> int:
        """Fill the cache with the answers to `items` ahead of time; see `Client.precompute`."""
        self._core.check_cache()
        done = 0
        async for _ in (await self.model(name)).predict_many(items, concurrency=concurrency):
            done += 1
        return done

    async def close(self) -> None:
        """Free connections; closing twice is closing once, calling afterwards a `UsageError`."""
        await self._core.aclose()

    async def __aenter__(self) -> AsyncClient:
        """The client itself, closed when the block ends."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()


class AsyncModel:
    """One model on the servers; made by `AsyncClient.model`."""

    __slots__ = ("_client", "_key")

    def __init__(self, client: AsyncClient, key: ModelKey) -> None:
        self._client = client
        self._key = key

    @property
    def name(self) -> str:
        """The name it is called by."""
        return self._key[0]

    @property
    def version(self) -> str:
        """The version asked for; empty if the server chooses."""
        return self._key[1]

    async def signature(self) -> ModelSignature:
        """Its inputs, outputs and batch limit, as last read from the server."""
        return await run_async(self._client._core.signature(self._key))

    async def predict(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        **named: Any,
    ) -> Reply:
        """Send one item or one batch and wait for the answer; see `Model.predict`.

        Cancelling the task ends the work at the server as well.
        """
        given = merged_inputs(self._key[0], inputs, named)
        request = Request(self._key, given, outputs, timeout_s, priority, idempotent)
        return await run_async(self._client._core.predict(request))

    __call__ = predict

    def submit(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        **named: Any,
    ) -> asyncio.Task[Reply]:
        """`predict` as a task that has started; keep a reference to it."""
        given = merged_inputs(self._key[0], inputs, named)
        request = Request(self._key, given, outputs, timeout_s, priority, idempotent)
        return asyncio.ensure_future(run_async(self._client._core.predict(request)))

    def predict_many(
        self,
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        concurrency: int = 8,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        idempotent: bool | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> AsyncGenerator[Reply, None]:
        """Call for each of `items`, several at a time, in order; see `Model.predict_many`."""
        call = self._caller(outputs, timeout_s, idempotent)
        return many_async(call, items, concurrency, progress)

    def try_many(
        self,
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        concurrency: int = 8,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        idempotent: bool | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> AsyncGenerator[Reply | ClientError, None]:
        """`predict_many` that hands on an item's error in its place, and goes on with the next."""
        call = self._caller(outputs, timeout_s, idempotent)
        return many_async(call, items, concurrency, progress, keep_errors=True)

    def stream(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        **named: Any,
    ) -> AsyncStream:
        """Call a decoupled model: an asynchronous iterator of its replies; see `Model.stream`."""
        from tritonkit.client.streams import AsyncStream

        given = merged_inputs(self._key[0], inputs, named)
        return AsyncStream(self._client._core, Request(self._key, given, outputs, timeout_s))

    def sequence(self, correlation_id: int | str | None = None) -> AsyncSequence:
        """A sequence of calls that share state in the server; see `Model.sequence`."""
        from tritonkit.client.streams import AsyncSequence

        return AsyncSequence(self._client._core, self._key, correlation_id)

    def _caller(
        self, outputs: Sequence[str] | None, timeout_s: float | None, idempotent: bool | None
    ) -> Callable[[Any], Awaitable[Reply]]:
        calls, key = self._client._core, self._key
        calls.check_process()
        return lambda item: run_async(calls.predict_item(key, item, outputs, timeout_s, idempotent))
