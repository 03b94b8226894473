"""The Triton that a page started: its answers to callers at the same time, its requests over HTTP, its batches."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.families.callers import Request
from bench.requests import answer_of
from tritonkit.client import Client

if TYPE_CHECKING:
    from bench.families.recipes import Answer, Item, Recipe

__all__ = ["CALLERS", "answers_of", "batches", "request"]

CALLERS = 16
_TIMEOUT_S = 600.0


def answers_of(recipe: Recipe, address: str, items: Sequence[Item]) -> list[Answer]:
    """The answers to these items from 16 callers at the same time, in the items' order."""
    with Client(address, timeout_s=_TIMEOUT_S) as client, ThreadPoolExecutor(CALLERS) as pool:
        model = client.model(recipe.model)
        requests = [{name: [value] for name, value in item.items()} for item in items]
        return [recipe.served(reply) for reply in pool.map(lambda inputs: model.predict(inputs=inputs), requests)]


def request(item: Item) -> Request:
    """The Open Inference Protocol with binary data in both directions."""
    tensors = [_tensor(value) for value in item.values()]
    inputs = [
        {"name": name, "shape": [1, count], "datatype": kind, "parameters": {"binary_data_size": len(data)}}
        for name, (kind, count, data) in zip(item, tensors, strict=True)
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    length = f"inference-header-content-length: {len(head)}"
    return Request(head + b"".join(data for *_, data in tensors), ("content-type: application/octet-stream", length))


def _tensor(value: Any) -> tuple[str, int, bytes]:
    """The type, the number of elements and the bytes of an input."""
    if isinstance(value, np.ndarray):
        return "FP32", value.size, value.astype("<f4").tobytes()
    if isinstance(value, float):
        return "FP64", 1, struct.pack("<d", value)
    texts = [
        text.encode() if isinstance(text, str) else text for text in (value if isinstance(value, tuple) else [value])
    ]
    return "BYTES", len(texts), b"".join(struct.pack("<I", len(text)) + text for text in texts)


def batches(address: str, network: str) -> Counter[int]:
    """Runs of the network since it was loaded, by the number of items in each."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        statistics = answer_of(channel, "Statistics", network)
    return Counter(
        {batch.batch_size: batch.compute_infer.count for model in statistics.model_stats for batch in model.batch_stats}
    )
