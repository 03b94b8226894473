"""A spec's pipeline as a row of parts, each with the files and parameters of one Triton model or the model of another
spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tritonkit.client.wire.signature import CALLS
from tritonkit.datatypes import DataType
from tritonkit.errors import RenderError
from tritonkit.repository.environments.environment import environment_files
from tritonkit.repository.export.artifact import Artifact, Independence, TensorInfo
from tritonkit.repository.export.padded import with_axes
from tritonkit.repository.modelspec import (
    PipelineMap,
    PipelineModel,
    PipelineNetwork,
    PipelineStep,
    ResolvedStep,
    Serving,
    Spec,
    resolve_file,
)
from tritonkit.repository.modelspec.engines import EngineName
from tritonkit.repository.modelspec.fields import Fields
from tritonkit.repository.modelspec.sequences import SequenceBatching
from tritonkit.repository.optimize.variants import fil
from tritonkit.repository.optimize.variants.torch_export import PROGRAM
from tritonkit.repository.render.engines import (
    BACKENDS,
    engine_files,
    engine_of,
    engine_parameters,
    engine_tensors,
    engine_texts,
)
from tritonkit.repository.render.fil import fil_parameters, fil_port
from tritonkit.repository.render.language import generation_of
from tritonkit.repository.render.mapped import check_names, map_of
from tritonkit.repository.render.step_code import step_code
from tritonkit.repository.render.step_sequences import with_sequences
from tritonkit.repository.render.values import Kind, ModelPlan, Port
from tritonkit.resources import STEPS, shipped

__all__ = ["CALLS", "STEP", "Part", "Port", "labels_of", "read_parts"]

_BACKENDS = {
    "model.onnx": "onnxruntime",
    "model.xml": "openvino",
    "model.plan": "tensorrt",
    "model.pt": "pytorch",
    "model.py": "python",
    "openvino_model.xml": "llm",
    fil.FILE: "fil",
}
# Parameters of the backend that a variant needs (README of triton-inference-server/openvino_backend).
_PARAMETERS = {"openvino-bf16": {"HINT_BF16": "YES"}, "llm-bf16": {"inference_precision": "bf16"}}
_TORCH_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "torch-compile": ("cpu",),
    "torch-compile-cuda": ("gpu",),
    "torch-export": ("cpu", "gpu"),
}
"""Forms whose model.py runs PyTorch -> the kinds of instances that their file is for."""
_INSTEAD = {"HINT_BF16": "INFERENCE_PRECISION_HINT"}
"""Pairs of parameters: the first is not rendered if the spec has the second."""


_PUBLISHED = ("config.pbtxt", "configs", "initial_state", "manifest.json", "warmup")
"""Names in a published model's folder in addition to its versions."""

STEP = "tritonkit.step"
"""Name of the parameter with the shipped step that a model is."""


@dataclass(frozen=True)
class Part:
    """A step or the network: one Triton model before its defaults are resolved.

    `section` is the part of model.yaml with its serving settings. `inputs` and `outputs` are those that a request
    carries, without the tensors that the sequence batcher adds.
    """

    model: str
    section: str
    backend: str
    serving: Serving
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    is_step: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    version_files: Mapping[str, Path] = field(default_factory=dict)
    model_files: Mapping[str, Path] = field(default_factory=dict)
    version_texts: Mapping[str, bytes] = field(default_factory=dict)
    engine: EngineName | None = None
    """The engine that serves a language model on GPUs; None for all other parts."""
    torch_kinds: tuple[Kind, ...] = ()
    """Kinds of instances of a model.py that the build wrote to run PyTorch; empty for all other parts."""
    windows: bool = False
    """Whether it takes or gives the windows of a document, which is one request."""
    most_windows: int = 0
    """The largest number of windows that it gives."""
    over: tuple[str, ...] = ()
    """Inputs of a map with an axis of items; empty for all other parts."""
    independence: Independence | None = None
    """The verdict on the items of the model that a map calls."""
    member: ModelPlan | None = None
    """The model that callers of another spec see, in this pipeline; None for the spec's own models."""

    @property
    def key(self) -> str:
        """A name that no other part has: a pipeline may have another spec's model several times."""
        return self.section if self.member else self.model

    @property
    def place(self) -> str:
        """Its entry of the pipeline, for errors."""
        return ".".join(self.section.split(".")[:2]) if self.section.startswith("pipeline.") else "pipeline.network"

    @property
    def engine_backend(self) -> str:
        """The backend of the engine that computes: PyTorch's for a model.py that the build wrote."""
        return "pytorch" if self.torch_kinds else self.backend


def read_parts(spec: Spec, artifact: Artifact, members: Mapping[str, ModelPlan]) -> tuple[Part, ...]:
    """The parts in pipeline order; the network alone for a spec without a pipeline.

    Args:
        members: the models of other specs in the pipeline, by the names of these specs.
    """
    if engine := engine_of(artifact):
        return (_engine(spec, artifact, engine),)
    if not spec.steps:
        return (_network(spec, artifact),)
    parts: list[Part] = []
    for index, (step, entry) in enumerate(zip(spec.steps, spec.model.pipeline, strict=True)):
        if step is not None and isinstance(entry, PipelineStep):
            parts.append(_step(step, entry, f"pipeline.{index}.serving", spec))
        elif isinstance(entry, PipelineNetwork | PipelineModel):
            parts.append(_member(entry, members[spec.members[entry.key].name], spec))
        elif isinstance(entry, PipelineMap):
            parts.append(_map(entry, f"pipeline.{index}.serving", spec, members, parts))
        else:
            parts.append(_network(spec, artifact))
    return tuple(parts)


def _member(entry: PipelineNetwork | PipelineModel, plan: ModelPlan, spec: Spec) -> Part:
    """The model of another spec, with the tensors that its callers see."""
    section = f"pipeline.{entry.key}"
    check_names(entry, plan, f"{spec.file} {section}")
    return Part(
        plan.name,
        section,
        plan.backend or "",
        Serving(),
        inputs=_ports(
            {one.name: (one.dtype, one.client_dims) for one in plan.inputs},
            entry.inputs,
            {one.name for one in plan.inputs if one.optional},
        ),
        outputs=_ports({one.name: (one.dtype, one.client_dims) for one in plan.outputs}, entry.outputs),
        member=plan,
    )


def _map(
    entry: PipelineMap, section: str, spec: Spec, members: Mapping[str, ModelPlan], earlier: Sequence[Part]
) -> Part:
    """The Python model that calls another spec's for each item."""
    item = spec.members[entry.key]
    made = {port.tensor: port.info for part in earlier for port in part.outputs}
    mapped = map_of(entry, item, members[item.name], f"{spec.file} pipeline.{entry.key}", made)
    return Part(
        model=f"{spec.name}_{entry.name}",
        section=section,
        backend="python",
        serving=mapped.serving,
        inputs=mapped.inputs,
        outputs=mapped.outputs,
        is_step=True,
        parameters={**mapped.parameters, **_calls([item.name])},
        version_files=mapped.files,
        model_files=labels_of(mapped.serving, spec, section),
        over=mapped.over,
        independence=mapped.independence,
    )


def _network(spec: Spec, artifact: Artifact) -> Part:
    serving = spec.model.serving
    sequences = serving.sequence_batching
    backend = _backend(spec, artifact)
    if sequences is not None:
        _check_controls(spec, artifact, sequences)
    added = {*sequences.control_input, *(s.input for s in sequences.state)} if sequences else set()
    added |= {name for batch in serving.batch_input for name in batch.target_name}
    states = {state.output for state in sequences.state} if sequences else set()
    port = fil_port if backend == "fil" else _port
    return Part(
        model=spec.network_name,
        section="serving",
        backend=backend,
        serving=serving,
        inputs=tuple(port(info, "input") for info in artifact.signature.inputs if info.name not in added),
        outputs=tuple(
            port(with_axes(info, spec), "output") for info in artifact.signature.outputs if info.name not in states
        ),
        parameters={
            key: value
            for key, value in _network_parameters(spec, artifact).items()
            if not {key, _INSTEAD.get(key)} & serving.parameters.keys()
        },
        version_files=_with_packages(
            {name: artifact.folder / name for name in sorted(artifact.files)}, spec.network_name, spec
        ),
        model_files=_initial_states(spec, sequences) | labels_of(serving, spec, "serving"),
        torch_kinds=_torch_kinds(artifact),
    )


def _port(info: TensorInfo, _: str) -> Port:
    return Port(info, info.name)


def _torch_kinds(artifact: Artifact) -> tuple[Kind, ...]:
    """The kinds of instances of a model.py that the build wrote to run PyTorch."""
    form = "torch-export" if PROGRAM in artifact.files else artifact.form
    return _TORCH_KINDS.get(form, ())


def _engine(spec: Spec, artifact: Artifact, engine: EngineName) -> Part:
    """A language model on GPUs, whose published files hold settings and whose weights stay elsewhere."""
    inputs, outputs = engine_tensors(engine)
    serving = spec.model.serving
    settings = engine_parameters(engine)
    return Part(
        model=spec.name,
        section="serving",
        backend=BACKENDS[engine],
        serving=serving,
        inputs=tuple(Port(info, info.name) for info in inputs),
        outputs=tuple(Port(info, info.name) for info in outputs),
        parameters={key: value for key, value in settings.items() if key not in serving.parameters},
        version_files=engine_files(engine),
        version_texts=engine_texts(spec, artifact, engine),
        engine=engine,
    )


def _network_parameters(spec: Spec, artifact: Artifact) -> Mapping[str, str]:
    """Parameters of the network's backend in addition to the spec's own."""
    if spec.model.network.python:
        return _calls(spec.model.network.calls)
    if spec.model.network.llm:
        return {**generation_of(spec, artifact).parameters(), **_PARAMETERS.get(artifact.form, {})}
    if artifact.form == fil.NAME:
        return fil_parameters(spec, artifact)
    return _PARAMETERS.get(artifact.form, {})


def _backend(spec: Spec, artifact: Artifact) -> str:
    """Triton's backend for the artifact's main file."""
    for file, backend in _BACKENDS.items():
        if file in artifact.files:
            return backend
    raise RenderError(
        f"{spec.file} serving.variant",
        found=f"{artifact.variant} gives {', '.join(sorted(artifact.files)) or 'no file'}",
        wanted=f"one of {', '.join(_BACKENDS)}",
        details="\n".join(artifact.notes),
    )


def _check_controls(spec: Spec, artifact: Artifact, sequences: SequenceBatching) -> None:
    """Check that a control or state tensor which the network lists has the dtype that the spec gives it."""
    inputs = {info.name: info.dtype for info in artifact.signature.inputs}
    outputs = {info.name: info.dtype for info in artifact.signature.outputs}
    tensors: list[tuple[str, DataType, dict[str, DataType]]] = [
        *((name, control.dtype, inputs) for name, control in sequences.control_input.items()),
        *((state.input, state.dtype, inputs) for state in sequences.state),
        *((state.output, state.dtype, outputs) for state in sequences.state),
    ]
    # A model.py reads these tensors by name, so its spec need not list them.
    must_exist = "model.py" not in artifact.files
    for name, dtype, dtypes in tensors:
        if dtypes.get(name, None if must_exist else dtype) != dtype:
            raise RenderError(
                f"{spec.file} serving.sequence_batching",
                found=f"{name} is {dtype}",
                wanted=f"as the network has it: {dtypes.get(name, f'one of {sorted(dtypes)}')}",
            )


def _initial_states(spec: Spec, sequences: SequenceBatching | None) -> dict[str, Path]:
    return {
        f"initial_state/{Path(state.initial).name}": resolve_file(
            state.initial, spec, "serving.sequence_batching.state"
        )
        for state in (sequences.state if sequences else ())
        if state.initial not in (None, "zero")
    }


def labels_of(serving: Fields, spec: Spec, section: str) -> dict[str, Path]:
    """The files of labels, which lie next to the configuration under their own paths.

    RenderError for a path at which something else of the model lies.
    """
    for name, one in serving.output.items():
        first = Path(one.label_filename or "labels").parts[0]
        if first.isdigit() or first in _PUBLISHED:
            raise RenderError(
                f"{spec.file} {section}.output.{name}.label_filename",
                found=str(one.label_filename),
                wanted="a path of its own: the published model has its versions, " + ", ".join(_PUBLISHED),
                todo="give the file another name",
            )
    return {
        one.label_filename: resolve_file(one.label_filename, spec, f"{section}.output.{name}.label_filename")
        for name, one in serving.output.items()
        if one.label_filename
    }


def _step(step: ResolvedStep, entry: PipelineStep, section: str, spec: Spec) -> Part:
    serving = with_sequences(step, entry, section, spec)
    placed: dict[str, dict[str, Path]] = {"model": {}, "version": step_code(step, spec)}
    for name, file in step.files.items():
        placed[step.contract.parameters[name].place][file.name] = file
    return Part(
        model=step.name,
        section=section,
        backend="python",
        serving=serving,
        inputs=_ports(step.inputs, entry.inputs, step.optional),
        outputs=_ports(step.outputs, entry.outputs),
        is_step=True,
        parameters=step.parameters | _native(step) | _calls(entry.calls),
        version_files=_with_packages(placed["version"], step.name, spec),
        model_files=placed["model"] | labels_of(serving, spec, section),
        windows=step.windows,
        most_windows=step.most_windows,
    )


def _with_packages(files: dict[str, Path], model: str, spec: Spec) -> dict[str, Path]:
    """The files of a version, with the packages that its Python has for itself."""
    return environment_files(files, spec.environments.get(model)) if model in spec.requirements else files


def _native(step: ResolvedStep) -> dict[str, str]:
    """The parameter that names a shipped step, which the embedded server may also have in C++."""
    is_shipped = step.folder == shipped(STEPS) / step.folder.name
    return {STEP: step.folder.name} if is_shipped else {}


def _calls(names: Sequence[str] | None) -> dict[str, str]:
    """The models that a part's Python calls, so that `serve` loads them first; without `calls` its file is read."""
    return {} if names is None else {CALLS: " ".join(names)}


def _ports(
    tensors: Mapping[str, tuple[DataType, tuple[int, ...]]], renamed: Mapping[str, str], optional: Collection[str] = ()
) -> tuple[Port, ...]:
    return tuple(
        Port(TensorInfo(name, dtype, shape, optional=name in optional), renamed.get(name, name))
        for name, (dtype, shape) in tensors.items()
    )
