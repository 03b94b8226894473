"""The Triton that a page started: its answers to callers at the same time, its requests over HTTP, its batches."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

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
    elements, kinds = [], []
    for value in item.values():
        kinds.append("FP64" if isinstance(value, float) else "BYTES")
        if isinstance(value, float):
            elements.append(struct.pack("<d", value))
            continue
        data = value.encode() if isinstance(value, str) else value
        elements.append(struct.pack("<I", len(data)) + data)
    inputs = [
        {"name": name, "shape": [1, 1], "datatype": kind, "parameters": {"binary_data_size": len(element)}}
        for name, kind, element in zip(item, kinds, elements, strict=True)
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    length = f"inference-header-content-length: {len(head)}"
    return Request(head + b"".join(elements), ("content-type: application/octet-stream", length))


def batches(address: str, network: str) -> Counter[int]:
    """Runs of the network since it was loaded, by the number of items in each."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        statistics = answer_of(channel, "Statistics", network)
    return Counter(
        {batch.batch_size: batch.compute_infer.count for model in statistics.model_stats for batch in model.batch_stats}
    )
