"""A closed loop of callers: `python -m bench.load ADDRESS MODEL --concurrency N`, JSON out.

Each of N callers sends its next request when the last is answered, over one connection. h2load sends them if it is
installed, because cores used by the load are lost to the server. Otherwise gRPC's Python library does, over asyncio,
with requests encoded beforehand and answers left as bytes, for several times the processor time. Neither includes the
cost of a client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import struct
import sys
import time
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.h2load import grpc_body, h2load
from bench.requests import DTYPES, answer_of
from bench.samples import DEFAULT_LENGTH, sample
from tritonkit.errors import TritonkitError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVICE = "/inference.GRPCInferenceService"
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_TIMEOUT_S = 60.0
_DIFFERENT = 16  # requests with different contents, so that nothing answers from a cache


@dataclass
class _Log:
    """The callers' record: when each answer came and how long it took, by the monotonic clock."""

    ends: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main() -> None:
    """Warm, measure, print."""
    options = _parser().parse_args()
    generator = options.generator or ("h2load" if shutil.which("h2load") else "python")
    try:
        measured = _by_h2load(options) if generator == "h2load" else asyncio.run(_by_python(options))
    except TritonkitError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    print(json.dumps({"generator": generator} | measured))


def _by_h2load(options: argparse.Namespace) -> dict[str, Any]:
    """The same request again and again: nothing on its way may answer from a cache."""
    import grpc
    from tritonclient.grpc import service_pb2 as messages

    with grpc.insecure_channel(options.address, options=_OPTIONS) as channel:
        item = _empty(answer_of(channel, "Config", options.model), answer_of(channel, "Metadata", options.model))
        request = _requests(messages, item, options.length, options.item)[0]
        infer = channel.unary_unary(f"{_SERVICE}/ModelInfer")
        answer = infer(request, timeout=_TIMEOUT_S)
        before = _counted(answer_of(channel, "Statistics", options.model))
        # Answers of numbers all have one length; those of texts vary, so only the prefix is checked.
        body = grpc_body(request, answer=answer if options.item is None else b"")
        load = h2load(
            options.address,
            body,
            callers=options.concurrency,
            seconds=options.seconds,
            warm_seconds=options.warm_seconds,
        )
        after = _counted(answer_of(channel, "Statistics", options.model))
    return {
        "answers": load.sent,
        "per_s": load.per_s,
        "p50_ms": load.p50_ms,
        "p95_ms": load.p95_ms,
        "p99_ms": load.p99_ms,
        "failures": 0,  # one raises ClientError
        "first_failure": "",
        "effective_batch": _quotient(before, after),
        "generator_share": load.cpu_share,
    }


async def _by_python(options: argparse.Namespace) -> dict[str, Any]:
    import grpc.aio
    from tritonclient.grpc import service_pb2 as messages

    log = _Log()
    async with grpc.aio.insecure_channel(options.address, options=_OPTIONS) as channel:
        request = await _described(channel, messages, options.model)
        requests = _requests(messages, request, options.length, options.item)
        call = channel.unary_unary(f"{_SERVICE}/ModelInfer")
        # The answers of the load itself stay unread: read one to know that they are answers.
        messages.ModelInferResponse.FromString(await call(requests[0], timeout=_TIMEOUT_S))
        warm = time.perf_counter() + options.warm_seconds
        end = warm + options.seconds
        turns = cycle(requests)
        callers = [asyncio.create_task(_caller(call, turns, end, log)) for _ in range(options.concurrency)]
        await asyncio.sleep(options.warm_seconds)
        before = await _counts(channel, messages, options.model)
        await asyncio.sleep(max(0.0, end - time.perf_counter()))
        after = await _counts(channel, messages, options.model)
        await asyncio.gather(*callers)
    return _summary(log, warm, end) | {"effective_batch": _quotient(before, after)}


async def _ask(channel: Any, messages: Any, method: str, model: str) -> Any:
    """The answer to one of Triton's questions about a model."""
    request = getattr(messages, f"{method}Request")(name=model)
    call = channel.unary_unary(f"{_SERVICE}/{method}")
    answer = await call(request.SerializeToString(), timeout=_TIMEOUT_S)
    return getattr(messages, f"{method}Response").FromString(answer)


async def _described(channel: Any, messages: Any, model: str) -> Any:
    config = await _ask(channel, messages, "ModelConfig", model)
    return _empty(config, await _ask(channel, messages, "ModelMetadata", model))


def _empty(config: Any, metadata: Any) -> Any:
    """A request for one item, without contents: open axes have -1."""
    from tritonclient.grpc import service_pb2 as messages

    request = messages.ModelInferRequest(model_name=metadata.name)
    for tensor in metadata.inputs:
        shape = [1, *tensor.shape[1:]] if config.config.max_batch_size else tensor.shape
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=shape)
    return request


async def _caller(call: Any, requests: Iterator[bytes], end: float, log: _Log) -> None:
    import grpc

    while (sent := time.perf_counter()) < end:
        try:
            await call(next(requests), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            log.failures.append(f"{error.code()}: {error.details()}")
            # A server that refuses everything must not be called in a tight loop.
            await asyncio.sleep(0.1)
            continue
        answered = time.perf_counter()
        log.ends.append(answered)
        log.seconds.append(answered - sent)


def _requests(messages: Any, template: Any, length: int, item: Path | None) -> list[bytes]:
    """Encoded requests: of the one item, or of `_DIFFERENT` made-up ones."""
    if item is not None:
        content = item.read_bytes()
        element = struct.pack("<I", len(content)) + content  # BYTES: length, then content
        return [_encoded(messages, template, {t.name: ([1, 1], element) for t in template.inputs})]
    shapes = {tensor.name: tensor.shape for tensor in template.inputs}
    dtypes = {tensor.name: DTYPES[tensor.datatype] for tensor in template.inputs}
    return [
        _encoded(
            messages,
            template,
            {
                name: (array.shape, array.tobytes())
                for name, array in sample(shapes, dtypes, length=length, seed=seed).items()
            },
        )
        for seed in range(_DIFFERENT)
    ]


def _encoded(messages: Any, template: Any, contents: dict[str, tuple[Any, bytes]]) -> bytes:
    """The request with shapes and raw contents filled in."""
    request = messages.ModelInferRequest()
    request.CopyFrom(template)
    for tensor in request.inputs:
        shape, content = contents[tensor.name]
        tensor.shape[:] = shape
        request.raw_input_contents.append(content)
    encoded: bytes = request.SerializeToString()
    return encoded


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


async def _counts(channel: Any, messages: Any, model: str) -> tuple[int, int]:
    """Items and runs since the model was loaded."""
    return _counted(await _ask(channel, messages, "ModelStatistics", model))


def _counted(statistics: Any) -> tuple[int, int]:
    counters = statistics.model_stats
    return (
        sum(statistics.inference_count for statistics in counters),
        sum(statistics.execution_count for statistics in counters),
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
    parser.add_argument("--item", type=Path, metavar="FILE", help="the BYTES of one item; default: made-up numbers")
    parser.add_argument("--generator", choices=("h2load", "python"), help="default: h2load if it is installed")
    parser.add_argument("--warm-seconds", type=float, default=0.5, help="not counted")
    parser.add_argument("--seconds", type=float, default=3.0, help="counted")
    return parser


if __name__ == "__main__":
    main()
