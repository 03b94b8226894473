"""Triton's own `ModelConfig` message: made from a plan, or read from a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonkit.client.wire.protos import schema
from tritonkit.datatypes import DATATYPES
from tritonkit.errors import RenderError
from tritonkit.repository.modelspec.base import Strict
from tritonkit.repository.modelspec.fields import BatchInput, BatchOutput, InputFields, ModelMetric, OutputFields
from tritonkit.repository.modelspec.sequences import ControlInput, Direct, SequenceBatching, State
from tritonkit.repository.modelspec.serving import (
    DynamicBatching,
    Instances,
    Optimization,
    QueuePolicy,
    VersionPolicy,
    WarmupInput,
)
from tritonkit.repository.render.merge import check_release, merge_config
from tritonkit.repository.render.values import ModelPlan, TensorPlan

__all__ = ["merged_message", "parse_text"]

Fields = dict[str, Any]
"""A message in protobuf's JSON mapping, where a field that is None is not set."""


def parse_text(text: str, where: str) -> Any:
    """The `ModelConfig` that a `config.pbtxt` holds; RenderError for fields that the schema does not have."""
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, schema().ModelConfig())
    except text_format.ParseError as error:
        raise RenderError(
            where,
            found=f"Triton's schema refuses the text: {error}",
            wanted="a text that ModelConfig of the installed tritonclient can read",
            todo="install a newer tritonclient if the field is new; otherwise report this",
        ) from error


def merged_message(plan: ModelPlan) -> Any:
    """The `ModelConfig` of a plan, with the spec's own text merged into it.

    RenderError for a contradiction, and for a field that the release which is to serve the model does not have.
    """
    from google.protobuf import json_format

    if plan.given:
        message = parse_text(plan.given, plan.section)
        check_release(message, plan)
        return message
    message = json_format.ParseDict(_config(plan), schema().ModelConfig())
    merge_config(plan, message)
    check_release(message, plan)
    return message


def _config(plan: ModelPlan) -> Fields:
    dynamic, sequences = plan.dynamic_batching, plan.sequence_batching
    return {
        "name": plan.name,
        **({"backend": plan.backend} if plan.backend else {"platform": "ensemble"}),
        "max_batch_size": plan.max_batch_size,
        "input": [_tensor(tensor, plan) for tensor in plan.inputs],
        "output": [_tensor(tensor, plan) for tensor in plan.outputs],
        "version_policy": _version_policy(plan.version_policy),
        "instance_group": [_instances(group) for group in plan.instances],
        "dynamic_batching": _dynamic_batching(dynamic) if dynamic else None,
        "sequence_batching": _sequence_batching(sequences) if sequences else None,
        "ensemble_scheduling": {
            "step": [
                {
                    "model_name": step.model,
                    "model_version": -1,
                    "input_map": dict(step.input_map),
                    "output_map": dict(step.output_map),
                }
                for step in plan.steps
            ],
            # Older schemas lack this field, so it is set only where it has a value.
            **_if_set("max_inflight_requests", plan.max_inflight_requests),
        }
        if plan.steps
        else None,
        "optimization": _optimization(plan.optimization),
        "model_warmup": [
            _fields(sample) | {"inputs": {name: _warmup_input(value) for name, value in sample.inputs.items()}}
            for sample in plan.warmup
        ],
        "response_cache": {"enable": True} if plan.response_cache else None,
        "model_transaction_policy": {"decoupled": True} if plan.decoupled else None,
        "parameters": {key: {"string_value": value} for key, value in plan.parameters.items()},
        "batch_input": [_batch_tensor(one) for one in plan.batch_input],
        "batch_output": [_batch_tensor(one) for one in plan.batch_output],
        "default_model_filename": plan.default_model_filename,
        "cc_model_filenames": dict(plan.cc_model_filenames),
        "metric_tags": dict(plan.metric_tags),
        "model_operations": _fields(plan.model_operations) if plan.model_operations.op_library_filename else None,
        "model_repository_agents": {"agents": [_fields(one) for one in plan.model_repository_agents]}
        if plan.model_repository_agents
        else None,
        **_if_set("model_metrics", _metrics(plan.model_metrics)),
    }


def _if_set(name: str, value: Any) -> Fields:
    return {name: value} if value else {}


def _batch_tensor(tensor: BatchInput | BatchOutput) -> Fields:
    fields = _fields(tensor) | {"kind": f"BATCH_{tensor.kind.upper()}"}
    if isinstance(tensor, BatchInput):
        fields["data_type"] = DATATYPES[fields.pop("dtype")].config
    return fields


def _metrics(metrics: Sequence[ModelMetric]) -> Fields:
    controls = [
        {"metric_identifier": {"family": metric.family}, "histogram_options": {"buckets": list(metric.buckets)}}
        for metric in metrics
    ]
    return {"metric_control": controls} if controls else {}


def _tensor_fields(section: InputFields | OutputFields | None) -> Fields:
    """The fields that are set. Inputs and outputs have different ones, and older schemas lack some."""
    if section is None:
        return {}
    fields = _fields(section)
    # `allow_ragged_batch` belongs to the tensor itself: the backend may pad.
    fields.pop("allow_ragged_batch", None)
    if isinstance(section, InputFields):
        fields["format"] = "" if section.format == "none" else f"FORMAT_{section.format.upper()}"
    return {name: value for name, value in fields.items() if value}


def _tensor(tensor: TensorPlan, plan: ModelPlan) -> Fields:
    dims = tensor.network_dims
    return {
        "name": tensor.name,
        "data_type": DATATYPES[tensor.dtype].config,
        "dims": list(tensor.client_dims),
        "reshape": {"shape": list(dims)} if plan.backend and dims is not None else None,
        # Outputs have no such field.
        **({"allow_ragged_batch": True} if tensor.ragged else {}),
        **({"optional": True} if tensor.optional else {}),
        **_tensor_fields(tensor.fields),
    }


def _version_policy(policy: VersionPolicy) -> Fields:
    if policy.latest is not None:
        return {"latest": {"num_versions": policy.latest}}
    if policy.specific:
        return {"specific": {"versions": list(policy.specific)}}
    return {"all": {}}


def _fields(section: Strict) -> Fields:
    """A section of the spec whose keys are Triton's own."""
    return section.model_dump(mode="json", by_alias=True)


def _instances(group: Instances) -> Fields:
    devices = [{"kind": f"KIND_{one.kind.upper()}", "device_id": str(one.device_id)} for one in group.secondary_devices]
    return _fields(group) | {"kind": f"KIND_{str(group.kind).upper()}", "secondary_devices": devices}


def _queue_policy(policy: QueuePolicy) -> Fields:
    return _fields(policy) | {"timeout_action": policy.timeout_action.upper()}


def _dynamic_batching(batching: DynamicBatching) -> Fields:
    default, by_level = batching.default_queue_policy, batching.priority_queue_policy
    return _fields(batching) | {
        "default_queue_policy": _queue_policy(default) if default else None,
        "priority_queue_policy": {str(n): _queue_policy(one) for n, one in by_level.items()},
    }


def _sequence_batching(batching: SequenceBatching) -> Fields:
    strategy = batching.strategy
    direct = isinstance(strategy, Direct)
    return _fields(batching) | {
        "direct": _fields(strategy) if direct else None,
        "oldest": None if direct else _fields(strategy),
        "control_input": [
            {"name": name, "control": [_control(control)]} for name, control in batching.control_input.items()
        ],
        "state": [_state(state) for state in batching.state],
    }


def _control(control: ControlInput) -> Fields:
    kind: Fields = {"kind": f"CONTROL_SEQUENCE_{control.kind.upper()}"}
    if control.kind == "corrid":
        return kind | {"data_type": DATATYPES[control.dtype].config}
    convert = {"INT32": int, "BOOL": bool}.get(control.dtype, float)
    return kind | {f"{control.dtype.lower()}_false_true": [*map(convert, control.false_true)]}


def _state(state: State) -> Fields:
    tensor = {"data_type": DATATYPES[state.dtype].config, "dims": list(state.shape)}
    fields: Fields = {
        "input_name": state.input,
        "output_name": state.output,
        "use_same_buffer_for_input_output": state.use_same_buffer_for_input_output,
        **tensor,
    }
    if state.use_growable_memory:  # older schemas have no such field
        fields["use_growable_memory"] = True
    if state.initial == "zero" or (state.initial is None and -1 not in state.shape):
        fields["initial_state"] = [{"name": state.input, "zero_data": True, **tensor}]
    elif state.initial is not None:
        file = state.initial.rpartition("/")[2]
        fields["initial_state"] = [{"name": state.input, "data_file": file, **tensor}]
    return fields


def _optimization(optimization: Optimization) -> Fields | None:
    if optimization == Optimization():
        return None
    facts = _fields(optimization)
    accelerators = ("gpu_execution_accelerator", "cpu_execution_accelerator")
    on_device = {name: facts[name] for name in accelerators if facts[name]}
    pinned = ("input_pinned_memory", "output_pinned_memory")
    return {
        "graph": None if optimization.graph_level is None else {"level": optimization.graph_level},
        "priority": f"PRIORITY_{optimization.priority.upper()}",
        "cuda": facts["cuda"],
        "execution_accelerators": on_device or None,
        **{name: {"enable": facts[name]} for name in pinned if facts[name] is not None},
        "gather_kernel_buffer_threshold": optimization.gather_kernel_buffer_threshold,
        "eager_batching": optimization.eager_batching,
    }


def _warmup_input(value: WarmupInput) -> Fields:
    tensor: Fields = {"data_type": DATATYPES[value.dtype].config, "dims": list(value.shape)}
    content = {f"{value.data}_data": True} if value.data else {"input_data_file": value.file}
    return tensor | content
