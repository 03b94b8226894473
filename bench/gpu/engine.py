"""An engine in process, as the bar for the server: `python -m bench.gpu.engine ort|torch`.

It stays up and answers each line of JSON on its input with one on its output, so that the engine and the server can be
measured in turns without loading a network again. ONNX Runtime runs in the server environment's Python, and PyTorch
in any Python that has it: numpy and the standard library only.

A request has `model` (an ONNX file), `kind` (of the requests), `batch`, `seconds`, `copies` (whether input comes from
and output goes to numpy, or both stay on the device), `gpu`, `pixels` and `most`. The answer has `per_s`, items per
second, and `ms`, the median of one run. A request with `answers`, a file, gets `rows` instead: the file then has the
answers of ONNX Runtime's CPU provider to `batch` requests.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.gpu.requests import items, padded

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["timed"]

_WARM = 3
"""Runs before the clock starts: the first captures a CUDA graph, where there is one."""
_BATCHES = 4
"""Batches in turn, so that texts of more than one longest length take part."""


def timed(run: Callable[[int], object], batch: int, seconds: float) -> dict[str, float]:
    """Items per second of a function that runs batch number n, and the median milliseconds of a run."""
    for number in range(_WARM * _BATCHES):
        run(number)
    taken: list[float] = []
    begun = time.perf_counter()
    while (at := time.perf_counter()) - begun < seconds or not taken:
        run(len(taken))
        taken.append(time.perf_counter() - at)
    return {"per_s": batch * len(taken) / sum(taken), "ms": 1000 * statistics.median(taken)}


@cache
def _session(model: str, gpu: bool, graph: bool) -> Any:
    """One session of a file, as the server's configuration opens it: convolutions by NHWC, and FP32 as FP32."""
    import onnxruntime

    if not gpu:
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    onnxruntime.preload_dlls()
    fixed = str(int(graph))
    options = {"use_tf32": "0", "prefer_nhwc": fixed, "enable_cuda_graph": fixed, "cudnn_conv_algo_search": "HEURISTIC"}
    cuda = ("CUDAExecutionProvider", options)
    session = onnxruntime.InferenceSession(model, providers=[cuda, "CPUExecutionProvider"])
    if "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("ONNX Runtime's CUDA provider cannot start here")
    return session


@cache
def _bound(model: str, kind: str, batch: int, gpu: bool, pixels: int, most: int) -> list[Any]:
    """Bindings of batches to memory of the device, which is kept: a captured graph reads and writes those places."""
    import onnxruntime

    graph, device = kind != "encoder", "cuda" if gpu else "cpu"
    session = _session(model, gpu, graph)
    bound = []
    for arrays in _batches(kind, batch, pixels, most)[: 1 if graph else _BATCHES]:
        binding = session.io_binding()
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0) for name, array in arrays.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        shape = [batch, *session.get_outputs()[0].shape[1:]]
        output = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, device, 0)
        binding.bind_ortvalue_output(session.get_outputs()[0].name, output)
        bound.append((binding, values, arrays, output))
    return bound


def _ort(request: dict[str, Any]) -> Callable[[int], object]:
    """Runs of ONNX Runtime on bound memory of the device; fixed shapes have a CUDA graph for each batch size."""
    import onnxruntime

    graph = request["kind"] != "encoder"
    session = _session(request["model"], request["gpu"], graph)
    bound = _bound(*(request[key] for key in ("model", "kind", "batch", "gpu", "pixels", "most")))
    options = onnxruntime.RunOptions()
    if request["gpu"] and graph:
        options.add_run_config_entry("gpu_graph_id", str(request["batch"]))

    def run(number: int) -> object:
        binding, values, arrays, output = bound[number % len(bound)]
        if request["copies"]:
            for name, value in values.items():
                value.update_inplace(arrays[name])
        session.run_with_iobinding(binding, options)
        return output.numpy() if request["copies"] else output

    return run


@cache
def _module(gpu: bool) -> Any:
    """The project's own ResNet-50 in eager FP32, with TF32 as PyTorch's users have it by default for convolutions."""
    import torch

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models" / "resnet50"))
    from network import build

    torch.manual_seed(50)
    return build().eval().to("cuda" if gpu else "cpu")


def _torch(request: dict[str, Any]) -> Callable[[int], object]:
    """Runs of eager PyTorch from and to numpy."""
    import torch

    module = _module(request["gpu"])
    device = "cuda" if request["gpu"] else "cpu"
    arrays = _batches("resnet50", request["batch"], request["pixels"], request["most"])[0]["pixels"]

    def run(number: int) -> object:
        del number
        with torch.inference_mode():
            return module(torch.from_numpy(arrays).to(device)).cpu().numpy()

    return run


def _batches(kind: str, size: int, pixels: int, most: int) -> list[dict[str, Any]]:
    rows = items(kind, size * _BATCHES, pixels, most)
    return [padded(rows[n * size : (n + 1) * size]) for n in range(_BATCHES)]


def _answered(request: dict[str, Any]) -> dict[str, int]:
    """Write the answers of the CPU provider to the first requests."""
    rows = items(request["kind"], request["batch"], request["pixels"], request["most"])
    answers = _session(request["model"], False, False).run(None, padded(rows))[0]
    np.save(request["answers"], answers)
    return {"rows": len(answers)}


def _measured(request: dict[str, Any], engine: str) -> dict[str, float]:
    return timed(ENGINES[engine](request), request["batch"], request["seconds"])


ENGINES = {"ort": _ort, "torch": _torch}


def main() -> None:
    """Answer requests until the input ends; an error is an answer, too."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library's own lines, such as those of a missing one, must not mix with the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: Any = _answered(request) if "answers" in request else _measured(request, sys.argv[1])
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
