"""Fields that few models need: carried from the spec into the plan, and checked for values that Triton refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tritonkit.errors import RenderError
from tritonkit.releases import EMBEDDED, Release, release_text, to_release
from tritonkit.repository.modelspec import Serving, Spec
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.modelspec.fields import Ensemble, Fields, InputFields, OutputFields
from tritonkit.repository.render.merge import FIRST_RELEASES
from tritonkit.repository.render.values import ModelPlan, Target, TensorPlan

__all__ = ["IN_FLIGHT", "check_fields", "further", "in_flight_note", "in_flight_parameter", "newer_note", "with_fields"]

_SHARED = ("metric_tags", "model_metrics", "model_repository_agents", "config")
IN_FLIGHT = "tritonkit.max_inflight_requests"
"""The parameter that the native guard reads (python_backends/native/guard/models.c)."""
_OF_MODELS = ("batch_input", "batch_output", "default_model_filename", "cc_model_filenames", "model_operations")
_IMAGE_AXES = 3
# The stand-ins and native backends report this when a model is loaded (backend_config.py, config.cpp).
_OURS = ("onnxruntime", "openvino", "pytorch")


def further(serving: Fields, section: str, spec: Spec) -> dict[str, Any]:
    """Fields of `ModelPlan` that come straight from the spec."""
    names = _SHARED + (_OF_MODELS if isinstance(serving, Serving) else ())
    triton = to_release(spec.model.triton)
    fields = {name: getattr(serving, name) for name in names}
    if isinstance(serving, Ensemble) and _has_in_flight(triton):
        fields["max_inflight_requests"] = serving.max_inflight_requests
    return fields | {"section": section, "triton": triton}


def _has_in_flight(triton: Release) -> bool:
    return triton >= FIRST_RELEASES["ModelEnsembling.max_inflight_requests"]


def in_flight_parameter(spec: Spec) -> dict[str, str]:
    """The bound on an ensemble's requests as a parameter, where Triton has no field for it."""
    limit = spec.model.ensemble.max_inflight_requests
    if limit == 0 or _has_in_flight(to_release(spec.model.triton)):
        return {}
    return {IN_FLIGHT: str(limit)}


def in_flight_note(spec: Spec) -> str:
    """A note that names the servers which enforce the bound where Triton has none."""
    if not in_flight_parameter(spec):
        return ""
    bound = spec.model.ensemble.max_inflight_requests
    return (
        f"max_inflight_requests: {bound} is enforced by tritonkit's guard (`tritonkit serve` where the guard is built,"
        " and tritonkit's images); any other server before Triton 25.11, such as NVIDIA's own image, ignores it"
    )


def newer_note(spec: Spec) -> str:
    """A note if a model is built for a newer Triton than the one that `tritonkit serve` starts."""
    if to_release(spec.model.triton) <= EMBEDDED:
        return ""
    return (
        f"built for Triton {spec.model.triton} and later: the embedded server and tritonkit's images are"
        f" {release_text(EMBEDDED)}, and do not load a configuration with fields that came after it"
    )


def with_fields(
    tensors: Sequence[TensorPlan], sections: Mapping[str, InputFields] | Mapping[str, OutputFields], where: str
) -> tuple[TensorPlan, ...]:
    """The tensors with their fields from `where` of the spec; RenderError for a name that none has."""
    names = [tensor.name for tensor in tensors]
    if unknown := [name for name in sections if name not in names]:
        raise RenderError(
            f"{where}.{unknown[0]}", found="a request carries no tensor of that name", wanted=nearest(unknown[0], names)
        )
    return tuple(
        replace(
            tensor,
            fields=sections.get(tensor.name),
            ragged=tensor.ragged or getattr(sections.get(tensor.name), "allow_ragged_batch", False),
        )
        for tensor in tensors
    )


def check_fields(plan: ModelPlan, target: Target) -> None:
    """RenderError, in words of the spec, for a field that makes the server refuse the model."""
    for tensor in (*plan.inputs, *plan.outputs):
        _check_tensor(tensor, plan)
    _check_batch_tensors(plan)
    if target != "nvidia" and plan.backend in _OURS:
        _check_served_here(plan, target)
    files = sorted({*plan.version_files, *plan.version_texts})
    named = {"default_model_filename": plan.default_model_filename}
    named |= {f"cc_model_filenames.{key}": file for key, file in plan.cc_model_filenames.items()}
    for field, file in named.items():
        if file and file not in files:
            raise RenderError(f"{plan.section}.{field}", found=file, wanted=f"one of {', '.join(files)}")


def _check_tensor(tensor: TensorPlan, plan: ModelPlan) -> None:
    fields = tensor.fields
    if fields is None:
        return
    side = "input" if isinstance(fields, InputFields) else "output"
    where = f"{plan.section}.{side}.{tensor.name}"
    image = getattr(fields, "format", "none") != "none"
    if (image or fields.is_non_linear_format_io) and len(tensor.client_dims) != _IMAGE_AXES:
        raise RenderError(
            f"{where}.{'format' if image else 'is_non_linear_format_io'}",
            found=f"the shape {list(tensor.client_dims)}",
            wanted="three axes, without the batch",
        )
    for field in ("is_shape_tensor", "is_non_linear_format_io"):
        if getattr(fields, field) and plan.backend != "tensorrt":
            raise RenderError(
                f"{where}.{field}",
                found=f"the backend {plan.backend or 'of an ensemble'}",
                wanted="tensorrt, the only backend with such tensors",
            )


def _check_batch_tensors(plan: ModelPlan) -> None:
    """Check batch inputs and outputs as Triton's `ValidateBatchIO` does (core, src/model_config_utils.cc)."""
    inputs, outputs = [t.name for t in plan.inputs], [t.name for t in plan.outputs]
    named = [("batch_input", name, inputs) for one in plan.batch_input for name in one.source_input]
    for batch in plan.batch_output:
        named += [("batch_output", name, inputs) for name in batch.source_input]
        named += [("batch_output", name, outputs) for name in batch.target_name]
    for field, name, tensors in named:
        if name not in tensors:
            raise RenderError(f"{plan.section}.{field}", found=name, wanted=f"one of {', '.join(tensors)}")


def _check_served_here(plan: ModelPlan, target: Target) -> None:
    field = "batch_input" if plan.batch_input else "batch_output" if plan.batch_output else ""
    if "tritonkit.pad" not in plan.parameters:
        field = field or next((f"input.{t.name}" for t in plan.inputs if t.ragged), "")
    if field:
        raise RenderError(
            f"{plan.section}.{field}",
            found=f"a batch of different sizes, for the {plan.backend} backend of target {target}",
            wanted="none: only NVIDIA's backend accepts such batches, and this one is tritonkit's own",
            todo="let it pad them (network.free_axes, pad), or build with --target nvidia",
        )
