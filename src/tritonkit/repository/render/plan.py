"""Plan each Triton model of a `Spec` and its `Artifact`, with every default resolved."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tritonkit.client.wire.signature import IDEMPOTENT, INDEPENDENT_ITEMS
from tritonkit.errors import RenderError
from tritonkit.machine import parts_of
from tritonkit.repository.export.artifact import Artifact, Independence
from tritonkit.repository.modelspec import Spec, read_example
from tritonkit.repository.optimize.variants import LLM_FORMS, runs_on_cpu
from tritonkit.repository.render.batching import (
    independence_parameter,
    pad_parameter,
    plan_dynamic_batching,
    plan_lengths,
    plan_max_batch_size,
    plan_padding,
    warm_batches,
)
from tritonkit.repository.render.callers import hold_to_callers, hold_to_order
from tritonkit.repository.render.engines import engine_of
from tritonkit.repository.render.fields import (
    check_fields,
    further,
    in_flight_note,
    in_flight_parameter,
    newer_note,
    with_fields,
)
from tritonkit.repository.render.gpu_network import read_network
from tritonkit.repository.render.gpu_runs import plan_runs
from tritonkit.repository.render.gpu_target import check_backend
from tritonkit.repository.render.members import batch_of_members, ensemble_batch, hold_to_members
from tritonkit.repository.render.notes import part_notes
from tritonkit.repository.render.operators import libraries_note, with_libraries
from tritonkit.repository.render.own_python import Verdicts, batch_size, is_own_part, own_python_note
from tritonkit.repository.render.parts import STEP, Part, Port, labels_of, read_parts
from tritonkit.repository.render.resources import Host, plan_instances, plan_threads
from tritonkit.repository.render.taken import plan_taken
from tritonkit.repository.render.values import ModelPlan, Target, TensorPlan
from tritonkit.repository.render.warmup import Warmup, automatic, from_sample, listed, prompted
from tritonkit.repository.render.windows import connect_windows, document_models, hold_to_windows
from tritonkit.repository.render.wiring import Wiring

__all__ = ["plan_models"]

_NO_VERDICTS: Verdicts = {}
_NO_MEMBERS: Mapping[str, ModelPlan] = {}

_WARMUP = "tritonkit.warmup"


def plan_models(
    spec: Spec,
    artifact: Artifact,
    target: Target,
    cores: int,
    verdicts: Verdicts = _NO_VERDICTS,
    members: Mapping[str, ModelPlan] = _NO_MEMBERS,
) -> tuple[ModelPlan, ...]:
    """One plan per Triton model: the pipeline's own parts in order, then the ensemble.

    A spec without steps gives one model of the spec's own name. The function reads only the spec's example and warm-up
    files.

    Args:
        verdicts: results of trying a user's own Python in batches.
        members: the models that callers of other specs in the pipeline see, by the names of these specs.

    Raises:
        RenderError: Triton would refuse the model, or silently do something else.
        SpecError: a file does not exist.
    """
    with spec.places_in_errors():
        return _plan(spec, artifact, target, cores, verdicts, members)


def _plan(
    spec: Spec, artifact: Artifact, target: Target, cores: int, verdicts: Verdicts, members: Mapping[str, ModelPlan]
) -> tuple[ModelPlan, ...]:
    if engine_of(artifact) and target == "cpu":
        raise RenderError(
            f"{spec.file} serving.variant",
            found=f"{artifact.variant}, with target cpu",
            wanted=f"one of {', '.join(LLM_FORMS)}: it runs on GPUs",
            todo="say serving.generation.gpu.name, and build with --target nvidia",
        )
    if spec.model.network.folder:
        return (plan_taken(spec, target),)
    parts = read_parts(spec, artifact, members)
    hold_to_members(spec, parts)
    hold_to_order(spec, parts)
    whole = document_models(spec, parts)
    wiring = connect_windows(spec, parts, whole)
    notes = hold_to_callers(spec, parts, wiring)
    common = _Common(spec, artifact, wiring, _examples(spec, wiring.inputs), target, cores, members, whole)
    every = tuple(part.member or _plan_part(part, common, verdicts.get(part.model)) for part in parts)
    if whole:
        hold_to_windows(spec, parts, whole, every)
    notes = (*notes, *filter(None, (newer_note(spec), in_flight_note(spec))))
    own = tuple(f"{spec.name}: {note}" for note in notes)
    models = tuple(model for part, model in zip(parts, every, strict=True) if not part.member)
    *parts_before, called = (*models, _ensemble(common, every)) if spec.steps else models
    return (*parts_before, replace(called, notes=(*called.notes, *own)))


@dataclass(frozen=True)
class _Common:
    """Values that the parts of one spec share."""

    spec: Spec
    artifact: Artifact
    wiring: Wiring
    examples: dict[str, bytes]
    target: Target
    cores: int
    members: Mapping[str, ModelPlan] = field(default_factory=dict)
    """The models of other specs in the pipeline, by the names of these specs."""
    document_models: frozenset[str] = frozenset()
    """Models whose request is one document in windows."""


def _plan_part(part: Part, common: _Common, verdict: Independence | None) -> ModelPlan:
    spec, artifact, target = common.spec, common.artifact, common.target
    serving, where = part.serving, f"{spec.file} {part.section}"
    host = _host(part, common)
    max_batch_size = batch_size(part, _largest_batch(part, common), verdict, where)
    single = artifact.signature.single and not part.is_step
    groups = plan_instances(serving, host)
    dynamic_batching = plan_dynamic_batching(part, max_batch_size, where)
    lengths = plan_lengths(part, spec, max_batch_size, target)
    runs = plan_runs(spec, serving, groups, host, artifact, max_batch_size)
    warmup = _warmup(part, common, runs.sizes or warm_batches(part, max_batch_size, dynamic_batching))
    others = _serving_parameters(part, common, max_batch_size, verdict) | pad_parameter(lengths, part, spec, target)
    ragged = lengths or (part.over if max_batch_size else ())
    inputs = _tensors(part.inputs, max_batch_size, ragged, single=single)
    outputs = _tensors(part.outputs, max_batch_size, single=single)
    notes = (warmup.note, *part_notes(part, spec, artifact, target, max_batch_size), *runs.notes)
    plan = ModelPlan(
        name=part.model,
        backend=part.backend,
        max_batch_size=max_batch_size,
        inputs=with_fields(inputs, serving.input, f"{where}.input"),
        outputs=with_fields(outputs, serving.output, f"{where}.output"),
        instances=groups,
        version_policy=serving.version_policy,
        dynamic_batching=dynamic_batching,
        sequence_batching=serving.sequence_batching,
        optimization=runs.optimization,
        decoupled=serving.decoupled or part.backend == "llm" or part.engine is not None,
        # Behind an ensemble, the ensemble's answers are cached: a hit saves the steps too.
        response_cache=serving.response_cache and (part.is_step or not spec.steps),
        warmup=warmup.samples,
        parameters=_parameters(part, others | plan_threads(serving, groups, host), where),
        version_files=part.version_files,
        version_texts=part.version_texts,
        model_files=part.model_files,
        warmup_files=warmup.files,
        **further(serving, where, spec),
    )
    check_fields(plan, target)
    if not part.is_step:
        plan = with_libraries(plan, spec, target)
        notes = (*notes, libraries_note(plan, spec, target))
    notes = (*notes, own_python_note(part, plan, verdict))
    return replace(
        plan,
        notes=tuple(f"{part.model}: {note}" for note in notes if note),
        fewer_cores=_on_fewer_cores(plan, part, host, others),
    )


def _host(part: Part, common: _Common) -> Host:
    """The machine for a part; RenderError if its server does not have the part's backend."""
    where, target = f"{common.spec.file} {part.section}", common.target
    check_backend(part.backend, target, f"{where}.variant")
    ours = target == "gpu" and part.engine_backend in ("onnxruntime", "pytorch") and part.torch_kinds != ("cpu",)
    return Host(
        where,
        part.engine_backend,
        target,
        common.cores,
        on_cpu=part.is_step,
        engine=part.engine,
        network=read_network(common.spec, common.artifact) if ours else None,
        kinds=part.torch_kinds or (() if part.is_step or runs_on_cpu(common.artifact.form) else ("gpu",)),
    )


def _largest_batch(part: Part, common: _Common) -> int:
    """The network's largest batch, that of a pipeline's other networks, or that which a step's own section gives."""
    if part.model in common.document_models:
        return 0
    own = part.serving.max_batch_size if part.is_step else None
    if own is None and not common.spec.model.has_network:
        return batch_of_members(common.spec, common.members)
    return plan_max_batch_size(common.spec, common.artifact) if own is None else own


def _serving_parameters(
    part: Part, common: _Common, max_batch_size: int, verdict: Independence | None
) -> dict[str, str]:
    """Parameters that do not depend on the cores."""
    tried = verdict or part.independence or (None if part.is_step else common.artifact.independence)
    # An item of a sequence depends on those before it.
    shipped = STEP in part.parameters and part.serving.sequence_batching is None
    declared = part.serving.independent_items
    return (
        _warmup_parameter(part)
        | plan_padding(part, max_batch_size)
        | independence_parameter(tried, max_batch_size, shipped=shipped, declared=declared)
        | _idempotence(common.spec.model.serving.idempotent or part.serving.idempotent)
    )


def _on_fewer_cores(plan: ModelPlan, part: Part, host: Host, others: dict[str, str]) -> dict[int, ModelPlan]:
    """The model's plans on fewer cores, by the number of cores, where they differ. Values of the spec stay; defaults
    are chosen for those cores."""
    plans = {}
    for cores in parts_of(host.cores):
        own = replace(host, cores=cores, part=True)
        groups = plan_instances(part.serving, own)
        parameters = others | plan_threads(part.serving, groups, own)
        there = replace(plan, instances=groups, parameters=_parameters(part, parameters, host.field))
        if there != plan:
            plans[cores] = there
    return plans


def _warmup_parameter(part: Part) -> dict[str, str]:
    """The parameter by which `off` also turns off the first request that `serve` sends."""
    return {_WARMUP: "off"} if part.serving.model_warmup == "off" else {}


def _tensors(
    ports: Sequence[Port], max_batch_size: int, ragged: Collection[str] = (), *, single: bool = False
) -> tuple[TensorPlan, ...]:
    """The tensors as Triton takes them. A scalar without a batch axis is served as [1], because Triton has no rank 0
    and without batches allows no `reshape` to it."""
    return tuple(
        TensorPlan(
            port.info.name,
            port.info.dtype,
            port.info.shape if max_batch_size or single else port.info.shape or (1,),
            port.info.name in ragged,
            port.info.optional,
            single=single,
        )
        for port in ports
    )


def _idempotence(idempotent: bool) -> dict[str, str]:
    return {IDEMPOTENT: "true"} if idempotent else {}


def _independence(models: Sequence[ModelPlan]) -> dict[str, str]:
    """Independence of an ensemble's items, which holds if it holds for all parts."""
    states = {model.parameters.get(INDEPENDENT_ITEMS) for model in models}
    if None in states:
        return {}
    return {INDEPENDENT_ITEMS: "declared" if "declared" in states else "proven"}


def _parameters(part: Part, serving: dict[str, str], where: str) -> dict[str, str]:
    if twice := sorted(set(part.parameters) & set(serving)):
        raise RenderError(
            f"{where}.parameters.{twice[0]}",
            found="it is also a parameter of the step",
            wanted="one value",
            todo="keep the one under the step's parameters",
        )
    return {**part.parameters, **serving}


def _examples(spec: Spec, inputs: Sequence[TensorPlan]) -> dict[str, bytes]:
    """The content of each example by input name; an example that fits no input is refused."""
    texts = [tensor.name for tensor in inputs if tensor.dtype == "BYTES"]
    contents: dict[str, bytes] = {}
    for name in spec.model.example:
        if name not in texts:
            raise RenderError(
                f"{spec.file} example.{name}",
                found="no BYTES input of that name is sent by a client",
                wanted=f"one of {', '.join(texts)}" if texts else "no example",
            )
        contents[name] = read_example(spec, name)
    return contents


def _warmup(part: Part, common: _Common, batch_sizes: Sequence[int]) -> Warmup:
    spec, examples = common.spec, common.examples
    setting, sequences = part.serving.model_warmup, part.serving.sequence_batching
    controls = sequences.control_input if sequences else {}
    # An engine runs made-up requests of its own before it is ready.
    # The model that a map calls is warmed up by itself.
    if setting == "off" or ((part.engine or part.over) and isinstance(setting, str)):
        return Warmup()
    if part.backend == "llm":
        return prompted(examples.get("text", b"."))
    if not isinstance(setting, str):
        inputs = [port.info for port in part.inputs]
        return listed(setting, inputs, controls, spec, f"{part.section}.model_warmup")
    if sequences is not None and sequences.state:
        return Warmup(note="no warm-up: Triton runs warm-up requests without the states of a sequence")
    own = {own: examples[name] for own, name in common.wiring.client_inputs[part.key].items() if name in examples}
    inputs = list(common.wiring.part_inputs[part.key].values())
    if _lacks_warmup_settings(part) and not all(info.optional or info.name in own for info in inputs):
        return Warmup(note="no warm-up: Python of your own gets no made-up requests, unless it has model_warmup: auto")
    start = None if part.is_step else common.artifact.start
    if start is not None and start.given:
        return from_sample(inputs, batch_sizes, start.given, controls)
    if start is not None and start.refuses_zeros:
        return Warmup(
            note="no warm-up: the network refuses zeros, and the samples of the build are too large; list"
            " serving.model_warmup"
        )
    return automatic(inputs, batch_sizes, spec.model.network.free_axes, own, controls)


def _lacks_warmup_settings(part: Part) -> bool:
    """Whether a part is a user's own Python without warm-up settings in the spec, so that nobody knows which made-up
    requests it accepts."""
    return is_own_part(part) and "model_warmup" not in part.serving.model_fields_set


def _ensemble(common: _Common, models: Sequence[ModelPlan]) -> ModelPlan:
    """The model that clients call, with batches that every part can take; with windows, without a batch axis."""
    spec, wiring = common.spec, common.wiring
    sizes = {model.name: model.max_batch_size for model in models}
    section, where = spec.model.ensemble, f"{spec.file} ensemble"
    plan = ModelPlan(
        name=spec.name,
        backend=None,
        max_batch_size=ensemble_batch(spec, sizes, whole=bool(common.document_models)),
        inputs=with_fields(wiring.inputs, section.input, f"{where}.input"),
        outputs=with_fields(wiring.outputs, section.output, f"{where}.output"),
        model_files=labels_of(section, spec, "ensemble"),
        response_cache=spec.model.serving.response_cache,
        parameters=_idempotence(spec.model.serving.idempotent) | _independence(models) | in_flight_parameter(spec),
        steps=wiring.steps,
        **further(section, where, spec),
    )
    check_fields(plan, "cpu")
    return plan
