"""The client's cost in addition to a raw gRPC call."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.report import Ratio, Report
from bench.setting import Setting, served
from tritonkit.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["run"]

MODEL, INPUT = "digits_network", "pixels"
BLOCK, UNCOUNTED = 25, 5  # calls of one contender in a row, of which the first do not count
BLOCKS, WARM_BLOCKS = 20, 4
AT_MOST = 1.10


def run(setting: Setting) -> Report:
    """p50 of client.model(...).predict over raw tritonclient.grpc infer() for one small tensor."""
    from tritonclient.grpc import InferenceServerClient

    pixels = np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)
    with served(setting, [MODEL]) as address:
        raw_client = InferenceServerClient(address)
        with Client(address) as client:
            output = next(iter(client.model(MODEL).signature.outputs))
            calls = _contenders(client, raw_client, pixels, output)
            _check_same(calls)
            _round(calls, WARM_BLOCKS)
            rounds = [_round(calls, BLOCKS) for _ in range(setting.rounds)]
        raw_client.close()
    return Report(
        "overhead",
        f"p50 of one call of {MODEL}, in turns of {BLOCK} calls, {BLOCKS} turns a round",
        [
            _ratio("predict / raw infer", rounds, "tritonkit", "raw", AT_MOST),
            _ratio("predict / raw infer, its input made once", rounds, "tritonkit", "kept", None),
            _ratio("raw infer again / raw infer (noise)", rounds, "again", "raw", None),
        ],
    )


def _contenders(
    client: Client, raw_client: Any, pixels: NDArray[Any], output: str
) -> dict[str, Callable[[], NDArray[Any]]]:
    from tritonclient.grpc import InferInput

    def raw() -> NDArray[Any]:
        tensor = InferInput(INPUT, pixels.shape, "FP32")
        tensor.set_data_from_numpy(pixels)
        array: NDArray[Any] = raw_client.infer(MODEL, [tensor]).as_numpy(output)
        return array

    made = InferInput(INPUT, pixels.shape, "FP32")
    made.set_data_from_numpy(pixels)

    def kept() -> NDArray[Any]:
        array: NDArray[Any] = raw_client.infer(MODEL, [made]).as_numpy(output)
        return array

    def predict() -> NDArray[Any]:
        return client.model(MODEL).predict(pixels=pixels)[output]

    # The raw call is measured twice: its ratio to itself is the uncertainty of the other ratios.
    return {"raw": raw, "tritonkit": predict, "kept": kept, "again": raw}


def _check_same(calls: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
    answers = [call() for call in calls.values()]
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-5)


def _round(calls: Mapping[str, Callable[[], NDArray[Any]]], blocks: int) -> dict[str, float]:
    """Median seconds of each contender, in short blocks whose order changes every time.

    A program calls one way, so its code is warm in the caches: blocks keep that, and their first
    calls, which warm the caches again, do not count.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    random = Random(0)  # noqa: S311 - an order, not a secret
    for _ in range(blocks):
        random.shuffle(order)
        for name in order:
            taken[name] += [_seconds(calls[name]) for _ in range(BLOCK)][UNCOUNTED:]
    return {name: float(np.median(times)) for name, times in taken.items()}


def _seconds(call: Callable[[], NDArray[Any]]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _ratio(name: str, rounds: list[dict[str, float]], over: str, under: str, at_most: float | None) -> Ratio:
    return Ratio(name, [times[over] / times[under] for times in rounds], at_most=at_most)
