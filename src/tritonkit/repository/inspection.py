"""A model folder seen from outside: its files, the Python that would run, and the models that would be served. Nothing
is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tritonkit.errors import TritonkitError
from tritonkit.repository.export.adapted import adapt, holds_one_item
from tritonkit.repository.export.artifact import Artifact, Signature
from tritonkit.repository.export.onnx_facts import OnnxFacts, read_onnx
from tritonkit.repository.export.onnx_file import batch_axis_missing, check_against_spec, data_of, read_signature
from tritonkit.repository.export.triton_folder import read_triton_folder
from tritonkit.repository.modelspec import FileReference, PackageFile, Spec, resolve_file, resolve_folder
from tritonkit.repository.modelspec.contents import FolderFile, PythonUse, list_files, python_uses
from tritonkit.repository.optimize.files.detect import kind_of
from tritonkit.repository.optimize.files.kinds import open_ready
from tritonkit.repository.optimize.graph import GRAPH
from tritonkit.repository.optimize.variants import (
    AS_IS,
    AUTO,
    LLM_PLAIN,
    PLAIN,
    PYTHON,
    fil,
    for_target,
    served_name,
    variant_of,
)
from tritonkit.repository.publish.rendering import Members
from tritonkit.repository.render.parts import CALLS
from tritonkit.repository.render.plan import plan_models
from tritonkit.repository.render.values import ModelPlan, Target
from tritonkit.repository.report.graph import CALLERS, Edge, Node, PipelineGraph

__all__ = ["Inspection", "declared_signature", "inspect_model"]

# The file by which the backend of a form is known; Triton does not serve `tflite`.
_MAIN_FILES = {
    "onnx": "model.onnx",
    "openvino": "model.xml",
    "llm": "openvino_model.xml",
    fil.NAME: fil.FILE,
    "tensorrt": "model.plan",
    "torchscript": "model.pt",
    "torch": "model.py",
    PYTHON: "model.py",
}

_READY_FILES = {
    "openvino": "model.xml",
    "tensorrt": "model.plan",
    "torch-export": "model.py",
    "torchscript": "model.pt",
}
"""Kind of a ready-made file -> the file by which its backend is known."""
_TOLD = ("openvino", "torch-export")
"""Kinds of ready-made files that tell their inputs and outputs without being run."""


@dataclass(frozen=True)
class Inspection:
    """The facts about a model folder that need no run of its Python."""

    spec: Spec
    files: tuple[FolderFile, ...]
    python: tuple[PythonUse, ...]
    onnx: OnnxFacts | None
    models: tuple[ModelPlan, ...]
    """The Triton models that a build would write, in the order of the pipeline."""
    unknown: tuple[str, ...]
    """Facts that need a run, and errors that a build would report."""
    members: Members
    """The models of other specs in the pipeline."""

    @property
    def variant(self) -> str:
        """The form of the network that is served."""
        network, named = self.spec.model.network, self.spec.model.serving.variant
        if not self.spec.model.has_network:
            return GRAPH
        if served_name(self.spec) in (PYTHON, AS_IS):
            return served_name(self.spec)
        return LLM_PLAIN if network.llm and named == PLAIN else named

    @property
    def network(self) -> dict[str, str]:
        """The source of the network: key of `network` -> its value."""
        network = self.spec.model.network
        given = {"torch": network.torch, "onnx": network.onnx, "python": network.python}
        given |= {"train": network.train, "weights": network.weights, "file": network.file, "folder": network.folder}
        if network.llm:
            given |= {f"llm.{key}": value for key, value in network.llm.model_dump().items()}
        return {key: _text(value) for key, value in given.items() if value is not None}

    @property
    def graph(self) -> PipelineGraph | None:
        """The pipeline as a graph; None without a pipeline, or if its models are not known."""
        called = self.models[-1] if self.models else None
        return _graph(called, {plan.name: plan for plan in (*self.members.values(), *self.models)}) if called else None

    def to_dict(self) -> dict[str, Any]:
        """The facts for `--json`."""
        return {
            "model": self.spec.name,
            "folder": str(self.spec.folder),
            "network": self.network,
            "variant": self.variant,
            "pipeline": [
                part if isinstance(part, str) else step.name if step else self.spec.members[part.key].name
                for step, part in zip(self.spec.steps, self.spec.model.pipeline, strict=True)
            ],
            "graph": self.graph.to_dict() if self.graph else None,
            "requirements": {model: list(needed.lines) for model, needed in self.spec.requirements.items()},
            "files": [asdict(file) for file in self.files],
            "python": [asdict(use) for use in self.python],
            "onnx": None if self.onnx is None else asdict(self.onnx),
            "models": [_model_facts(plan) for plan in self.models],
            "unknown": list(self.unknown),
        }


def inspect_model(spec: Spec, target: Target, cores: int) -> Inspection:
    """Inspect a model folder: its files are read or parsed, and none is imported, unpickled or run.

    Each error that a build would report is a line of `unknown`.

    Raises:
        SpecError: the spec, or a file of it, cannot be served on the target.
    """
    with spec.places_in_errors():
        return _inspected(for_target(spec, target), target, cores)


def _inspected(spec: Spec, target: Target, cores: int) -> Inspection:
    unknown: list[str] = []
    facts, signature = None, None
    try:
        with spec.places_in_errors():
            facts, signature = _signature(spec)
            if facts is not None and facts.external_files:
                data_of(_onnx_file(spec), f"{spec.file} network.onnx")
    except TritonkitError as error:
        unknown.append(error.in_a_line())
    models: tuple[ModelPlan, ...] = ()
    members: Members = {}
    if signature is not None:
        try:
            members = _members(spec, target, cores)
            with spec.places_in_errors():
                models = _models(spec, signature, target, cores, members)
        except TritonkitError as error:
            unknown.append(error.in_a_line())
        if spec.model.serving.variant == AUTO:
            unknown.append("serving.variant is auto: a build measures the variants to choose one")
    return Inspection(spec, list_files(spec), python_uses(spec), facts, models, tuple(unknown), members)


def declared_signature(spec: Spec) -> Signature:
    """The network's inputs and outputs, from its ONNX file or else from the spec; nothing runs."""
    signature = _signature(spec)[1]
    assert signature is not None  # noqa: S101  None stands for a signature that was not read yet
    return signature


def _signature(spec: Spec) -> tuple[OnnxFacts | None, Signature | None]:
    """Facts of an ONNX file, and the network's inputs and outputs from it or else from the spec."""
    network, batched = spec.model.network, spec.model.serving.max_batch_size != 0
    if network.file is not None:
        return None, _ready_signature(spec, batched)
    if network.folder is not None:
        folder = resolve_folder(network.folder, spec, "network.folder")
        return None, read_triton_folder(folder, f"{spec.file} network.folder").signature
    if network.onnx is None:
        return None, Signature.declared(spec)
    where, file = f"{spec.file} network.onnx", _onnx_file(spec)
    facts, model = read_onnx(file, where)
    adapt(model, spec, free=batched and holds_one_item(model, spec))
    if spec.model.serving.max_batch_size is None and batch_axis_missing(model):
        batched = False
    return facts, check_against_spec(read_signature(model, where, batched), spec, file.name)


def _ready_signature(spec: Spec, batched: bool) -> Signature:
    """Inputs and outputs of a ready-made file that tells them without being run; else those that the spec declares."""
    if kind_of(spec) not in _TOLD:
        return Signature.declared(spec)
    ready = open_ready(spec)
    return ready.signature(batched and not ready.batch_axis_missing())


def _onnx_file(spec: Spec) -> Path:
    reference = spec.model.network.onnx
    assert reference is not None  # noqa: S101  the caller has looked
    return resolve_file(reference, spec, "network.onnx")


def _members(spec: Spec, target: Target, cores: int) -> Members:
    """The models that callers of the other specs in a pipeline see; those that `auto` would choose as onnx-fp32."""
    plans: dict[str, ModelPlan] = {}
    for member in spec.tree[:-1]:
        served = member.model.serving.variant
        serving = member.model.serving.model_copy(update={"variant": PLAIN if served == AUTO else served})
        with member.places_in_errors():
            one = for_target(replace(member, model=member.model.model_copy(update={"serving": serving})), target)
            own = {part.name: plans[part.name] for part in one.members.values()}
            plans[member.name] = _models(one, declared_signature(one), target, cores, own)[-1]
    return {member.name: plans[member.name] for member in spec.members.values()}


def _models(spec: Spec, signature: Signature, target: Target, cores: int, members: Members) -> tuple[ModelPlan, ...]:
    """The plan for an artifact that does not exist yet, made from its signature and its main file."""
    if spec.model.serving.variant == AUTO and not spec.model.network.python:
        return ()
    variant = variant_of(spec).name if spec.model.has_network else GRAPH
    planned = Artifact(spec.name, variant, spec.folder, {}, signature, None, "", {})
    main = _MAIN_FILES.get(planned.form.partition("-")[0], "model.onnx")
    files = {_READY_FILES[kind_of(spec)]: ""} if spec.model.network.file else {main: ""}
    planned = replace(planned, files=files)
    return plan_models(spec, planned, target, cores, members=members)


def _graph(called: ModelPlan, plans: Mapping[str, ModelPlan]) -> PipelineGraph | None:
    """The ensemble that callers see as a graph; None for any other model."""
    if not called.steps:
        return None
    names = [step.model for step in called.steps]
    parts = [f"{name} #{names[:n].count(name) + 1}" if names.count(name) > 1 else name for n, name in enumerate(names)]
    targets: dict[str, list[str]] = {}
    sources: dict[str, tuple[str, str]] = {}
    """Tensor of the ensemble -> its source, and its type."""
    for tensor in called.inputs:
        sources[tensor.name] = CALLERS, tensor.type
    for part, step in zip(parts, called.steps, strict=True):
        types = {tensor.name: tensor.type for tensor in plans[step.model].outputs}
        sources |= {name: (part, types[own]) for own, name in step.output_map.items()}
        for name in step.input_map.values():
            targets.setdefault(name, []).append(part)
    for tensor in called.outputs:
        targets.setdefault(tensor.name, []).append(CALLERS)
    nodes = tuple(Node(part, name, _words(plans[name])) for part, name in zip(parts, names, strict=True))
    edges = tuple(Edge(name, type_, source, tuple(targets[name])) for name, (source, type_) in sources.items())
    count = "1 model" if len(nodes) == 1 else f"{len(nodes)} models"
    return PipelineGraph(called.name, f"a pipeline of {count}, {_batches(called)}", nodes, edges)


def _words(plan: ModelPlan) -> str:
    return f"{plan.backend or 'pipeline'}, {_batches(plan)}"


def _batches(plan: ModelPlan) -> str:
    return f"batches of up to {plan.max_batch_size}" if plan.max_batch_size else "no batches"


def _text(reference: FileReference) -> str:
    if isinstance(reference, PackageFile):
        return f"{reference.file} of the package {reference.package}"
    return reference


def _model_facts(plan: ModelPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "backend": plan.backend or "ensemble",
        "max_batch_size": plan.max_batch_size,
        "instances": sum(group.count or 0 for group in plan.instances),
        "inputs": [str(tensor) for tensor in plan.inputs],
        "outputs": [str(tensor) for tensor in plan.outputs],
        "calls": plan.parameters.get(CALLS, "").split(),
        "notes": list(plan.notes),
    }
