"""Callers of a served model, in one process: `python -m bench.gpu.callers ADDRESS MODEL --callers N`, JSON out.

They stand in for NVIDIA's perf_analyzer where that cannot run. Several such processes together send what a GPU takes;
each caller is a task of one event loop, with tritonkit's own client, and its key for shared memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.gpu.requests import items
from tritonkit.client import AsyncClient
from tritonkit.client.shm import SharedMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["KEY", "called"]

KEY = "TRITONKIT_BENCH_KEY"
"""The variable with the server's key, which opens shared memory."""
_DIFFERENT = 64
_WARM_S = 0.3


async def called(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each call that was sent and answered in the counted time."""
    shared = options.shared_memory and SharedMemory(smallest=1)
    rows = items(options.model.partition("_")[0], _DIFFERENT, options.pixels, options.most, options.seed)
    numbers = count()
    async with AsyncClient(options.address, shared_memory=shared, admin_key=os.environ.get(KEY) or None) as client:
        model = await client.model(options.model)
        for row in rows[:3]:
            await model.predict(inputs=row)

        async def call() -> None:
            await model.predict(inputs=rows[next(numbers) % _DIFFERENT])

        return await (_paced if options.per_s else _closed)(call, options)


async def _closed(call: Callable[[], Awaitable[None]], options: argparse.Namespace) -> dict[str, Any]:
    """Each caller sends its next request when the last is answered."""
    begin = time.perf_counter() + _WARM_S
    end = begin + options.seconds
    taken: list[float] = []

    async def caller() -> None:
        while (sent := time.perf_counter()) < end:
            await call()
            answered = time.perf_counter()
            if begin <= answered < end:
                taken.append(answered - sent)

    await asyncio.gather(*(caller() for _ in range(options.callers)))
    return {"seconds": taken, "per_s": len(taken) / options.seconds}


async def _paced(call: Callable[[], Awaitable[None]], options: argparse.Namespace) -> dict[str, Any]:
    """Requests at random moments of a rate, whatever the server does; times count from the moment that was drawn."""
    draw = random.Random(options.seed)  # noqa: S311 - moments, not secrets
    begin = time.perf_counter() + _WARM_S
    taken: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one(due: float) -> None:
        await call()
        taken.append(time.perf_counter() - due)

    due = begin
    while (due := due + draw.expovariate(options.per_s)) < begin + options.seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.add(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    return {"seconds": taken, "per_s": len(taken) / (time.perf_counter() - begin)}


def main() -> None:
    """Call, and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.callers", description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("model")
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--per-s", type=float, default=0.0, help="requests a second at random moments; 0: closed loop")
    parser.add_argument("--seconds", type=float, default=2.0, help="counted")
    parser.add_argument("--shared-memory", action="store_true", help="tensors lie in /dev/shm")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--most", type=int, default=130, help="tokens of the longest text")
    parser.add_argument("--seed", type=int, default=1)
    print(json.dumps(asyncio.run(called(parser.parse_args()))))


if __name__ == "__main__":
    main()
