"""The asyncio client, for tasks of one event loop: names and meanings are those of `Client`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tritonkit.client.build import make_core
from tritonkit.client.many import many_async
from tritonkit.client.request import ModelKey, model_key
from tritonkit.client.shell import ModelShell
from tritonkit.client.status import ModelStatistics, ModelStatus, ServerInfo
from tritonkit.client.steps import run_async
from tritonkit.client.wire.signature import ModelSignature

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
    from typing import Unpack

    from tritonkit.client.batching import Joining
    from tritonkit.client.options import ManyOptions, Options
    from tritonkit.client.reply import Reply
    from tritonkit.client.streams import AsyncSequence, AsyncStream
    from tritonkit.client.wire.parameters import Parameter
    from tritonkit.client.wire.transport import AsyncTransport
    from tritonkit.errors import ClientError

__all__ = ["AsyncClient", "AsyncModel"]


class AsyncClient:
    """`Client` for asyncio: tasks of one event loop may share it.

    Args:
        address: the same as for `Client`.
        transport: the transport to use instead of an address: an `AsyncMemoryTransport` in tests.
        **options: see `Options`.

    Raises:
        UsageError: an address or setting is invalid, or not exactly one of address and transport is given.
    """

    def __init__(
        self,
        address: str | Sequence[str] | None = None,
        *,
        transport: AsyncTransport | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._core = make_core("AsyncClient", address, transport, options)
        self._models: dict[ModelKey, AsyncModel] = {}

    @property
    def address(self) -> str:
        """The server's address; several are joined by commas."""
        return self._core.address

    async def model(self, name: str, version: str | int | None = None) -> AsyncModel:
        """A model to call; see `Client.model`."""
        key = model_key(name, version)
        model = self._models.get(key)
        if model is None:
            await run_async(self._core.signature(key))
            model = self._models.setdefault(key, AsyncModel(self._core, key))
        return model

    async def is_ready(self, name: str = "", version: str | int | None = None) -> bool:
        """Whether a server (or one model on it) takes requests; False also if no server answers."""
        return await run_async(self._core.is_ready(name, version))

    async def models(self) -> tuple[ModelStatus, ...]:
        """Every model version in the server's repository, ready or not and why."""
        return await run_async(self._core.models())

    async def load(self, name: str, *, config: Any = None, timeout_s: float | None = None) -> None:
        """Load a model; see `Client.load`."""
        await run_async(self._core.load(name, config, timeout_s))

    async def server_metadata(self) -> ServerInfo:
        """The server's name, version and extensions."""
        return await run_async(self._core.server_metadata())

    async def config(self, name: str, version: str | int | None = None) -> Any:
        """The configuration a model is served with, as Triton's own `ModelConfig` message."""
        return await run_async(self._core.config(name, version))

    async def statistics(self, name: str, version: str | int | None = None) -> tuple[ModelStatistics, ...]:
        """Counters of a model since it was loaded, one value per loaded version; sums over servers."""
        return await run_async(self._core.statistics(name, version))

    async def precompute(self, name: str, items: Iterable[Any] | AsyncIterable[Any], *, concurrency: int = 8) -> int:
        """Fill the cache with the answers to `items` ahead of time; see `Client.precompute`."""
        self._core.check_cache()
        done = 0
        async for _ in (await self.model(name)).predict_many(items, concurrency=concurrency):
            done += 1
        return done

    async def close(self) -> None:
        """Close connections; closing twice is harmless, and a later call raises `UsageError`."""
        await self._core.aclose()

    async def __aenter__(self) -> AsyncClient:
        """The client itself, closed when the block ends."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()


class AsyncModel(ModelShell):
    """One model on the servers; made by `AsyncClient.model`."""

    __slots__ = ()

    async def signature(self) -> ModelSignature:
        """Its inputs, outputs and batch limit, as last read from the server."""
        return await run_async(self._core.signature(self._key))

    async def joining(self) -> Joining:
        """Whether a client with `batching=` joins its calls: `state` and `reason`."""
        return await run_async(self._core.joining(self._key))

    async def predict(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | Mapping[str, int] | None = None,
        **named: Any,
    ) -> Reply:
        """Send one item or one batch and wait for the answer; see `Model.predict`.

        Cancelling the task ends the work at the server as well.
        """
        request = self._request(
            inputs, named, outputs, timeout_s, priority, idempotent, parameters, request_id, classification
        )
        return await run_async(self._core.predict(request))

    __call__ = predict

    def submit(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | Mapping[str, int] | None = None,
        **named: Any,
    ) -> asyncio.Task[Reply]:
        """Start `predict` as a task; keep a reference to it."""
        request = self._request(
            inputs, named, outputs, timeout_s, priority, idempotent, parameters, request_id, classification
        )
        return asyncio.ensure_future(run_async(self._core.predict(request)))

    def predict_many(
        self, items: Iterable[Any] | AsyncIterable[Any], **options: Unpack[ManyOptions]
    ) -> AsyncGenerator[Reply, None]:
        """Call for each of `items`, several at a time, in order; see `Model.predict_many`."""
        return many_async(items, *self._many(False, **options))

    def try_many(
        self, items: Iterable[Any] | AsyncIterable[Any], **options: Unpack[ManyOptions]
    ) -> AsyncGenerator[Reply | ClientError, None]:
        """`predict_many` that hands on an item's error in its place, and goes on with the next."""
        return many_async(items, *self._many(True, **options))

    def stream(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | Mapping[str, int] | None = None,
        **named: Any,
    ) -> AsyncStream:
        """Call a decoupled model: an asynchronous iterator of its replies; see `Model.stream`."""
        from tritonkit.client.streams import AsyncStream

        request = self._request(
            inputs,
            named,
            outputs,
            timeout_s,
            parameters=parameters,
            request_id=request_id,
            classification=classification,
        )
        return AsyncStream(self._core, request)

    def sequence(self, correlation_id: int | str | None = None) -> AsyncSequence:
        """A sequence of calls that share state in the server; see `Model.sequence`."""
        from tritonkit.client.streams import AsyncSequence

        return AsyncSequence(self._core, self._key, correlation_id)
