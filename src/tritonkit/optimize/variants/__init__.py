"""The optimized forms a network can be built in, in a table: a module for each family.

A variant's name is a form (`onnx-int8-static`), a transform in the form `onnx-fp32` (`pruned`), or both
(`distilled+onnx-int8-static`). A new form is a line in its module's FORMS.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from tritonkit.spec import Spec
from tritonkit.spec.document import nearest

__all__ = [
    "AUTO",
    "FORMS",
    "MODEL_PY",
    "PLAIN",
    "PYTHON",
    "Form",
    "Variant",
    "parse",
    "variant_names",
    "variant_of",
]

AUTO = "auto"
"""`serving.variant: auto` takes the fastest variant that passes the gate."""
PLAIN = "onnx-fp32"
"""The form that all others are made from and compared with."""
PYTHON = "python"
"""The only variant of a spec with `network.python`: its model.py."""

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


@dataclass(frozen=True)
class Variant:
    """A variant's name, taken apart once; `str` of it is the name again.

    `form` is None for a model.py, which is served as it is. `transform` makes another network of the
    spec's, which then takes the form; None leaves the network as it is.
    """

    name: str
    form: Form | None = None
    transform: Transform | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def base(self) -> str:
        """The variant that is the FP32 ONNX file of the same network, from which this one is made."""
        return self.name.partition("+")[0] if self.transform else PLAIN

    @property
    def is_base(self) -> bool:
        """Whether it is that file itself."""
        return self.form is FORMS[PLAIN]

    @property
    def runtime(self) -> str | None:
        """The key of `RUNTIMES` that measures it; None where this machine cannot run it."""
        return self.form.runtime if self.form else None


MODEL_PY = Variant(PYTHON)


def variant_of(spec: Spec, name: str | Variant | None = None) -> Variant:
    """The variant of that name for a spec, by default the served one; a model.py has only one.

    SpecError for a name that is not known.
    """
    if spec.model.network.python:
        return MODEL_PY
    if isinstance(name, Variant):
        return name
    if name is None:
        return parse(spec.model.serving.variant, f"{spec.file} serving.variant")
    return parse(name, f"{spec.file} variant")


def parse(name: str, where: str) -> Variant:
    """Take a variant's name apart; SpecError for one that is not known."""
    first, plus, second = name.partition("+")
    if first in TRANSFORMS and (not plus or second in FORMS):
        return Variant(name, FORMS[second or PLAIN], TRANSFORMS[first])
    if first in FORMS and not plus:
        return Variant(name, FORMS[first])
    unknown = second if plus and first in TRANSFORMS else first if not plus else name
    raise SpecError(
        where,
        found=f"unknown variant {name!r}",
        wanted=nearest(unknown, list(variant_names()))
        if not plus
        else "a transform, a +, and a form, such as distilled+onnx-int8-static",
    )
