"""The ONNX file from which a TensorRT plan is built, whose types TensorRT uses unchanged.

Both libraries build strongly typed networks, so precision is decided here: FP32 as it is; FP16 with FP32
inputs and outputs; FP8 as Model Optimizer quantizes it; INT8 as quantize-dequantize pairs by TensorRT's
rules (symmetric, activations per tensor, weights per channel, biases not quantized; TensorRT developer
guide, "Working with Quantized Types"). TensorRT cannot use onnx-int8-static, whose activations are uint8
with a zero point.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.optimize.variants.onnx_calibration import Calibrator
from tritonkit.repository.optimize.variants.onnx_graph import name_nodes, save, with_shapes
from tritonkit.repository.optimize.variants.onnx_modelopt import write_quantized

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["PRECISIONS", "typed_network"]

PRECISIONS = ("fp32", "fp16", "int8", "fp8")
_QUANTIZED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_CLOSE = 0.99  # closeness on the calibration data above which no other method is tried


def typed_network(job: Job, precision: str, file: Path, *, thorough: bool) -> tuple[Path, tuple[str, ...]]:
    """The network in one of `PRECISIONS`, written to `file` unless it is FP32, for which a file exists.

    Notes state its closeness to FP32 in ONNX Runtime. `thorough` tries every calibration method of
    the spec, which a plan that will not be served here does not need.
    """
    if precision == "fp32":
        return job.onnx, ()
    if precision == "fp16":
        _write_fp16(job, file)
        return file, ()
    if precision == "fp8":
        return file, write_quantized(job, precision, file, "tensorrt-fp8")
    methods = job.spec.model.optimize.calibration_methods
    return file, _write_int8(job, file, methods if thorough else methods[:1])


def _write_fp16(job: Job, file: Path) -> None:
    onnx = need("onnx", "build")
    with quiet():
        float16 = need("onnxruntime.transformers.float16", "build")
        model = float16.convert_float_to_float16(onnx.load(job.onnx), keep_io_types=True)
    save(model, file)


def _write_int8(job: Job, file: Path, methods: Sequence[str]) -> tuple[str, ...]:
    """Quantize with the calibration methods in turn; keep the first result that is close, else the closest."""
    model = with_shapes(need("onnx", "build").load(job.onnx))
    name_nodes(model)
    layers = _layers(job, model)
    where = f"{job.spec.file} optimize.calibration"
    read = list(dict.fromkeys(node.input[0] for node in layers))
    ranges = Calibrator(model, read, job.calibration, job.batched, where, job.say)
    closeness: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=file.parent) as place:
        for method in methods:
            tried = Path(place) / f"{method}.onnx"
            _quantize(model, [node.name for node in layers], ranges.by(method), tried)
            session = open_session(tried, where)
            closeness[method] = job.closeness(partial(run_session, session, where=where))
            if closeness[method] >= _CLOSE:
                break
        best = max(closeness, key=lambda method: closeness[method])
        shutil.move(Path(place) / f"{best}.onnx", file)
    if closeness[best] <= 0:
        raise BuildError(
            where,
            found=f"quantized by {', '.join(closeness)}, the network gives nothing like its FP32 outputs",
            wanted="calibration data like real input",
            todo="check the data, or choose another variant",
        )
    tried_all = ", ".join(f"{method} {value:.4f}" for method, value in closeness.items())
    name = job.yardstick.name
    return (f"{name} of INT8 to FP32 on the calibration data, by ONNX Runtime: {tried_all}",)


def _layers(job: Job, model: Any) -> list[Any]:
    """The nodes that become INT8: those that multiply with constant weights."""
    constants = {tensor.name for tensor in model.graph.initializer}
    layers = [
        node
        for node in model.graph.node
        if node.op_type in _QUANTIZED and node.input[1] in constants and node.input[0] not in constants
    ]
    if not layers:
        raise BuildError(
            f"{job.spec.file} network",
            found="it has no convolution and no matrix product with constant weights",
            wanted=f"one of {', '.join(_QUANTIZED)}: what INT8 makes faster",
            todo="choose a floating-point variant",
        )
    return layers


def _quantize(model: Any, layers: list[str], ranges: Mapping[str, tuple[float, float]], file: Path) -> None:
    import numpy as np

    copy = type(model)()  # the quantizer changes its argument
    copy.CopyFrom(model)
    tools = need("onnxruntime.quantization", "build")
    limits = {name: tuple(map(np.float32, pair)) for name, pair in ranges.items()}
    with quiet():
        quantizer = need("onnxruntime.quantization.qdq_quantizer", "build").QDQQuantizer(
            copy,
            per_channel=True,
            reduce_range=False,
            weight_qType=tools.QuantType.QInt8,
            activation_qType=tools.QuantType.QInt8,
            tensors_range=need("onnxruntime.quantization.calibrate", "build").TensorsData(
                tools.CalibrationMethod.MinMax, limits
            ),
            nodes_to_quantize=layers,
            nodes_to_exclude=[],
            op_types_to_quantize=list(_QUANTIZED),
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "QuantizeBias": False,
                # TensorRT fuses what lies between a product's inputs and the next pair.
                "OpTypesToExcludeOutputQuantization": list(_QUANTIZED),
            },
        )
        quantizer.quantize_model()
        quantizer.model.save_model_to_file(file)
