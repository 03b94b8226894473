"""The optimized forms a network can be built in, in a table: a module for each family.

A variant's name is a form (`onnx-int8-static`), a transform in the form `onnx-fp32` (`pruned`), or both
(`distilled+onnx-int8-static`). A new form is a line in its module's FORMS.
"""

from __future__ import annotations

from tritonkit.errors import SpecError
from tritonkit.optimize.transforms import TRANSFORMS, Transform
from tritonkit.optimize.variants import (
    onnx_bf16,
    onnx_fp16,
    onnx_fp32,
    onnx_fuse,
    onnx_int8,
    onnx_int8_qat,
    openvino_ir,
    tensorrt_plan,
    tflite,
    torch_export,
)
from tritonkit.optimize.variants.form import Form
from tritonkit.spec.document import nearest

__all__ = ["AUTO", "FORMS", "PLAIN", "Form", "parse", "variant_names"]

AUTO = "auto"
"""`serving.variant: auto` takes the fastest variant that passes the gate."""
PLAIN = "onnx-fp32"
"""The form that all others are made from and compared with."""

FORMS: dict[str, Form] = {
    **onnx_fp32.FORMS,
    **onnx_fuse.FORMS,
    **onnx_fp16.FORMS,
    **onnx_bf16.FORMS,
    **onnx_int8.FORMS,
    **onnx_int8_qat.FORMS,
    **openvino_ir.FORMS,
    **torch_export.FORMS,
    **tensorrt_plan.FORMS,
    **tflite.FORMS,
}


def variant_names() -> tuple[str, ...]:
    """Every form and every transform, in the order of the tables."""
    return (*FORMS, *TRANSFORMS)


def parse(variant: str, where: str) -> tuple[Transform | None, Form]:
    """The parts of a variant's name; SpecError for one that is not known."""
    first, plus, second = variant.partition("+")
    if first in TRANSFORMS and (not plus or second in FORMS):
        return TRANSFORMS[first], FORMS[second or PLAIN]
    if first in FORMS and not plus:
        return None, FORMS[first]
    unknown = second if plus and first in TRANSFORMS else first if not plus else variant
    raise SpecError(
        where,
        found=f"unknown variant {variant!r}",
        wanted=nearest(unknown, list(variant_names()))
        if not plus
        else "a transform, a +, and a form, such as distilled+onnx-int8-static",
    )
