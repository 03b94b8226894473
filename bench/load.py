"""A closed loop of callers: `python -m bench.load ADDRESS MODEL --concurrency N`, JSON out.

Each of N callers sends its next request when the last is answered. Requests are encoded beforehand
and answers stay bytes, over asyncio: of the three ways gRPC's Python offers (threads, futures,
asyncio) this took the least processor time per request at 8 and 32 callers, and what the load takes
the server does not get.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.samples import DEFAULT_LENGTH, sample
from tritonkit.client import Client
from tritonkit.client.core import decode_response, encode_request, messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonkit.client import ModelSignature

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_DTYPES = {"FP32": "float32", "INT64": "int64", "UINT8": "uint8"}
_DIFFERENT = 16  # requests with different contents, so that nothing answers from a cache


@dataclass
class _Log:
    """What the callers saw: when each answer came and how long it took, by the monotonic clock."""

    ends: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main() -> None:
    """Warm, measure, print."""
    options = _parser().parse_args()
    with Client(options.address) as client:
        signature = client.model(options.model).signature
        requests = _requests(signature, options.length, options.item)
        print(json.dumps(asyncio.run(_measure(client, options, requests))))


async def _measure(
    client: Client, options: argparse.Namespace, requests: list[bytes]
) -> dict[str, Any]:
    import grpc.aio

    log = _Log()
    async with grpc.aio.insecure_channel(client.address, options=_OPTIONS) as channel:
        call = channel.unary_unary(_METHOD)
        # The answers of the load itself stay unread: read one to know that they are answers.
        decode_response(messages().ModelInferResponse.FromString(await call(requests[0])))
        warm = time.perf_counter() + options.warm_seconds
        end = warm + options.seconds
        turns = cycle(requests)
        callers = [
            asyncio.create_task(_caller(call, turns, end, log)) for _ in range(options.concurrency)
        ]
        await asyncio.sleep(options.warm_seconds)
        before = await asyncio.to_thread(_counts, client, options.model)
        await asyncio.sleep(max(0.0, end - time.perf_counter()))
        after = await asyncio.to_thread(_counts, client, options.model)
        await asyncio.gather(*callers)
    return _summary(log, warm, end) | {"effective_batch": _quotient(before, after)}


async def _caller(call: Any, requests: Iterator[bytes], end: float, log: _Log) -> None:
    import grpc

    while (sent := time.perf_counter()) < end:
        try:
            await call(next(requests), timeout=60.0)
        except grpc.RpcError as error:
            log.failures.append(f"{error.code()}: {error.details()}")
            # A server that turns everything away must not be asked in a tight loop.
            await asyncio.sleep(0.1)
            continue
        answered = time.perf_counter()
        log.ends.append(answered)
        log.seconds.append(answered - sent)


def _requests(signature: ModelSignature, length: int, item: Path | None) -> list[bytes]:
    if item is not None:
        given = {name: item.read_bytes() for name in signature.inputs}
        return [encode_request(signature, given).SerializeToString()]
    shapes = {name: spec.dims for name, spec in signature.inputs.items()}
    dtypes = {name: _DTYPES[spec.datatype] for name, spec in signature.inputs.items()}
    return [
        encode_request(
            signature, sample(shapes, dtypes, length=length, seed=seed)
        ).SerializeToString()
        for seed in range(_DIFFERENT)
    ]


def _summary(log: _Log, warm: float, end: float) -> dict[str, Any]:
    """Figures of the answers that came in the measured time."""
    ends = np.array(log.ends)
    counted = 1e3 * np.array(log.seconds)[(ends >= warm) & (ends < end)]
    points = np.percentile(counted, (50, 95, 99)) if counted.size else np.full(3, np.nan)
    return {
        "answers": int(counted.size),
        "per_s": counted.size / (end - warm),
        "p50_ms": float(points[0]),
        "p95_ms": float(points[1]),
        "p99_ms": float(points[2]),
        "failures": len(log.failures),
        "first_failure": log.failures[0] if log.failures else "",
    }


def _counts(client: Client, model: str) -> tuple[int, int]:
    counters = client.statistics(model)
    return (
        sum(each.inference_count for each in counters),
        sum(each.execution_count for each in counters),
    )


def _quotient(before: tuple[int, int], after: tuple[int, int]) -> float:
    items, runs = after[0] - before[0], after[1] - before[1]
    return items / runs if runs else float("nan")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("model")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--length", type=int, default=DEFAULT_LENGTH, help="size of open axes")
    parser.add_argument(
        "--item", type=Path, metavar="FILE", help="the BYTES of one item; default: made-up numbers"
    )
    parser.add_argument("--warm-seconds", type=float, default=0.5, help="not counted")
    parser.add_argument("--seconds", type=float, default=3.0, help="counted")
    return parser


if __name__ == "__main__":
    main()
