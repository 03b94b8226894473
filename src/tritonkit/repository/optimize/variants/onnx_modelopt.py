"""`onnx-int8-qdq` and `onnx-fp8`: QDQ files by NVIDIA's Model Optimizer, for GPUs.

Its choice of layers follows TensorRT's rules: symmetric ranges, pairs only where kernels fuse them. All other operators
are FP16, inputs and outputs stay FP32. Weights keep their bytes, since they are quantized when the file is loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import copy_model
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.optimize.variants import modelopt_process as process
from tritonkit.repository.optimize.variants.onnx_fp16 import hold_to_loading
from tritonkit.repository.optimize.variants.onnx_graph import save
from tritonkit.repository.optimize.variants.onnx_search import LayerSearch

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make_fp8", "make_int8", "write_quantized"]

_METHODS = {"minmax": "max", "entropy": "entropy"}
"""Methods of `optimize.calibration_methods` that Model Optimizer has, and its names for them."""


def make_int8(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with INT8 layers and ranges from `optimize.calibration`."""
    return write_quantized(job, "int8", folder / "model.onnx", "onnx-int8-qdq")


def make_fp8(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with layers in FP8 (E4M3) and ranges from `optimize.calibration`."""
    return write_quantized(job, "fp8", folder / "model.onnx", "onnx-fp8")


def write_quantized(job: Job, precision: str, file: Path, variant: str) -> tuple[str, ...]:
    """Quantize the network to `file` by the calibration methods in turn; keep the first that is close enough, else the
    closest.

    BuildError if Model Optimizer is not installed, fails, or quantizes no layer.
    """
    where = f"{job.spec.file} variant {variant}"
    calibration = job.calibration
    search = LayerSearch(job, layouts=False)
    named: tuple[str, ...] = job.spec.model.optimize.calibration_methods
    methods = [name for name in named if name in _METHODS] or list(_METHODS)
    closeness: dict[str, float] = {}
    for method in methods:
        job.say(f"quantizing with {method} ranges")
        model = _quantized(job, precision, _METHODS[method], calibration, where)
        save(model, file.with_suffix(f".{method}"))
        hold_to_loading(job, file.with_suffix(f".{method}"), variant)
        closeness[method] = search.closeness(model)
        if closeness[method] >= search.target:
            break
    best = max(closeness, key=lambda method: closeness[method])
    for method in closeness:
        attempt = file.with_suffix(f".{method}")
        if method == best:
            attempt.rename(file)
        else:
            attempt.unlink()
    tried = ", ".join(f"{method} {value:.4f}" for method, value in closeness.items())
    pairs = _pairs(model)
    return (f"{job.yardstick.name} to FP32 on the calibration data by ranges: {tried}", f"{pairs} QDQ pairs, rest FP16")


def _quantized(job: Job, precision: str, method: str, calibration: Sequence[Batch], where: str) -> Any:
    """The network quantized by Model Optimizer, in another process."""
    with tempfile.TemporaryDirectory(prefix="tritonkit-") as place:
        folder = Path(place)
        copy_model(job.onnx, folder, process.NETWORK, where)
        _write_batches(folder, calibration)
        settings = {"quantize_mode": precision, "calibration_method": method, "high_precision_dtype": "fp16"}
        (folder / process.SETTINGS).write_text(json.dumps(settings))
        command = [sys.executable, "-m", process.__name__, place]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if (folder / process.REFUSAL).is_file():
            raise BuildError(**json.loads((folder / process.REFUSAL).read_text()))
        if done.returncode or not (folder / process.QUANTIZED).is_file():
            lines = done.stderr.strip().splitlines()
            raise BuildError(
                where,
                found=f"Model Optimizer cannot quantize it: {lines[-1] if lines else f'exit code {done.returncode}'}",
                wanted="a network that it supports",
                todo="choose another variant, such as onnx-fp16",
                details="\n".join(lines[-20:]),
            )
        model = need("onnx", "build").load(folder / process.QUANTIZED)
    if not _pairs(model):
        raise BuildError(
            where,
            found=f"Model Optimizer quantizes no layer of it to {precision.upper()}",
            wanted="convolutions or matrix products with constant weights, of 16 channels or more for FP8",
            todo="choose a floating-point variant, such as onnx-fp16",
        )
    return model


def _pairs(model: Any) -> int:
    return sum(node.op_type == "DequantizeLinear" for node in model.graph.node)


def _write_batches(folder: Path, calibration: Sequence[Batch]) -> None:
    import numpy as np

    for place, batch in enumerate(calibration):
        file = folder / f"batch-{place:06}.npz"
        np.savez(file, *batch.values())
        file.with_suffix(".json").write_text(json.dumps(list(batch)))
