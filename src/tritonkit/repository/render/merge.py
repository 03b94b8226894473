"""`serving.config`: the spec's own text, which is merged into a configuration last, and its contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tritonkit.client.wire.protos import schema
from tritonkit.errors import RenderError
from tritonkit.releases import EMBEDDED, Release, release_text
from tritonkit.repository.render.layout import is_map, is_repeated
from tritonkit.repository.render.values import ModelPlan

__all__ = ["FIRST_RELEASES", "check_release", "merge_config"]

FIRST_RELEASES: dict[str, Release] = {
    "ModelEnsembling.Step.model_namespace": (23, 3),
    "ModelSequenceBatching.StrategyOldest.preserve_ordering": (23, 8),
    "ModelSequenceBatching.iterative_sequence": (23, 11),
    "ModelSequenceBatching.State.use_growable_memory": (23, 11),
    "ModelSequenceBatching.State.use_same_buffer_for_input_output": (23, 11),
    "ModelConfig.runtime": (24, 1),
    "ModelInput.is_non_linear_format_io": (24, 8),
    "ModelOutput.is_non_linear_format_io": (24, 8),
    "ModelConfig.model_metrics": (24, 11),
    "ModelEnsembling.max_inflight_requests": (25, 11),
}
"""Fields that came after 23.01, by the branches of triton-inference-server/common. Those inside a message that is new
itself are not listed."""

_INSTEAD = {"max_inflight_requests": "say `ensemble: {max_inflight_requests: N}`, which tritonkit's guard holds, or "}
"""Keys of the spec that work where a release lacks the field."""

_BY_NAME = ("input", "output")
# Other parts of the build depend on these, and in some of them an empty value is a value.
_DECIDED = ("name", "backend", "platform", "max_batch_size", "version_policy", "model_transaction_policy")
_SCHEDULING = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")


def merge_config(plan: ModelPlan, message: Any) -> None:
    """Merge the plan's `config` into its message.

    Single values are added, lists are extended, and inputs and outputs are found by name. A RenderError names the line
    of a field that the schema does not have, and a field that contradicts the plan.
    """
    if not plan.config.strip():
        return
    more = _parse(plan)
    scheduling = message.WhichOneof("scheduling_choice")
    for field in _SCHEDULING:
        if more.HasField(field) and scheduling != field:
            raise _contradiction(plan, field, f"{scheduling or 'no batching'}, by the spec")
    for name in _DECIDED:
        value, planned = getattr(more, name), getattr(message, name)
        if name in {field.name for field, _ in more.ListFields()} and value != planned:
            raise _contradiction(plan, name, f"{_brief(planned) or 'none'}, by the spec", _brief(value))
    if more.ensemble_scheduling.step:
        raise _contradiction(plan, "ensemble_scheduling.step", "the steps of the pipeline")
    _check_files(plan, more)
    for field in _BY_NAME:
        _merge_tensors(plan, field, getattr(message, field), getattr(more, field))
        more.ClearField(field)
    for path, value, planned in _conflicts(more, message, ""):
        raise _contradiction(plan, path, f"{planned}, by the spec", value)
    message.MergeFrom(more)


def _parse(plan: ModelPlan) -> Any:
    from google.protobuf import text_format

    try:
        return text_format.Parse(plan.config, schema().ModelConfig())
    except text_format.ParseError as error:
        line = error.GetLine()
        raise RenderError(
            f"{plan.section}.config" + (f", line {line} of the text" if line else ""),
            found=str(error).partition(" : ")[2] or str(error),
            wanted="fields of Triton's ModelConfig in protobuf's text format",
            todo="see https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto; a field"
            " newer than the installed tritonclient needs a newer one",
        ) from error


def _merge_tensors(plan: ModelPlan, field: str, tensors: Any, more: Any) -> None:
    by_name = {tensor.name: tensor for tensor in tensors}
    for tensor in more:
        if tensor.name not in by_name:
            names = ", ".join(by_name)
            raise _contradiction(plan, f"{field} {tensor.name!r}", f"{field}s named {names}")
        own = by_name[tensor.name]
        where, dims = f"{field} {tensor.name!r}", list(tensor.dims)
        if dims and dims != list(own.dims):
            planned = f"{list(own.dims)}, as the network has it"
            raise _contradiction(plan, f"{where} dims", planned, dims)
        tensor.ClearField("dims")
        for path, value, kept in _conflicts(tensor, own, where):
            raise _contradiction(plan, path, f"{kept}, as the network has it", value)
        own.MergeFrom(tensor)


def _conflicts(more: Any, message: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Values that both messages have and that differ; for maps, by key."""
    for field, value in more.ListFields():
        here = f"{path} {field.name}" if path and " " in path else f"{path}.{field.name}".strip(".")
        planned = getattr(message, field.name)
        choice = field.containing_oneof
        chosen = message.WhichOneof(choice.name) if choice is not None else None
        if chosen not in (None, field.name):
            yield here, _brief(value), chosen
        elif is_map(field):
            for key in value:
                if key in planned and planned[key] != value[key]:
                    yield f"{here}[{key!r}]", _brief(value[key]), _brief(planned[key])
        elif is_repeated(field):
            continue
        elif field.message_type is not None:
            yield from _conflicts(value, planned, here)
        elif field.name in {present.name for present, _ in message.ListFields()} and planned != value:
            yield here, _shown(field, value), _shown(field, planned)


def _shown(field: Any, value: Any) -> Any:
    return field.enum_type.values_by_number[value].name if field.enum_type else value


def _brief(value: Any) -> str:
    return " ".join(str(value).split())


def _check_files(plan: ModelPlan, more: Any) -> None:
    """Check that files named in the text are published with the model; Triton would not find others."""
    named: list[tuple[str, str, Mapping[str, Any]]]
    named = [("default_model_filename", more.default_model_filename, plan.version_files)]
    named += [(f"cc_model_filenames[{k!r}]", f, plan.version_files) for k, f in more.cc_model_filenames.items()]
    named += [(f"output {t.name!r} label_filename", t.label_filename, plan.model_files) for t in more.output]
    for sample in more.model_warmup:
        named += [
            (f"model_warmup {sample.name!r}", value.input_data_file, plan.warmup_files)
            for value in sample.inputs.values()
        ]
    for field, file, published in named:
        if file and file not in published:
            there = ", ".join(sorted(published)) or "nothing"
            raise _contradiction(plan, field, f"a file that is published: {there}", file)


def _contradiction(plan: ModelPlan, field: str, wanted: str, found: object = "") -> RenderError:
    return RenderError(
        f"{plan.section}.config",
        found=f"{field}{f': {found}' if found != '' else ''}",
        wanted=wanted,
        todo="remove it from the text, and use the spec's own key (docs/render.md)",
    )


def check_release(message: Any, plan: ModelPlan) -> None:
    """RenderError for the first field that the release which is to serve the model does not have."""
    for field, release in _newer(message):
        if release > plan.triton:
            raise RenderError(
                plan.section or plan.name,
                found=f"{field}, which Triton has from {release_text(release)} on",
                wanted=f"fields of Triton {release_text(plan.triton)}, which refuses a configuration with any other"
                + (" (the embedded server and tritonkit's images)" if plan.triton == EMBEDDED else ""),
                todo=_INSTEAD.get(field, "")
                + f'leave it out, or say `triton: "{release_text(release)}"` in model.yaml and serve it with that',
            )


def _newer(message: Any) -> Iterator[tuple[str, Release]]:
    name = message.DESCRIPTOR.full_name.partition(".")[2]
    for field, value in message.ListFields():
        if (release := FIRST_RELEASES.get(f"{name}.{field.name}")) is not None:
            yield field.name, release
        several = value.values() if is_map(field) else value if is_repeated(field) else [value]
        for one in several:
            if hasattr(one, "DESCRIPTOR"):
                yield from _newer(one)
