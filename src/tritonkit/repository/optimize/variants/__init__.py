"""Two tables: the optimized forms in which a network can be built, and the changes of the network itself.

A variant's name is a form (`onnx-int8-static`), a transform in the form `onnx-fp32` (`pruned`), or both
(`distilled+onnx-int8-static`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tritonkit.errors import SpecError
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.base import Target
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.modelspec.engines import ENGINES
from tritonkit.repository.optimize.container import Container
from tritonkit.repository.optimize.files.detect import kind_of, write_file
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.llm.convert import WEIGHTS
from tritonkit.repository.optimize.transforms import distilled, pruned
from tritonkit.repository.optimize.variants import (
    fil,
    llm_checkpoint,
    llm_engine,
    onnx_bf16,
    onnx_bf16_products,
    onnx_fp16,
    onnx_fp32,
    onnx_fuse,
    onnx_int8,
    onnx_int8_qat,
    onnx_modelopt,
    onnx_tf32,
    openvino_ir,
    tensorrt_container,
    tensorrt_library,
    tensorrt_plan,
    tflite,
    torch_compile,
    torch_export,
)

__all__ = [
    "AS_IS",
    "AUTO",
    "ENGINE_FORMS",
    "FORMS",
    "LLM_FORMS",
    "LLM_PLAIN",
    "PLAIN",
    "PLAINS",
    "PYTHON",
    "TARGETS",
    "TRANSFORMS",
    "Form",
    "Transform",
    "Variant",
    "for_target",
    "in_container",
    "parse",
    "runs_on_cpu",
    "servable",
    "served_name",
    "variant_names",
    "variant_of",
]

AUTO = "auto"
"""Value of `serving.variant` that takes the fastest variant that passes the gate."""
PLAIN = "onnx-fp32"
"""The form that all others are made from and compared with."""
TARGETS: tuple[Target, ...] = ("cpu", "gpu", "nvidia")
"""The targets of a build: a server on CPUs, tritonkit's own server on a GPU, NVIDIA's image."""
PYTHON = "python"
"""The only variant of a spec with `network.python`: its model.py."""
AS_IS = "as-is"
"""The only variant of a spec with `network.file` or `network.folder`."""


@dataclass(frozen=True)
class Form:
    """A form: the function that makes it, and the engine that runs it."""

    make: Callable[[Job, Path], tuple[str, ...]]
    """Function that writes the files into an empty folder and returns notes for people."""
    engine: str | None
    """The key of `RUNTIMES` that measures and serves it; None if nothing of this build can."""
    extra: str = "build"
    """The pip extra with the packages that both need."""
    lossless: bool = False
    """Whether it is held to `quality.tolerance` in addition to the metric."""
    narrows: bool = False
    """Whether it rounds FP32 numbers to a smaller format, so that the network must have FP32 numbers."""
    by_cpu: bool = False
    """Whether it depends on the kind of CPU it is made on."""
    by_gpu: bool = False
    """Whether it depends on the kind of GPU it is made on, which then runs it."""
    targets: tuple[str, ...] = TARGETS
    """The targets of a build that can serve it."""
    on_cpu: bool = True
    """Whether a CPU can run it; if not, it is neither tried nor served on one."""
    image: str = ""
    """The image in whose container it is made; empty if it is made here."""

    @property
    def runs_on_cuda(self) -> bool:
        """Whether it is an ONNX file, which target gpu serves by ONNX Runtime's CUDA provider."""
        return self.engine == "onnxruntime" or (self.targets == ("gpu",) and self.engine is None)

    @property
    def takes_operators(self) -> bool:
        """Whether it may have a spec's own operators: ONNX Runtime makes and runs it, and no other engine reads it."""
        return self.runs_on_cuda and self.extra == "build"

    @property
    def runtime(self) -> str | None:
        """The engine, if this machine has it: for a TensorRT plan this may ask a GPU's driver."""
        return None if self.engine == _PLANS and not tensorrt_library.serves_here() else self.engine


@dataclass(frozen=True)
class Transform:
    """Another network made from the spec's, from which any form can be made; it is compared with `Job.teacher`."""

    make: Callable[[Job], tuple[Any, tuple[str, ...]]]
    """Function that returns a trained torch.nn.Module in evaluation mode, and notes for people."""
    extra: str = "build"


_PLANS = "tensorrt"
FORMS: dict[str, Form] = {
    "onnx-fp32": Form(onnx_fp32.make, "onnxruntime", lossless=True),
    "onnx-fp32-fused": Form(onnx_fuse.make, "onnxruntime", lossless=True),
    "onnx-tf32": Form(onnx_tf32.make, None, targets=("gpu",)),
    "onnx-fp16": Form(onnx_fp16.make, "onnxruntime", narrows=True),
    "onnx-bf16": Form(onnx_bf16.make, "onnxruntime", narrows=True),
    "onnx-bf16-products": Form(onnx_bf16_products.make, None, narrows=True, targets=("gpu",), on_cpu=False),
    "onnx-int8-dynamic": Form(onnx_int8.make_dynamic, "onnxruntime", narrows=True, by_cpu=True),
    "onnx-int8-static": Form(onnx_int8.make_static, "onnxruntime", narrows=True, by_cpu=True),
    "onnx-int8-qat": Form(onnx_int8_qat.make, "onnxruntime", extra="optimize", narrows=True, by_cpu=True),
    "onnx-int8-qdq": Form(onnx_modelopt.make_int8, "onnxruntime", extra="modelopt", narrows=True, targets=("gpu",)),
    "onnx-fp8": Form(onnx_modelopt.make_fp8, "onnxruntime", extra="modelopt", narrows=True, targets=("gpu",)),
    "openvino-fp32": Form(openvino_ir.make_fp32, "openvino", extra="optimize", lossless=True),
    "openvino-bf16": Form(openvino_ir.make_bf16, "openvino", extra="optimize", narrows=True),
    "openvino-int8": Form(openvino_ir.make_int8, "openvino", extra="optimize", narrows=True),
    "torchscript": Form(torch_export.make_torchscript, "torch", lossless=True),
    "torch-export": Form(torch_export.make_program, "torch", lossless=True),
    "torch-compile": Form(torch_compile.make_compiled, "torch", lossless=True),
    "torch-compile-cuda": Form(torch_compile.make_compiled_cuda, "torch", lossless=True, by_gpu=True, targets=("gpu",)),
    "tensorrt-fp32": Form(tensorrt_plan.make_fp32, _PLANS, extra="tensorrt", targets=("cpu", "nvidia")),
    "tensorrt-fp16": Form(tensorrt_plan.make_fp16, _PLANS, extra="tensorrt", targets=("cpu", "nvidia")),
    "tensorrt-int8": Form(tensorrt_plan.make_int8, _PLANS, extra="tensorrt", narrows=True, targets=("cpu", "nvidia")),
    "tensorrt-fp8": Form(tensorrt_plan.make_fp8, _PLANS, extra="tensorrt", narrows=True, targets=("nvidia",)),
    fil.NAME: Form(fil.make, "treelite", extra="fil", lossless=True, targets=("nvidia",)),
    "tflite": Form(tflite.make_fp32, "litert", extra="tflite", lossless=True),
    "tflite-int8": Form(tflite.make_int8, "litert", extra="tflite", narrows=True),
}
LLM_PLAIN = "llm-fp32"
"""The form in which a language model is served if its spec names none."""
PLAINS = (PLAIN, LLM_PLAIN)
"""Forms that the other variants of a network are compared with: each network has one of them."""
LLM_FORMS: dict[str, Form] = {
    f"llm-{weights}": Form(partial(llm_checkpoint.make, weights=weights), None, extra="llm") for weights in WEIGHTS
}
"""The forms of a spec with `network.llm` on a CPU."""
ENGINE_FORMS: dict[str, Form] = {str(name): Form(llm_engine.make, None, extra="llm") for name in ENGINES}
"""Engines for language models on GPUs, which `for_target` chooses."""
FILE_FORMS: dict[str, Form] = {
    "openvino": Form(write_file, "openvino", extra="optimize"),
    "tensorrt": Form(write_file, _PLANS, extra="tensorrt", targets=("cpu", "nvidia")),
    "torch-export": Form(write_file, "torch"),
    "torchscript": Form(write_file, "torch"),
}
"""Kind of a ready-made file -> its only form, by the engine that serves it."""
TRANSFORMS: dict[str, Transform] = {
    "teacher": Transform(distilled.make_teacher),
    "pruned": Transform(pruned.make, extra="optimize"),
    "distilled": Transform(distilled.make),
}


def variant_names() -> tuple[str, ...]:
    """Every form and every transform, in the order of the tables."""
    return (*FORMS, *TRANSFORMS)


@dataclass(frozen=True)
class Variant:
    """A variant's parsed name; `str` returns the name.

    `form` is None for a model.py, which is served as it is. `transform` makes another network from the spec's, which
    then takes the form; None keeps the network.
    """

    name: str
    form: Form | None = None
    transform: Transform | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def base(self) -> str:
        """The FP32 variant of the same network, with which this one is compared."""
        if self.name in (*LLM_FORMS, *ENGINE_FORMS):
            return LLM_PLAIN
        if self.name == AS_IS:
            return AS_IS
        return self.name.partition("+")[0] if self.transform else PLAIN

    @property
    def is_made_from_onnx(self) -> bool:
        """Whether the variant is made from the FP32 ONNX file."""
        others = (*LLM_FORMS.values(), *ENGINE_FORMS.values(), *FILE_FORMS.values())
        return self.form not in (None, FORMS[PLAIN], *others)

    @property
    def runtime(self) -> str | None:
        """The key of `RUNTIMES` that measures it; None if this machine cannot run it."""
        return self.form.runtime if self.form else None


def served_name(spec: Spec) -> str:
    """The unchecked name of the variant that a spec serves; `variant_of` checks it."""
    network = spec.model.network
    if network.python:
        return PYTHON
    if network.file or network.folder:
        return AS_IS
    served = spec.model.serving.variant
    return LLM_PLAIN if spec.model.network.llm and served == PLAIN else served


def variant_of(spec: Spec, name: str | Variant | None = None) -> Variant:
    """The variant of that name for a spec, by default the served one; a model.py has only one.

    SpecError for an unknown name.
    """
    if isinstance(name, Variant):
        return name
    if spec.model.network.python:
        return Variant(PYTHON)
    if spec.model.network.folder:
        return Variant(AS_IS)
    if spec.model.network.file:
        return Variant(AS_IS, FILE_FORMS[kind_of(spec)])
    where = f"{spec.file} {'variant' if name else 'serving.variant'}"
    find = _parse_language if spec.model.network.llm else parse
    return find(name or served_name(spec), where)


def _parse_language(name: str, where: str) -> Variant:
    forms = LLM_FORMS | ENGINE_FORMS
    if name not in forms:
        raise SpecError(
            where, found=f"unknown variant {name!r} of a language model", wanted=nearest(name, list(LLM_FORMS))
        )
    return Variant(name, forms[name])


def for_target(spec: Spec, target: str) -> Spec:
    """The spec as a target serves it: an engine serves a language model on GPUs, whatever its form on a CPU. The FIL
    backend has names of its own for tensors, so trees that it serves are in a pipeline, which has theirs.

    SpecError if the target cannot serve the variant that the spec names.
    """
    model = spec.model
    if not model.network.llm:
        _hold_to_target(spec, target)
        return _in_pipeline(spec) if _may_be_fil(spec) and not spec.steps else spec
    if target == "cpu":
        return spec
    serving = model.serving.model_copy(update={"variant": model.serving.generation.gpu.name})
    return replace(spec, model=model.model_copy(update={"serving": serving}))


def _may_be_fil(spec: Spec) -> bool:
    served = served_name(spec)
    return fil.NAME in (spec.model.optimize.variants if served == AUTO else (served,))


def _in_pipeline(spec: Spec) -> Spec:
    """The spec with its network as the only part of a pipeline."""
    return replace(spec, model=spec.model.model_copy(update={"pipeline": ("network",)}), steps=(None,))


def runs_on_cpu(form: str) -> bool:
    """Whether a CPU can run an artifact's form; a form of no table can."""
    return form not in FORMS or FORMS[form].on_cpu


def in_container(variant: Variant, container: Container) -> Variant:
    """The variant, made in a container if it is a TensorRT plan; nothing on this machine can run it then."""
    form = variant.form
    if form is None or form.extra != "tensorrt":
        return variant
    precision = variant.name.rpartition("-")[2]
    make = partial(tensorrt_container.make, precision=precision, container=container)
    return replace(variant, form=replace(form, make=make, engine=None, image=container.image))


def servable(name: str, target: str) -> bool:
    """Whether a target can serve a form, or the form that a transform takes by itself."""
    return target in FORMS.get(name, FORMS[PLAIN]).targets


def _hold_to_target(spec: Spec, target: str) -> None:
    name = served_name(spec)
    variant = None if name in (AUTO, PYTHON) else variant_of(spec)
    if name == AS_IS and variant is not None and variant.form is not None and target not in variant.form.targets:
        raise SpecError(
            f"{spec.file} network.file",
            found=f"a file of {kind_of(spec)}, which --target {target} cannot serve",
            wanted=f"--target {' or '.join(variant.form.targets)}",
        )
    if variant is None or variant.form is None or target in variant.form.targets:
        return
    able = [form for form in FORMS if servable(form, target)]
    raise SpecError(
        f"{spec.file} serving.variant",
        found=f"{variant}, which --target {target} cannot serve",
        wanted=f"one of {', '.join(able)}",
        todo=f"choose another variant, or build with --target {variant.form.targets[-1]}",
    )


def parse(name: str, where: str) -> Variant:
    """Parse a variant's name; SpecError for an unknown one."""
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
