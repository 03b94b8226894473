"""Threads of one client in Python: `python -m bench.peers.pythons WAY HOST:PORT MODEL --callers N`, JSON out."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.caller import crowd
from bench.peers.contenders import PYTHON_WAYS
from bench.peers.traffic import MODELS, content

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Warm, measure, print."""
    options = _parser().parse_args()
    os.sched_setaffinity(0, options.cores)
    call = _call(options.way, options.address, options.model)
    call()
    print(json.dumps(crowd(call, options.callers, options.seconds)))


def _call(way: str, address: str, model: str) -> Callable[[], Any]:
    """A call with the one item, whose first output is read."""
    tensors, item = MODELS[model], _item(model)
    if way == "tritonclient":
        return _theirs(address, model, item)
    from tritonkit.client import Adaptive, Client

    options: dict[str, Any] = {"batching": Adaptive()} if way == "client-batched" else {}
    ours = Client(address, **options).model(model)
    inputs: dict[str, Any] = {tensors.name: item}
    return lambda: ours.predict(**inputs)[tensors.outputs[0]]


def _theirs(address: str, model: str, item: np.ndarray) -> Callable[[], Any]:
    from tritonclient.grpc import InferenceServerClient, InferInput

    tensors, client = MODELS[model], InferenceServerClient(address)

    def call() -> Any:
        tensor = InferInput(tensors.name, list(tensors.shape), tensors.datatype)
        tensor.set_data_from_numpy(item)
        return client.infer(model, [tensor]).as_numpy(tensors.outputs[0])

    return call


def _item(model: str) -> np.ndarray:
    """A batch of one."""
    tensors, data = MODELS[model], content(model)
    if tensors.datatype == "FP32":
        return np.frombuffer(data, np.float32).reshape(tensors.shape)
    return np.array([[data]], dtype=object)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.pythons", description=__doc__)
    parser.add_argument("way", choices=PYTHON_WAYS)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--callers", type=int, default=1, help="threads that call concurrently (1)")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cores", type=lambda text: {int(part) for part in text.split(",")})
    return parser


if __name__ == "__main__":
    main()
