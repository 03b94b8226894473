"""One client calling one model, in a process of its own: `python -m bench.caller WAY ADDRESS`, JSON out.

`one` calls one after the other and tells the processor time a call took this process, the server's
not counted; `many` calls from 64 threads and tells how many were answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["crowd", "main"]

SINK, NETWORK = "sink", "digits_network"
WARM = 50
WARM_S = 1.0


def main() -> None:
    """Warm, measure, print."""
    options = _parser().parse_args()
    if options.callers > 1:
        figures = _many(options)
    elif options.way in ASYNC:
        figures = asyncio.run(_one_async(options))
    else:
        figures = _one(options)
    print(json.dumps(figures))


def _one(options: argparse.Namespace) -> dict[str, float]:
    call = SYNC[options.way](options.address, _bytes(options.size))
    for _ in range(WARM):
        call()
    times = np.empty(options.calls)
    cpu = time.process_time()
    for number in range(options.calls):
        started = time.perf_counter()
        call()
        times[number] = time.perf_counter() - started
    return _figures(time.process_time() - cpu, times)


async def _one_async(options: argparse.Namespace) -> dict[str, float]:
    call = await ASYNC[options.way](options.address, _bytes(options.size))
    for _ in range(WARM):
        await call()
    times = np.empty(options.calls)
    cpu = time.process_time()
    for number in range(options.calls):
        started = time.perf_counter()
        await call()
        times[number] = time.perf_counter() - started
    return _figures(time.process_time() - cpu, times)


def _figures(cpu_s: float, times: Any) -> dict[str, float]:
    return {"cpu_us": 1e6 * cpu_s / len(times), "p50_us": 1e6 * float(np.median(times))}


def _bytes(size: int) -> Any:
    return np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8)


def _many(options: argparse.Namespace) -> dict[str, float]:
    """A closed loop of callers: each sends its next item when the last one is answered."""
    pixels = np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)
    call = MANY[options.way](options.address, pixels)
    call()
    return crowd(call, options.callers, options.seconds)


def crowd(call: Callable[[], Any], callers: int, seconds: float) -> dict[str, float]:
    """Calls per second of a number of threads, their times, and this process's own time for a call."""
    log: list[list[tuple[float, float]]] = [[] for _ in range(callers)]
    begin = time.perf_counter() + WARM_S
    end = begin + seconds

    def caller(own: list[tuple[float, float]]) -> None:
        while (started := time.perf_counter()) < end:
            call()
            own.append((started, time.perf_counter()))

    threads = [threading.Thread(target=caller, args=(own,)) for own in log]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, begin - time.perf_counter()))
    cpu = time.process_time()
    for thread in threads:
        thread.join()
    cpu = time.process_time() - cpu
    times = np.array([at for own in log for at in own if at[0] >= begin]).reshape(-1, 2)
    if not len(times):  # every call that was begun before took until after the end
        return dict.fromkeys(("answers", "per_s", "p50_ms", "p95_ms", "p99_ms", "cpu_us"), 0.0)
    taken = times[:, 1] - times[:, 0]
    return {
        "answers": len(times),
        "per_s": len(times) / seconds,
        "p50_ms": 1e3 * float(np.percentile(taken, 50)),
        "p95_ms": 1e3 * float(np.percentile(taken, 95)),
        "p99_ms": 1e3 * float(np.percentile(taken, 99)),
        "cpu_us": 1e6 * cpu / len(times),
    }


def _ours(address: str, data: Any, **options: Any) -> Callable[[], Any]:
    from tritonkit.client import Client

    model = Client(address, **options).model(SINK)
    return lambda: model.predict(data=data)["first"]


def _ours_shared(address: str, data: Any) -> Callable[[], Any]:
    return _ours(address, data, shared_memory=True, admin_key=_key(address))


async def _ours_async(address: str, data: Any, **options: Any) -> Callable[[], Awaitable[Any]]:
    from tritonkit.client import AsyncClient

    model = await AsyncClient(address, **options).model(SINK)

    async def call() -> Any:
        return (await model.predict(data=data))["first"]

    return call


async def _ours_async_shared(address: str, data: Any) -> Callable[[], Awaitable[Any]]:
    return await _ours_async(address, data, shared_memory=True, admin_key=_key(address))


def _theirs(
    address: str,
    array: Any,
    door: str = "grpc",
    model: str = SINK,
    names: tuple[str, str, str] = ("data", "UINT8", "first"),
) -> Callable[[], Any]:
    """A call of tritonclient; `names`: the input, its datatype, the output."""
    package = import_module(f"tritonclient.{door}")
    client = package.InferenceServerClient(address)
    name, datatype, output = names

    def call() -> Any:
        tensor = package.InferInput(name, array.shape, datatype)
        tensor.set_data_from_numpy(array)
        return client.infer(model, [tensor]).as_numpy(output)

    return call


async def _theirs_async(address: str, data: Any) -> Callable[[], Awaitable[Any]]:
    from tritonclient.grpc import InferInput
    from tritonclient.grpc.aio import InferenceServerClient

    client = InferenceServerClient(address)

    async def call() -> Any:
        tensor = InferInput("data", data.shape, "UINT8")
        tensor.set_data_from_numpy(data)
        return (await client.infer(SINK, [tensor])).as_numpy("first")

    return call


def _ours_network(address: str, pixels: Any, **options: Any) -> Callable[[], Any]:
    from tritonkit.client import Client

    model = Client(address, **options).model(NETWORK)
    return lambda: model.predict(pixels=pixels)["logits"]


def _ours_batched(address: str, pixels: Any) -> Callable[[], Any]:
    from tritonkit.client import Adaptive

    return _ours_network(address, pixels, batching=Adaptive())


def _theirs_network(address: str, pixels: Any) -> Callable[[], Any]:
    return _theirs(address, pixels, model=NETWORK, names=("pixels", "FP32", "logits"))


SYNC = {
    "tritonkit": _ours,
    "tritonkit-shared": _ours_shared,
    "tritonclient": _theirs,
    "tritonclient-http": partial(_theirs, door="http"),
}
ASYNC = {
    "tritonkit-async": _ours_async,
    "tritonkit-async-shared": _ours_async_shared,
    "tritonclient-async": _theirs_async,
}
MANY = {"tritonkit-batched": _ours_batched, "tritonkit": _ours_network, "tritonclient": _theirs_network}


def _key(address: str) -> str:
    """The key of the server that the benchmark runs: without it there is no shared memory."""
    from tritonkit.serve.runs import find_key_file

    file = find_key_file(Path(__file__).resolve().parent.parent, address)
    if file is None:
        raise SystemExit(f"no key of a server at {address}")
    return file.read_text().strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.caller", description=__doc__)
    parser.add_argument("way", choices=sorted({*SYNC, *ASYNC, *MANY}))
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--size", type=int, default=256, help="bytes of the tensor (256)")
    parser.add_argument("--calls", type=int, default=1000, help="of a single caller (1000)")
    parser.add_argument("--callers", type=int, default=1, help="threads that call concurrently (1)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of many callers (3)")
    return parser


if __name__ == "__main__":
    main()
