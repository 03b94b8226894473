"""Triton's own `ModelConfig` message: made from a plan without the template, and read from a text."""

from __future__ import annotations

from typing import Any

from tritonkit.datatypes import DATATYPES
from tritonkit.errors import RenderError
from tritonkit.render.values import InstancePlan, ModelPlan, TensorPlan, WarmupPlan
from tritonkit.spec.serving import (
    Accelerator,
    ControlInput,
    Cuda,
    DynamicBatching,
    Optimization,
    QueuePolicy,
    SequenceBatching,
    State,
)
from tritonkit.wire.protos import schema

__all__ = ["expected_message", "parse_text"]


def parse_text(text: str, where: str) -> Any:
    """The `ModelConfig` that a `config.pbtxt` says; RenderError for what the schema does not know."""
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


def expected_message(plan: ModelPlan) -> Any:
    """The `ModelConfig` that a plan asks for, field by field."""
    config = schema().ModelConfig(name=plan.name, max_batch_size=plan.max_batch_size)
    if plan.backend is None:
        config.platform = "ensemble"
    else:
        config.backend = plan.backend
    for tensors, field in ((plan.inputs, config.input), (plan.outputs, config.output)):
        for tensor in tensors:
            _tensor(field.add(), tensor, reshapes=plan.backend is not None)
    _version_policy(config.version_policy, plan)
    for group in plan.instances:
        _instances(config.instance_group.add(), group)
    if plan.dynamic_batching is not None:
        _dynamic_batching(config.dynamic_batching, plan.dynamic_batching)
    if plan.sequence_batching is not None:
        _sequence_batching(config.sequence_batching, plan.sequence_batching)
    for step in plan.steps:
        made = config.ensemble_scheduling.step.add(model_name=step.model, model_version=-1)
        made.input_map.update(step.input_map)
        made.output_map.update(step.output_map)
    _optimization(config.optimization, plan.optimization)
    if plan.optimization == Optimization():
        config.ClearField("optimization")
    for sample in plan.warmup:
        _warmup(config.model_warmup.add(), sample)
    if plan.response_cache:
        config.response_cache.enable = True
    if plan.decoupled:
        config.model_transaction_policy.decoupled = True
    for key, value in plan.parameters.items():
        config.parameters[key].string_value = value
    return config


def _tensor(message: Any, tensor: TensorPlan, reshapes: bool) -> None:
    message.name = tensor.name
    message.data_type = DATATYPES[tensor.dtype].config
    message.dims.extend(tensor.client_dims)
    if reshapes and not tensor.dims:
        message.reshape.SetInParent()


def _version_policy(message: Any, plan: ModelPlan) -> None:
    policy = plan.version_policy
    if policy.latest is not None:
        message.latest.num_versions = policy.latest
    elif policy.specific:
        message.specific.versions.extend(policy.specific)
    else:
        message.all.SetInParent()


def _instances(message: Any, group: InstancePlan) -> None:
    message.kind = message.Kind.Value(f"KIND_{group.kind.upper()}")
    message.count = group.count
    message.gpus.extend(group.gpus)
    message.profile.extend(group.profile)
    message.passive = group.passive
    message.host_policy = group.host_policy or ""
    if group.rate_limiter is not None:
        message.rate_limiter.priority = group.rate_limiter.priority
        message.rate_limiter.SetInParent()
        for resource in group.rate_limiter.resources:
            made = message.rate_limiter.resources.add(name=resource.name, count=resource.count)
            setattr(made, "global", resource.global_)


def _queue_policy(message: Any, policy: QueuePolicy) -> None:
    message.SetInParent()
    message.timeout_action = message.TimeoutAction.Value(policy.timeout_action.upper())
    message.default_timeout_microseconds = policy.default_timeout
    message.allow_timeout_override = policy.allow_timeout_override
    message.max_queue_size = policy.max_queue_size


def _dynamic_batching(message: Any, asked: DynamicBatching) -> None:
    message.SetInParent()
    message.preferred_batch_size.extend(asked.preferred_batch_size)
    message.max_queue_delay_microseconds = asked.max_queue_delay
    message.preserve_ordering = asked.preserve_ordering
    message.priority_levels = asked.priority_levels
    message.default_priority_level = asked.default_priority_level
    if asked.default_queue_policy is not None:
        _queue_policy(message.default_queue_policy, asked.default_queue_policy)
    for level, policy in asked.priority_queue_policy.items():
        _queue_policy(message.priority_queue_policy[level], policy)


def _sequence_batching(message: Any, asked: SequenceBatching) -> None:
    message.max_sequence_idle_microseconds = asked.max_sequence_idle
    message.iterative_sequence = asked.iterative_sequence
    if asked.oldest is not None:
        message.oldest.max_candidate_sequences = asked.oldest.max_candidate_sequences
        message.oldest.preferred_batch_size.extend(asked.oldest.preferred_batch_size)
        message.oldest.max_queue_delay_microseconds = asked.oldest.max_queue_delay
        message.oldest.preserve_ordering = asked.oldest.preserve_ordering
    else:
        # Triton takes sequences without a strategy as direct ones; the text says so.
        message.direct.SetInParent()
    if asked.direct is not None:
        message.direct.max_queue_delay_microseconds = asked.direct.max_queue_delay
        message.direct.minimum_slot_utilization = asked.direct.minimum_slot_utilization
    for name, control in asked.control_input.items():
        _control(message.control_input.add(name=name).control.add(), control)
    for state in asked.state:
        _state(message.state.add(), state)


def _control(message: Any, control: ControlInput) -> None:
    message.kind = message.Kind.Value(f"CONTROL_SEQUENCE_{control.kind.upper()}")
    no, yes = control.false_true
    if control.kind == "corrid":
        message.data_type = DATATYPES[control.dtype].config
    elif control.dtype == "INT32":
        message.int32_false_true.extend([int(no), int(yes)])
    elif control.dtype == "BOOL":
        message.bool_false_true.extend([bool(no), bool(yes)])
    else:
        message.fp32_false_true.extend([no, yes])


def _state(message: Any, state: State) -> None:
    message.input_name, message.output_name = state.input, state.output
    message.data_type = DATATYPES[state.dtype].config
    message.dims.extend(state.shape)
    message.use_same_buffer_for_input_output = state.use_same_buffer_for_input_output
    if state.use_growable_memory:
        message.use_growable_memory = True
    if state.initial is None:
        return
    first = message.initial_state.add(name=state.input, data_type=DATATYPES[state.dtype].config)
    first.dims.extend(state.shape)
    if state.initial == "zero":
        first.zero_data = True
    else:
        first.data_file = state.initial.rsplit("/", 1)[-1]


def _optimization(message: Any, asked: Optimization) -> None:
    message.SetInParent()
    if asked.graph_level is not None:
        message.graph.SetInParent()
        message.graph.level = asked.graph_level
    message.priority = message.ModelPriority.Value(f"PRIORITY_{asked.priority.upper()}")
    if asked.cuda is not None:
        _cuda(message.cuda, asked.cuda)
    for given, name in (
        (asked.gpu_execution_accelerator, "gpu_execution_accelerator"),
        (asked.cpu_execution_accelerator, "cpu_execution_accelerator"),
    ):
        for accelerator in given:
            _accelerator(getattr(message.execution_accelerators, name).add(), accelerator)
    for enable, name in (
        (asked.input_pinned_memory, "input_pinned_memory"),
        (asked.output_pinned_memory, "output_pinned_memory"),
    ):
        if enable is not None:
            getattr(message, name).SetInParent()
            getattr(message, name).enable = enable
    message.gather_kernel_buffer_threshold = asked.gather_kernel_buffer_threshold
    message.eager_batching = asked.eager_batching


def _accelerator(message: Any, accelerator: Accelerator) -> None:
    message.name = accelerator.name
    message.parameters.update(accelerator.parameters)


def _cuda(message: Any, asked: Cuda) -> None:
    message.SetInParent()
    message.graphs = asked.graphs
    message.busy_wait_events = asked.busy_wait_events
    message.output_copy_stream = asked.output_copy_stream
    for graph in asked.graph_spec:
        made = message.graph_spec.add(batch_size=graph.batch_size)
        for name, shape in graph.input.items():
            made.input[name].dim.extend(shape.dim)
        if graph.graph_lower_bound is not None:
            made.graph_lower_bound.SetInParent()
            made.graph_lower_bound.batch_size = graph.graph_lower_bound.batch_size
            for name, shape in graph.graph_lower_bound.input.items():
                made.graph_lower_bound.input[name].dim.extend(shape.dim)


def _warmup(message: Any, sample: WarmupPlan) -> None:
    message.name, message.batch_size, message.count = sample.name, sample.batch_size, sample.count
    for name, data in sample.inputs.items():
        made = message.inputs[name]
        made.data_type = DATATYPES[data.dtype].config
        made.dims.extend(data.dims)
        if data.file is not None:
            made.input_data_file = data.file
        elif data.source == "random":
            made.random_data = True
        else:
            made.zero_data = True
