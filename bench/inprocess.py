"""The engine alone: `python -m bench.inprocess MODEL.onnx --threads N --batches 1,2,4`, JSON out.

Runs under the server environment's Python, to compare the same ONNX Runtime: numpy, onnxruntime and
the standard library only.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

import onnxruntime

from bench.samples import DEFAULT_LENGTH, sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TYPES = {"tensor(int64)": "int64", "tensor(float)": "float32", "tensor(uint8)": "uint8"}


def main() -> None:
    """Print items per second for each batch size and the ONNX Runtime that reached them."""
    options = _parser().parse_args()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.add_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "0")
    session = onnxruntime.InferenceSession(options.model, settings, providers=["CPUExecutionProvider"])
    rates = {batch: _rate(session, batch, options.length, options.seconds) for batch in options.batches}
    print(json.dumps({"onnxruntime": onnxruntime.__version__, "items_per_s": rates}))


def _rate(session: Any, batch: int, length: int, seconds: float) -> float:
    """Items per second over `seconds`, after two runs that do not count."""
    inputs = feed(session, batch, length)
    for _ in range(2):
        session.run(None, inputs)
    runs = 0
    started = time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds:
        session.run(None, inputs)
        runs += 1
    return runs * batch / taken


def feed(session: Any, batch: int, length: int) -> dict[str, NDArray[Any]]:
    """Made-up input with a number of items; `length` is the size of their free axes."""
    # An axis with a name has no size of its own: the first is the batch, a later one the text.
    shapes = {
        tensor.name: [batch, *(n if isinstance(n, int) else -1 for n in tensor.shape[1:])]
        for tensor in session.get_inputs()
    }
    dtypes = {tensor.name: _TYPES[tensor.type] for tensor in session.get_inputs()}
    return sample(shapes, dtypes, length=length)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.inprocess", description=__doc__)
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("--threads", type=int, required=True, help="intra-op threads")
    parser.add_argument("--batches", type=_numbers, default=[1], metavar="1,2,4")
    parser.add_argument("--length", type=int, default=DEFAULT_LENGTH, help="size of open axes")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each batch size")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
