"""`openvino-fp32`, `-bf16` and `-int8`: the network as OpenVINO's own files, model.xml and model.bin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.openvino_core import PRECISION_ENTRY, Precision, first_reason, open_core
from tritonkit.repository.optimize.openvino_half import half_precision_notes, halve_weights
from tritonkit.repository.optimize.variants.openvino_int8 import quantize

__all__ = ["make_bf16", "make_fp32", "make_int8", "read_onnx"]

FILE = "model.xml"
# Types that Triton's openvino backend supports (openvino_utils.cc, ConvertToOpenVINOElement).
_CARRIED = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32")


def make_fp32(job: Job, folder: Path) -> tuple[str, ...]:
    """The network as it is, computed in FP32."""
    _save(read_onnx(job), folder, "f32")
    return ()


def make_bf16(job: Job, folder: Path) -> tuple[str, ...]:
    """The network with bfloat16 weights, computed in bfloat16 where the processor can; inputs and outputs keep their
    dtypes."""
    model = read_onnx(job)
    halve_weights(model)
    _save(model, folder, "bf16")
    return half_precision_notes()


def make_int8(job: Job, folder: Path) -> tuple[str, ...]:
    """The network with weights and activations in INT8, and ranges from `optimize.calibration`; the rest computes in
    FP32."""
    model, notes = quantize(job, read_onnx(job))
    _save(model, folder, "f32")
    return notes


def read_onnx(job: Job) -> Any:
    """The job's FP32 network as an openvino.Model; BuildError if OpenVINO or its backend does not support it."""
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
        # openvino.convert_model does the same for ONNX, and sends telemetry.
        return core.read_model(job.onnx)
    except RuntimeError as error:
        raise BuildError(
            where,
            found=f"OpenVINO cannot convert it: {first_reason(error)}",
            wanted="operators that OpenVINO supports",
            todo="build an onnx variant",
        ) from error


def _save(model: Any, folder: Path, precision: Precision) -> None:
    ov = need("openvino", "optimize")
    model.set_rt_info(precision, PRECISION_ENTRY)
    ov.save_model(model, folder / FILE, compress_to_fp16=False)
