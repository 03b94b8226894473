"""Machines of replicas that lose their power during calls, silently; long calls must not be taken for that."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from tests.server.models import ModelText, write_repository
from tests.server.networks import Network, network, served_in
from tests.waiting import eventually
from tritonkit.client import AsyncClient, Client
from tritonkit.errors import ClientError, DeadlineExceeded

pytestmark = [pytest.mark.needs("namespaces"), pytest.mark.timeout(300)]

CALLERS = 8
DEADLINE_S = 10.0
"""A call's time: one that waited for a machine that is gone would end with an error."""


def item(seconds: float) -> Any:
    """An input that makes the model take this time."""
    return np.array([seconds, 1, 2, 3], np.float32)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Network]]:
    """Two machines by the addresses of their servers."""
    root = tmp_path_factory.mktemp("cut")
    repository = write_repository(root / "model_repository", {"echo": ModelText()})
    with ExitStack() as stack:
        nets = [stack.enter_context(network(number)) for number in (1, 2)]
        servers = [served_in(net, root / net.name, repository, "echo") for net in nets]
        with ThreadPoolExecutor(2) as pool:
            addresses = list(pool.map(stack.enter_context, servers))
        yield dict(zip(addresses, nets, strict=True))


class Calls:
    """The outcomes of calls, of all threads or tasks."""

    def __init__(self) -> None:
        self.by: Counter[str] = Counter()
        self.errors: list[ClientError] = []
        self.again = 0
        self.slowest_s = 0.0
        self.over = threading.Event()
        self._lock = threading.Lock()

    def note(self, began: float, reply: Any) -> None:
        """One that was answered, or its error."""
        with self._lock:
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            if isinstance(reply, ClientError):
                self.errors.append(reply)
            else:
                self.by[reply.endpoint] += 1
                self.again += reply.attempts > 1


def in_threads(addresses: list[str], calls: Calls, **settings: Any) -> None:
    """Calls until they are over."""
    with Client(addresses, timeout_s=DEADLINE_S, **settings) as client:
        model = client.model("echo")

        def caller(_: int) -> None:
            while not calls.over.is_set():
                began = time.monotonic()
                try:
                    reply: Any = model.predict(x=item(0.002))
                except ClientError as error:
                    reply = error
                calls.note(began, reply)

        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(caller, range(CALLERS)))


def in_tasks(addresses: list[str], calls: Calls, **settings: Any) -> None:
    """The same, in an event loop."""

    async def story() -> None:
        async with AsyncClient(addresses, timeout_s=DEADLINE_S, **settings) as client:
            model = await client.model("echo")

            async def caller() -> None:
                while not calls.over.is_set():
                    began = time.monotonic()
                    try:
                        reply: Any = await model.predict(x=item(0.002))
                    except ClientError as error:
                        reply = error
                    calls.note(began, reply)

            await asyncio.gather(*(caller() for _ in range(CALLERS)))

    asyncio.run(story())


@pytest.mark.parametrize("kind", [in_threads, in_tasks])
def test_no_call_fails_when_a_machine_loses_its_power(
    machines: dict[str, Network], kind: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its calls are made again elsewhere, others do not go there, and it is used again once it is back."""
    (gone, net), (left, _) = machines.items()
    calls = Calls()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(kind, list(machines), calls, idempotent=True)
        try:
            eventually(lambda: min(calls.by[gone], calls.by[left]) > 50, "answers of both")
            net.cut()
            before = calls.by[left]
            try:
                eventually(lambda: calls.again > 0, "a call that is made again")
                eventually(lambda: calls.by[left] > before + 500, "answers of the other")
            finally:
                net.mend()
            answers = calls.by[gone]
            eventually(lambda: calls.by[gone] > answers + 20, "answers of both again")
        finally:
            calls.over.set()
        done.result(60)
    assert calls.errors == []
    again = f"{calls.again} after another attempt"
    with capsys.disabled():
        print(f"\n{calls.by.total()} answers, {again}, slowest {calls.slowest_s:.2f} s")  # noqa: T201


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_long_calls_are_left_in_peace(machines: dict[str, Network], kind: str) -> None:
    """The servers say nothing meanwhile but that they are there."""
    addresses = list(machines)
    if kind == "threads":
        with Client(addresses, idempotent=True) as client, ThreadPoolExecutor(2) as pool:
            model = client.model("echo")
            replies = list(pool.map(lambda _: model.predict(x=item(2.5)), range(2)))
    else:

        async def story() -> Any:
            async with AsyncClient(addresses, idempotent=True) as client:
                model = await client.model("echo")
                return await asyncio.gather(*(model.predict(x=item(2.5)) for _ in range(2)))

        replies = asyncio.run(story())
    assert [reply.attempts for reply in replies] == [1, 1]


def ended(machines: dict[str, Network], client: Client, seconds: float, cut_after_s: float) -> tuple[Any, str]:
    """The outcome of a long call whose machine is cut off meanwhile, and that machine's address."""
    model = client.model("echo")
    replicas = client._core.policy.pool.replicas
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(model.predict, x=item(seconds))
        at = eventually(lambda: [replica.address for replica in replicas if replica.in_flight])[0]
        time.sleep(cut_after_s)
        machines[at].cut()
        try:
            return call.exception(60) or call.result(), at
        finally:
            machines[at].mend()


def test_a_long_call_is_made_again_when_its_machine_loses_its_power(
    machines: dict[str, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no PING may be sent any more: the system itself asks for the machine."""
    monkeypatch.setattr("tritonkit.client.wire.http2.connect._IDLE_S", 1)
    with Client(list(machines), timeout_s=20.0, idempotent=True) as client:
        reply, gone = ended(machines, client, 4.0, 1.8)
    assert reply.attempts == 2
    assert reply.endpoint != gone


def test_a_call_that_may_not_run_twice_is_not_made_again(machines: dict[str, Network]) -> None:
    """Its caller is told that there is no answer."""
    with Client(list(machines), timeout_s=6.0) as client:
        error, _ = ended(machines, client, 3.0, 0.1)
    assert isinstance(error, DeadlineExceeded)
