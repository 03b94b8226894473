"""Copies of callers' requests, sent to both versions to compare their answers; callers wait for none of it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tritonkit.client.wire.answer import decode
from tritonkit.errors import InferenceError, ServerStartError

__all__ = ["Shadow", "ShadowCounts", "difference"]

_INFER = "/inference.GRPCInferenceService/ModelInfer"
_CALL_S, _START_S, _STOP_S = 30.0, 10.0, 5.0
_MOST_AT_ONCE = 8
_MOST_BYTES = 256 << 20
_KINDS = 20
_AWAY = ("UNAVAILABLE", "DEADLINE_EXCEEDED")


@dataclass
class ShadowCounts:
    """Results of the copied requests.

    Args:
        compared: the number of requests whose two results were compared, failures included.
        differ: the number of these that the candidate answered differently.
        dropped: the number not compared: too many came together, or the stable version's server was away.
        kinds: kind of difference -> its count.
    """

    compared: int = 0
    differ: int = 0
    dropped: int = 0
    kinds: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str) -> None:
        """Count a comparison, and what differed."""
        self.compared += 1
        if kind:
            self.differ += 1
            counted = kind if kind in self.kinds or len(self.kinds) < _KINDS else "other"
            self.kinds[counted] = self.kinds.get(counted, 0) + 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)


class Shadow:
    """A gRPC server for copies on this machine, in a thread of its own; a context manager.

    Args:
        stable, candidate: `host:port` of a server of each version.
        tolerance: the largest accepted difference of two numbers, as a fraction of the output's largest absolute one.
    """

    def __init__(self, stable: str, candidate: str, tolerance: float) -> None:
        self._targets, self._tolerance = (stable, candidate), tolerance
        self.counts = ShadowCounts()
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._ready, self._ending = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tritonkit-shadow", daemon=True)

    def __enter__(self) -> Shadow:
        self._thread.start()
        if not self._ready.wait(_START_S) or not self.address:
            raise ServerStartError("the shadow's server", found="it does not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        import grpc

        options = [(f"grpc.max_{way}_message_length", _MOST_BYTES) for way in ("receive", "send")]
        channels = [grpc.aio.insecure_channel(target, options=options) for target in self._targets]
        asks = [channel.unary_unary(_INFER) for channel in channels]
        server = grpc.aio.server(options=options)
        busy = 0

        async def compare(request: bytes, context: Any) -> bytes:
            nonlocal busy
            if busy >= _MOST_AT_ONCE:
                self.counts.dropped += 1
                return b""
            busy += 1
            try:
                stable, candidate = await asyncio.gather(*(_answer(ask, request) for ask in asks))
                if stable in _AWAY:  # that replica, for a moment: it says nothing of the candidate
                    self.counts.dropped += 1
                else:
                    self.counts.add(difference(stable, candidate, self._tolerance))
            finally:
                busy -= 1
            return b""

        class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
            def service(self, details: Any) -> Any:
                # Only what asks a model for an answer can be compared.
                is_infer = details.method == _INFER
                return grpc.unary_unary_rpc_method_handler(compare) if is_infer else None

        server.add_generic_rpc_handlers((Handler(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self.address = f"127.0.0.1:{port}"
        self._ready.set()
        await self._ending.wait()
        await server.stop(_STOP_S)
        for channel in channels:
            await channel.close()


async def _answer(ask: Any, request: bytes) -> bytes | str:
    """The answer's message, or the name of the gRPC status of a failure."""
    import grpc

    try:
        answered: bytes = await ask(request, timeout=_CALL_S)
    except grpc.RpcError as error:
        return str(error.code().name)
    return answered


def difference(stable: bytes | str, candidate: bytes | str, tolerance: float) -> str:
    """The difference between two answers, in the same words for the same kind; empty: none.

    Args:
        stable, candidate: a `ModelInferResponse` each, or the name of a gRPC status.
        tolerance: the largest accepted difference of two numbers, as a fraction of the output's largest absolute one.
    """
    if isinstance(stable, str) or isinstance(candidate, str):
        names = [outcome if isinstance(outcome, str) else "an answer" for outcome in (stable, candidate)]
        return "" if stable == candidate else f"{names[0]} became {names[1]}"
    try:
        before, after = decode(stable).outputs, decode(candidate).outputs
    except InferenceError:
        return "an answer that cannot be read"
    if before.keys() != after.keys():
        return f"outputs {', '.join(before)} became {', '.join(after)}"
    for name, one in before.items():
        other = after[name]
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{name}: {one.dtype} {list(one.shape)} became {other.dtype} {list(other.shape)}"
        if not _same(one, other, tolerance):
            return f"{name}: other values"
    return ""


def _same(one: Any, other: Any, tolerance: float) -> bool:
    if not np.issubdtype(one.dtype, np.floating):
        return bool(np.array_equal(one, other))
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return False
    one, other = one[finite], other[finite]
    return not one.size or bool(np.abs(one - other).max() <= tolerance * max(np.abs(one).max(), 1e-30))
