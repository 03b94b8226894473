# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""The public types as a user writes them: checked by mypy and pyright, never run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from tritonkit import Client, Reply
from tritonkit.client import (
    TLS,
    Adaptive,
    AsyncClient,
    AsyncModel,
    AsyncTransport,
    Breaker,
    Cache,
    CallEvent,
    Hedge,
    Limit,
    Model,
    ModelSignature,
    ModelStatistics,
    ModelStatus,
    Observer,
    OpenTelemetryTracing,
    Options,
    PrometheusMetrics,
    Retry,
    Secret,
    ServerInfo,
    SharedMemory,
    TensorSpec,
    Timing,
    Transport,
)
from tritonkit.errors import ClientError
from tritonkit.testing import AsyncMemoryTransport, FakeModel, MemoryTransport


def call(image: bytes) -> NDArray[Any]:
    """One item, then a batch with everything said."""
    with Client("127.0.0.1:8001", timeout_s=30.0) as client:
        assert_type(client, Client)
        model = client.model("digits", version=1)
        assert_type(model, Model)
        reply = model.predict(image=image, idempotent=True)
        assert_type(reply, Reply)
        assert_type(model(image=image, timeout_s=1), Reply)
        label: NDArray[Any] = reply["label"]
        batch = model.predict(
            inputs={"odd-name": np.zeros((2, 3))},
            timeout_s=0.5,
            outputs=["label"],
            priority=1,
            parameters={"level": 3, "mode": "fast"},
            request_id="a",
            classification={"score": 3},
        )
        told_id: str = batch.request_id
        assert told_id == "a", dict(batch.parameters)
        outputs: Mapping[str, NDArray[Any]] = batch.outputs
        assert_type(batch.timing, Timing)
        waited: float = batch.timing.wait_s + batch.timing.queue_s + batch.timing.joining_s
        assert waited <= batch.timing.total_s
        facts: tuple[str, str, int, int] = (batch.model, batch.endpoint, batch.attempts, len(batch))
        assert facts == (model.name, "", 1, batch.batch_size), list(batch)
        return outputs.get(batch.version + batch.origin, label)


def every_option() -> Client:
    """A client told everything there is to tell."""
    return Client(
        ["127.0.0.1:8001", "127.0.0.1:9001"],
        timeout_s=2,
        idempotent=False,
        retry=Retry(attempts=2, budget=0.05, first_s=0.01, longest_s=0.5),
        breaker=Breaker(5, least_calls=10, failure_rate=0.2, open_s=1, probes=1, probe_s=5),
        hedge=Hedge(percentile=0.99, least_calls=50),
        limit=Limit(in_flight=8, waiting=0),
        batching=Adaptive(max_batch=32, target_latency_ms=5, max_wait_ms=1, in_flight=None),
        cache=Cache(l1=100, ttl_s=1, redis="redis://127.0.0.1:6379", namespace="prod"),
        shared_memory=SharedMemory(smallest=2**20),
        observers=[PrometheusMetrics(), OpenTelemetryTracing(), Slow(0.5)],
        tls=TLS(ca="ca.pem", server_name="triton.example"),
        api_key=Secret("key"),
        bearer=Secret.from_env("TOKEN"),
        admin_key=Secret.from_file("admin"),
    )


def kept_options(quiet: bool) -> tuple[Client, AsyncClient]:
    """The same options for both clients; what is off is None or False."""
    options: Options = {"retry": None, "breaker": None, "shared_memory": quiet, "tls": quiet}
    options["observers"] = () if quiet else (Slow(1.0),)
    return Client("dns:triton:8001", **options), AsyncClient("dns:triton:8001", **options)


class Slow:
    """An observer of one's own: no base class."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.events: list[str] = []

    def started(self, model: str) -> str:
        """Remember the name."""
        return model

    def headers(self, token: str) -> tuple[tuple[str, str], ...]:
        """Tell the server who calls."""
        return (("x-caller", token),)

    def finished(self, token: str, event: CallEvent) -> None:
        """Keep the names of slow or failed calls."""
        if event.timing.total_s > self.limit_s or event.error is not None:
            self.events.append(f"{token} {event.origin} {event.endpoint}")


observer: Observer = Slow(0.5)


def look(client: Client) -> tuple[str, ...]:
    """A server's report about itself."""
    statuses: tuple[ModelStatus, ...] = client.models()
    info: ServerInfo = client.server_metadata()
    counters: tuple[ModelStatistics, ...] = client.statistics("digits")
    signature: ModelSignature = client.model("digits").signature
    image: TensorSpec = signature.inputs["image"]
    ready: bool = client.is_ready("digits", "1")
    assert ready, (info.version, counters[0].queue_s, image.dims)
    client.load("digits", timeout_s=60)
    most: int = client.config("digits").max_batch_size
    assert most >= 0
    return tuple(status.name for status in statuses if status.ready)


def numbers() -> Iterator[int]:
    """Items that never end."""
    while True:
        yield 1


def many(model: Model) -> int:
    """A lot of items, and what becomes of them."""
    for reply in model.predict_many(numbers(), concurrency=4, timeout_s=1.0, progress=print):
        assert_type(reply, Reply)
        break
    failed = 0
    for result in model.try_many([{"image": b""}, b""], outputs=["label"], idempotent=True):
        if isinstance(result, ClientError):
            failed += len(result.found)
        else:
            assert_type(result, Reply)
    replies = model.predict_many([b""], idempotent=None)
    replies.close()
    future = model.submit(image=b"", priority=1, idempotent=False)
    assert_type(future, Future[Reply])
    assert_type(future.result(timeout=1), Reply)
    return failed


def one_after_the_other(model: Model, client: Client) -> int:
    """A stream, a sequence, and a cache filled ahead."""
    with model.stream(text="two words") as replies:
        for reply in replies:
            assert_type(reply, Reply)
    with model.sequence("caller-7") as sequence:
        assert_type(sequence.predict(text="first"), Reply)
        assert_type(sequence.correlation_id, int | str)
    left_early = model.stream(inputs={"text": "two words"}, timeout_s=5)
    assert_type(next(left_early), Reply)
    left_early.close()
    return client.precompute("digits", [b"", b""], concurrency=2)


def mistakes(model: Model) -> None:
    """Errors that a checker must report: each of these comments would be unused otherwise."""
    Client("127.0.0.1:8001", retries=3)  # type: ignore[call-arg]
    Client("127.0.0.1:8001", retry=3)  # type: ignore[arg-type]
    AsyncClient(transport=MemoryTransport({}))  # type: ignore[arg-type]
    Client("127.0.0.1:8001", observers=[print])  # type: ignore[list-item]
    model.predict(b"")  # type: ignore[arg-type,call-arg]
    model.predict(timeout_s="1")  # type: ignore[arg-type]
    for result in model.try_many([b""]):
        result["label"]  # type: ignore[index]


async def call_async(image: bytes) -> Reply:
    """The same in a task."""
    async with AsyncClient("grpcs://triton.example", tls=True, batching=Adaptive()) as client:
        assert_type(client, AsyncClient)
        model = await client.model("digits")
        assert_type(model, AsyncModel)
        assert_type(await model.predict(image=image, priority=2), Reply)
        task = model.submit(image=image)
        assert_type(task, asyncio.Task[Reply])
        both = await asyncio.gather(task, model(image=image))
        assert_type(both, tuple[Reply, Reply])
        signature: ModelSignature = await model.signature()
        assert await client.is_ready(), (signature.outputs, await client.models())
        await client.load("digits")
        (counters,) = await client.statistics(model.name, model.version)
        assert counters.inference_count, (await client.server_metadata()).extensions
        return both[0]


async def pictures() -> AsyncIterator[bytes]:
    """Items that arrive."""
    yield b""


async def many_async(client: AsyncClient) -> int:
    """A lot of items in tasks, from an iterable of either kind."""
    model = await client.model("digits")
    async for reply in model.predict_many(pictures(), concurrency=4, progress=print):
        assert_type(reply, Reply)
    failed = 0
    async for result in model.try_many([b"", b""], timeout_s=1.0):
        if isinstance(result, ClientError):
            failed += 1
        else:
            assert_type(result, Reply)
    async with model.stream(text="two words") as replies:
        async for reply in replies:
            assert_type(reply, Reply)
    async with model.sequence() as sequence:
        assert_type(await sequence.predict(text="first"), Reply)
    return await client.precompute("digits", pictures()) + failed


def double(inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """A model for a test."""
    return {"y": inputs["x"] * 2}


fake = FakeModel(inputs={"x": ("FP32", [2])}, outputs={"y": ("FP32", [2])}, function=double)
transport: Transport = MemoryTransport({"double": fake})
async_transport: AsyncTransport = AsyncMemoryTransport({"double": fake})
client = Client(transport=transport, timeout_s=1.0)
async_client = AsyncClient(transport=async_transport, cache=Cache())
