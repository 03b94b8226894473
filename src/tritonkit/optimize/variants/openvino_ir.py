"""`openvino-fp32`, `-bf16` and `-int8`: the network as OpenVINO's own files, model.xml and model.bin."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from tritonkit.errors import BuildError
from tritonkit.export.job import Job
from tritonkit.extras import need
from tritonkit.optimize.openvino_core import PRECISION_ENTRY, first_reason, open_core
from tritonkit.optimize.variants.openvino_int8 import quantize

__all__ = ["make_bf16", "make_fp32", "make_int8", "read_onnx"]

FILE = "model.xml"
# What Triton's openvino backend carries (openvino_utils.cc, ConvertToOpenVINOElement).
_CARRIED = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32",
)  # fmt: skip


def make_fp32(job: Job, folder: Path) -> tuple[str, ...]:
    """The network as it is, computed in FP32."""
    _save(read_onnx(job), folder, "f32")
    return ()


def make_bf16(job: Job, folder: Path) -> tuple[str, ...]:
    """Weights in bfloat16, and computed in it where the processor can; inputs and outputs keep their dtypes."""
    model = read_onnx(job)
    _halve_weights(model)
    _save(model, folder, "bf16")
    if "BF16" in open_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return ()
    return ("this processor has no bfloat16: computed, and measured, in FP32",)


def make_int8(job: Job, folder: Path) -> tuple[str, ...]:
    """Weights and activations in INT8, with ranges from `optimize.calibration`; the rest computed in FP32."""
    model, notes = quantize(job, read_onnx(job))
    _save(model, folder, "f32")
    return notes


def read_onnx(job: Job) -> Any:
    """The job's FP32 network as an openvino.Model; BuildError for what OpenVINO or its backend cannot take."""
    where = f"{job.spec.file} network"
    for tensor in (*job.signature.inputs, *job.signature.outputs):
        if tensor.dtype not in _CARRIED:
            raise BuildError(
                where,
                found=f"{tensor.name} is {tensor.dtype}, which Triton's openvino backend does not carry",
                wanted=f"one of {', '.join(_CARRIED)}",
                todo="build an onnx variant",
            )
    core = open_core()
    try:
        # openvino.convert_model does the same for ONNX, and reports its use over the network.
        return core.read_model(job.onnx)
    except RuntimeError as error:
        raise BuildError(
            where,
            found=f"OpenVINO cannot convert it: {first_reason(error)}",
            wanted="operators that OpenVINO has",
            todo="build an onnx variant",
        ) from error


def _halve_weights(model: Any) -> None:
    """Turn FP32 constants with two axes and more (not biases, not norms) into bfloat16.

    Each is followed by a conversion back, which OpenVINO takes away again where it computes in bfloat16.
    """
    ov = need("openvino", "optimize")
    opset = need("openvino.opset13", "optimize")
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_element_type() != ov.Type.f32:
            continue
        if sum(size > 1 for size in node.get_output_shape(0)) < 2:
            continue
        weights = opset.convert(opset.constant(_as_bf16(ov, node.data)), "f32")
        weights.set_friendly_name(node.get_friendly_name())
        weights.get_rt_info()["decompression_0"] = ""  # OpenVINO's mark of such a conversion
        for target in node.output(0).get_target_inputs():
            target.replace_source_output(weights.output(0))


def _as_bf16(ov: Any, values: Any) -> Any:
    """The nearest bfloat16 values, ties to even, none rounded to infinity."""
    import numpy as np

    bfloat16 = need("ml_dtypes", "build").bfloat16
    largest = np.uint32(0x7F7F0000).view(np.float32)
    tensor = ov.Tensor(ov.Type.bf16, list(values.shape))
    nearest = np.clip(values, -largest, largest).astype(bfloat16)
    tensor.data.view(np.uint16)[...] = nearest.view(np.uint16)
    return tensor


def _save(model: Any, folder: Path, precision: Literal["f32", "bf16"]) -> None:
    ov = need("openvino", "optimize")
    model.set_rt_info(precision, PRECISION_ENTRY)
    ov.save_model(model, folder / FILE, compress_to_fp16=False)
