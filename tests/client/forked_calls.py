"""A program that forks while its threads call: what the client does in the fork, as lines of JSON.

`python forked_calls.py ADDRESS SETTING`; run by `test_fork.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tritonkit.client import Adaptive, AsyncClient, Cache, Client, Hedge, Limit

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cache": {"cache": Cache()},
    "batching": {"batching": Adaptive()},
    "limit": {"limit": Limit(in_flight=4)},
    "shared_memory": {"shared_memory": True},
    "all": {"cache": Cache(), "batching": Adaptive(), "limit": Limit(), "hedge": Hedge()},
}
X = [0.1, 2.0, 3.0]
"""The inputs of every thread, so that the fork finds a call with the same inputs under way."""


def connections() -> set[str]:
    """The sockets of this process."""
    links = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one of this directory
            links.add(str(descriptor.readlink()))
    return {link for link in links if link.startswith("socket:")}


def say(what: Any) -> None:
    """One line for the test."""
    sys.stdout.write(json.dumps(what) + "\n")


def told(name: str, call: Callable[[], Any]) -> dict[str, Any]:
    """The end of one call in the fork, and its duration."""
    started = time.monotonic()
    try:
        call()
        error, text = "", ""
    except Exception as raised:
        error, text = type(raised).__name__, str(raised)
    return {"name": name, "error": error, "text": text, "seconds": time.monotonic() - started}


def in_the_fork(client: Client, model: Any, open_: dict[str, Any]) -> list[dict[str, Any]]:
    """Every way to call, then the end of everything that was open."""
    counter = client.model("count")
    calls: dict[str, Callable[[], Any]] = {
        "predict": lambda: model.predict(x=X),
        "predict otherwise": lambda: model.predict(x=[0.0, 1.0, 1.0]),
        "submit": lambda: model.submit(x=X).result(),
        "predict_many": lambda: list(model.predict_many([X, X])),
        "try_many": lambda: list(model.try_many([X, X])),
        "begun predict_many": lambda: list(open_["many"]),
        "precompute": lambda: client.precompute("double", [X]) if open_["cache"] else model(x=X),
        "stream": lambda: next(counter.stream(x=[2.0, 0.0, -1.0])),
        "open stream": lambda: next(open_["stream"]),
        "sequence": lambda: model.sequence().__enter__(),
        "open sequence": lambda: open_["sequence"].predict(x=X),
        "new model": lambda: client.model("other"),
        "signature": lambda: model.signature,
        "is_ready": client.is_ready,
        "models": client.models,
        "server_metadata": client.server_metadata,
        "config": lambda: client.config("double"),
        "statistics": lambda: client.statistics("double"),
        "load": lambda: client.load("double"),
    }
    outcomes = [told(name, call) for name, call in calls.items()]
    ends = {
        "close many": open_["many"].close,
        "close stream": open_["stream"].close,
        "end sequence": lambda: open_["sequence"].__exit__(None, None, None),
        "close": client.close,
    }
    outcomes += [told(name, end) for name, end in ends.items()]
    open_.clear()  # also the garbage collector says nothing to the parent's server
    return outcomes


def forked(child: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The report of a child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        with os.fdopen(write, "w") as out:
            json.dump(child(), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as text:
        output = text.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(output) if status == 0 else [{"name": "child", "error": f"status {status}"}]


def blocking(address: str, settings: dict[str, Any]) -> None:
    """Threads call; their process forks, again and again."""
    over, errors, threads = threading.Event(), [], []
    with Client(address, timeout_s=3.0, **settings) as client:
        model, counter = client.model("double"), client.model("count")
        stream = counter.stream(x=[1000.0, 0.0, -1.0])
        next(stream)
        sequence = model.sequence().__enter__()

        def caller() -> None:
            while not over.is_set():
                try:
                    model.predict(x=X, timeout_s=30.0)
                except Exception as error:
                    errors.append(repr(error))

        threads = [threading.Thread(target=caller, daemon=True) for _ in range(6)]
        for thread in threads:
            thread.start()
        many = model.predict_many([X] * 100, concurrency=2)
        next(many)
        open_ = {"stream": stream, "sequence": sequence, "many": many, "cache": "cache" in settings}
        time.sleep(0.05)
        before = connections()
        for _ in range(3):
            outcomes = forked(lambda: in_the_fork(client, model, dict(open_)))
            say(outcomes)
            time.sleep(0.03)
        next(stream)
        next(many)
        over.set()
        for thread in threads:
            thread.join()
        same = connections() == before
        say({"errors": errors, "same connection": same})
        sequence.__exit__(None, None, None)
        many.close()
        stream.close()


def tasks(address: str, settings: dict[str, Any]) -> None:
    """Tasks of a loop call; the loop's process forks in a thread of its own."""

    async def story() -> None:
        async with AsyncClient(address, timeout_s=3.0, **settings) as client:
            model = await client.model("double")
            calls = [asyncio.create_task(model.predict(x=X)) for _ in range(8)]
            await asyncio.sleep(0.02)

            def child() -> list[dict[str, Any]]:
                asyncio._set_running_loop(None)  # a fork in a thread has none

                async def every() -> None:
                    return [item async for item in model.predict_many([X])]  # type: ignore[return-value]

                return [
                    told("predict", lambda: asyncio.run(_awaited(lambda: model.predict(x=X)))),
                    told("submit", lambda: asyncio.run(_awaited(lambda: model.submit(x=X)))),
                    told("predict_many", lambda: asyncio.run(every())),
                    told("is_ready", lambda: asyncio.run(client.is_ready())),
                    told("close", lambda: asyncio.run(client.close())),
                ]

            before = connections()
            say(await asyncio.to_thread(forked, child))
            ends = await asyncio.gather(*calls, return_exceptions=True)
            errors = [repr(end) for end in ends if isinstance(end, BaseException)]
            await model.predict(x=[0.0, 1.0, 2.0])
            same = connections() == before
            say({"errors": errors, "same connection": same})

    asyncio.run(story())


async def _awaited(make: Callable[[], Any]) -> Any:
    return await make()


if __name__ == "__main__":
    where, kind, name = sys.argv[1:]
    (tasks if kind == "tasks" else blocking)(where, SETTINGS[name])
