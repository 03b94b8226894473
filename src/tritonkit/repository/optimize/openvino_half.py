"""Weights in bfloat16, for networks that OpenVINO computes in bfloat16."""

from __future__ import annotations

from typing import Any

from tritonkit.extras import need
from tritonkit.repository.optimize.openvino_core import open_core

__all__ = ["half_precision_notes", "halve_weights"]


def half_precision_notes() -> tuple[str, ...]:
    """A note for people if this processor has no bfloat16."""
    if "BF16" in open_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return ()
    return ("this processor has no bfloat16: computed, and measured, in FP32",)


def halve_weights(model: Any) -> None:
    """Turn FP32 constants with two axes and more (not biases, not norms) into bfloat16.

    Each is followed by a conversion back to FP32, which OpenVINO removes where it computes in bfloat16.
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
