"""Read a model's folder: its file, the files it names, and the steps of its pipeline."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from tritonkit.errors import SpecError, TritonkitError, UsageError
from tritonkit.repository.modelspec.base import FileReference, Target
from tritonkit.repository.modelspec.document import nearest, read_document
from tritonkit.repository.modelspec.entries import ITEM, PipelineMap, PipelineModel, PipelineNetwork, PipelineStep
from tritonkit.repository.modelspec.files import hold_to_size, resolve_file, resolve_folder, resolve_network_file
from tritonkit.repository.modelspec.model import ModelFile
from tritonkit.repository.modelspec.requirements import Requirements, own_requirements
from tritonkit.repository.modelspec.step import ResolvedStep
from tritonkit.repository.modelspec.steps import resolve_step

__all__ = [
    "Spec",
    "child_names",
    "find_root",
    "kept_specs",
    "load",
    "load_all",
    "load_named",
    "load_readable",
    "read_example",
    "read_examples",
]

FILE_NAME = "model.yaml"
_SENT = ("example.", "serving.model_warmup")
_MOST_SENT_MIB = 256
"""Largest file that is sent as one input of a request."""
_MOST_ONNX_MIB = 2048
_SPLIT = "keep the weights in another file: onnx.save(model, FILE, save_as_external_data=True)"


@dataclass(frozen=True)
class Spec:
    """A model folder that was read and checked, with the settings that hold on one target.

    `steps` are the resolved parts of the pipeline in order; None stands for a network or another model. A network in
    the pipeline of a `model.yaml` is a spec of its own, `PARENT_NAME`, with the same folder.
    """

    folder: Path
    model: ModelFile
    steps: tuple[ResolvedStep | None, ...] = ()
    target_places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The places of settings that the target has of its own, by those that they replace."""
    members: Mapping[str, Spec] = dataclasses.field(default_factory=dict)
    """The specs whose models the pipeline has, by the names of its entries."""
    entry: str = ""
    """The place of a spec that is an entry of a pipeline, such as `pipeline.detector`; empty for all others."""
    requirements: Mapping[str, Requirements] = dataclasses.field(default_factory=dict)
    """Triton model -> the packages that its Python has for itself."""
    environments: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    """Triton model -> the folder with these packages, once a build has made it."""

    @property
    def name(self) -> str:
        """The name that clients call."""
        return self.model.name

    @property
    def file(self) -> Path:
        """The model.yaml it was read from."""
        return self.folder / FILE_NAME

    @property
    def network_name(self) -> str:
        """The Triton model that holds the network: `digits_network`, or `digits` without steps."""
        return f"{self.name}_network" if self.steps else self.name

    @functools.cached_property
    def keeps_sequences(self) -> bool:
        """Whether a network or a step keeps state between the requests of a sequence."""
        by_step = any(step.contract.keeps_sequences for step in self.steps if step)
        by_member = any(member.keeps_sequences for member in self.members.values())
        return by_step or by_member or self.model.serving.sequence_batching is not None

    @functools.cached_property
    def tree(self) -> tuple[Spec, ...]:
        """The specs of all models in the pipeline, each after those in its own pipeline, and this spec last."""
        specs = {spec.name: spec for member in self.members.values() for spec in member.tree}
        return (*specs.values(), self)

    @contextlib.contextmanager
    def places_in_errors(self) -> Iterator[None]:
        """Errors that name a setting of all targets name the target's own instead, if that one holds."""
        try:
            yield
        except TritonkitError as error:
            for setting, place in self.target_places.items():
                if re.match(rf"{re.escape(f'{self.file} {setting}')}(?!\w)", error.where):
                    error.where = error.where.replace(f" {setting}", f" {place}", 1)
            place = f"{self.file} {self.entry}"
            if self.entry and error.where.startswith(f"{self.file} ") and not error.where.startswith(place):
                error.where = error.where.replace(f"{self.file} ", f"{place}.", 1)
            raise


def find_root(start: Path | None = None) -> Path:
    """The project's folder: this one if it holds `models/`, else the nearest above it that holds a
    `models/NAME/model.yaml`."""
    start = (start or Path.cwd()).resolve()
    if (start / "models").is_dir():
        return start
    for folder in start.parents:
        if next((folder / "models").glob(f"*/{FILE_NAME}"), None):
            return folder
    raise UsageError(
        str(start),
        found="neither this folder nor one above it holds models/",
        wanted="a project: a folder with models/NAME/model.yaml",
        todo="start one here with `tritonkit new`, or name one with --root",
    )


def load_all(root: Path, names: tuple[str, ...] = ()) -> list[Spec]:
    """The named specs, or every one below `models/` that is built by default, sorted by name. Each comes after the
    specs of its pipeline's models, which are loaded with it.

    Folders of other models are not read.

    Raises:
        UsageError: there is no such folder.
        SpecError: one of them cannot be built.
    """
    specs, failed = load_readable(root, names)
    for error in failed.values():
        raise error
    return specs


def load_readable(
    root: Path, names: tuple[str, ...] = (), *, every: bool = False, target: Target = "cpu"
) -> tuple[list[Spec], dict[str, SpecError]]:
    """The same, where a folder that cannot be built does not hide the others: folder -> what is wrong with it.

    Args:
        every: without names, also the specs that are built only when they are named.
        target: the target whose settings count.
    """
    folders = _chosen_folders(root, names)
    specs: dict[str, Spec] = {}
    failed: dict[str, SpecError] = {}
    known: dict[str, Spec] = {}
    for name, folder in folders.items():
        try:
            model = known[folder.name].model if folder.name in known else _read(folder)
            # The files of a model that is not built may be missing.
            if names or every or model.default:
                spec = known.get(folder.name) or resolve(folder, model, root, target, known=known)
                _add(specs, _part(spec, name).tree)
        except SpecError as error:
            failed[name] = error
    return list(specs.values()), failed


def load_named(root: Path, name: str, target: Target = "cpu") -> Spec:
    """One spec by its name, which may be that of a network in another spec's pipeline."""
    specs, failed = load_readable(root, (name,), target=target)
    for error in failed.values():
        raise error
    return specs[-1]


def _add(specs: dict[str, Spec], more: Iterable[Spec]) -> None:
    """Add specs by their names; SpecError where two entries of different pipelines have one name."""
    for spec in more:
        other = specs.setdefault(spec.name, spec)
        if (other.folder, other.entry) != (spec.folder, spec.entry):
            raise SpecError(
                f"{spec.file} {spec.entry}",
                found=f"the spec {spec.name!r}, which {other.file} also has",
                wanted="one spec of a name",
                todo="give the entry another name",
            )


def kept_specs(root: Path, built: Iterable[Spec]) -> frozenset[str]:
    """The specs whose published models a build of all others leaves alone: those that are built only when they
    are named, and those that cannot be read.

    Args:
        built: the specs that could be read, of those that are built by default.
    """
    return frozenset(_folders(root)) - {spec.folder.name for spec in built}


def _chosen_folders(root: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """The folders of the named specs, or all, in the order of their names."""
    folders = _folders(root)
    if not folders:
        raise UsageError(str(root / "models"), found="it holds no model", todo="see `tritonkit new --help`")
    chosen = {name: _folder_of(name, folders) for name in sorted(set(names or folders))}
    for name, folder in chosen.items():
        if folder is None:
            raise UsageError(
                f"model {name!r}",
                found=f"there is no models/{name}/{FILE_NAME}, and no pipeline has a network of this name",
                wanted=nearest(name, [*folders, *(child for one in folders.values() for child in child_names(one))]),
            )
    return {name: folder for name, folder in chosen.items() if folder is not None}


def _folder_of(name: str, folders: Mapping[str, Path]) -> Path | None:
    """The folder of a spec: its own, or that of the spec in whose pipeline it is."""
    parents = [folder for parent, folder in folders.items() if name.startswith(f"{parent}_")]
    return folders.get(name) or next((folder for folder in parents if name in child_names(folder)), None)


def child_names(folder: Path) -> list[str]:
    """The specs in the pipeline of a folder's own `model.yaml`, by their names; none if it cannot be read. No other
    file is read."""
    with contextlib.suppress(SpecError):
        return list(_children(folder.name, _read(folder).pipeline))
    return []


def _children(parent: str, pipeline: Iterable[object]) -> Iterator[str]:
    """The names of the entries that are specs, with those in maps."""
    for part in pipeline:
        if isinstance(part, PipelineNetwork | PipelineMap):
            name = _child_name(parent, part)
            yield name
            if isinstance(part, PipelineMap):
                yield from _children(name, part.map.pipeline)


def _folders(root: Path) -> dict[str, Path]:
    return {
        file.parent.name: file.parent
        for file in sorted((root / "models").glob(f"*/{FILE_NAME}"))
        if not file.parent.name.startswith(".")
    }


def load(folder: Path, root: Path, target: Target = "cpu") -> Spec:
    """Read one model folder as it is built for a target; SpecError for anything in it that cannot be built."""
    return resolve(folder, _read(folder), root, target)


def _read(folder: Path) -> ModelFile:
    """A folder's `model.yaml`; its name must be the folder's."""
    model = read_document(folder / FILE_NAME, ModelFile)
    if model.name != folder.name:
        raise SpecError(f"{folder / FILE_NAME} name", found=model.name, wanted=f"the folder's name, {folder.name!r}")
    return model


def resolve(
    folder: Path,
    model: ModelFile,
    root: Path,
    target: Target = "cpu",
    *,
    entry: str = "",
    above: tuple[str, ...] = (),
    known: dict[str, Spec] | None = None,
) -> Spec:
    """The `Spec` of a `model.yaml` for a target, with its steps, its pipeline's other models and its files.

    Args:
        entry: the place of a network in a pipeline, whose `model` was made of an entry.
        above: the specs whose pipelines lead to this one, from the outermost on.
        known: specs of whole folders for this target, so that each is resolved once; this one is added.

    Raises:
        SpecError: a step, a model or a file does not exist, or a model would need itself.
    """
    spec = Spec(folder, model.on(target), target_places=model.places_on(target), entry=entry)
    with spec.places_in_errors():
        _check_files(spec)
        above = (*above, spec.name)
        known = {} if known is None else known
        parts = spec.model.pipeline
        spec = replace(
            spec,
            steps=tuple(resolve_step(part, spec, root) if isinstance(part, PipelineStep) else None for part in parts),
            members={
                part.key: _member(part, spec, root, target, above, known)
                for part in parts
                if isinstance(part, PipelineNetwork | PipelineModel | PipelineMap)
            },
        )
        spec = replace(spec, requirements=own_requirements(spec))
    if not entry:
        known[folder.name] = spec
    return spec


def _member(
    part: PipelineNetwork | PipelineModel | PipelineMap,
    spec: Spec,
    root: Path,
    target: Target,
    above: tuple[str, ...],
    known: dict[str, Spec],
) -> Spec:
    """The spec of an entry of a pipeline that is not a step."""
    where, folders = f"{spec.file} pipeline.{part.key}", _folders(root)
    if not isinstance(part, PipelineModel):
        name = _child_name(spec.name, part)
        if name in folders:
            raise SpecError(
                where, found=f"the name {name}, which models/{name} has", wanted="an entry with another name"
            )
        entry = f"{spec.entry}.pipeline.{part.name}".lstrip(".") + (".map" if isinstance(part, PipelineMap) else "")
        child = _child(part, name, spec.model, where)
        return resolve(spec.folder, child, root, target, entry=entry, above=above, known=known)
    folder = _folder_of(part.model, folders)
    if folder is None:
        raise SpecError(where, found=f"unknown model {part.model!r}", wanted=nearest(part.model, list(folders)))
    if folder.name in above:  # also for another network of that model.yaml, which is read as a whole
        circle = " -> ".join((*above[above.index(folder.name) :], part.model))
        raise SpecError(where, found=f"a cycle: {circle}", wanted="models that do not need themselves")
    whole = known.get(folder.name) or resolve(folder, _read(folder), root, target, above=above, known=known)
    return _part(whole, part.model)


def _child_name(parent: str, part: PipelineNetwork | PipelineMap) -> str:
    """The name of the spec that an entry of a pipeline is."""
    return f"{parent}_{part.key}{ITEM if isinstance(part, PipelineMap) else ''}"


def _child(part: PipelineNetwork | PipelineMap, name: str, parent: ModelFile, where: str) -> ModelFile:
    """The `model.yaml` that an entry of a pipeline stands for."""
    own = part.map if isinstance(part, PipelineMap) else part
    others = {"name", "inputs", "outputs", "over", "count", "max_in_flight"}
    sections = {key: getattr(own, key) for key in own.model_fields_set - others}
    try:
        return ModelFile(name=name, default=parent.default, triton=parent.triton, **sections)
    except ValidationError as error:
        raise SpecError(where, found=f"{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _part(spec: Spec, name: str) -> Spec:
    """The spec of that name in a spec's tree."""
    specs = {one.name: one for one in spec.tree}
    if name not in specs:
        where = f"{spec.file} pipeline"
        raise SpecError(where, found=f"no network called {name!r}", wanted=nearest(name, list(specs)))
    return specs[name]


def read_example(spec: Spec, name: str) -> bytes:
    """The content of the spec's example for an input."""
    return read_examples(spec, name)[0]


def read_examples(spec: Spec, name: str) -> tuple[bytes, ...]:
    """The content of the spec's example for an input, and of its `more`."""
    example = spec.model.example[name]
    if example.file is None:
        return tuple(text.encode() for text in (example.text or "", *example.more))
    field = f"example.{name}.file"
    return tuple(resolve_file(file, spec, field).read_bytes() for file in (example.file, *example.more))


def _check_files(spec: Spec) -> None:
    """Check that every file and hook that the spec names exists."""
    model, network, warmup = spec.model, spec.model.network, spec.model.serving.model_warmup
    samples = () if isinstance(warmup, str) else warmup
    named: list[tuple[str, FileReference | None]] = [
        ("network.weights", network.weights),
        ("network.onnx", network.onnx),
        *(("network.op_library", library) for library in network.op_libraries),
        ("network.python", network.python),
        *(
            [("network.llm.checkpoint", f"{network.llm.checkpoint}/config.json")]
            if network.llm and network.llm.checkpoint
            else []
        ),
        *(("network.files", file) for file in network.files),
        *((field, f"{hook.split(':')[0]}.py") for field, hook in model.hooks.items()),
        *((f"example.{name}.file", example.file) for name, example in model.example.items()),
        *(
            (f"example.{name}.more", file)
            for name, example in model.example.items()
            if example.file is not None
            for file in example.more
        ),
        *(("serving.model_warmup", given.file) for one in samples for given in one.inputs.values()),
    ]
    if network.file is not None:
        resolve_network_file(spec)
    if network.folder is not None:
        resolve_folder(network.folder, spec, "network.folder")
    for field, files in model.sample_files.items():
        named.append((f"{field}.classes", files.classes))
        key, source = files.source
        if key == "folder":
            resolve_folder(str(source), spec, f"{field}.folder")
        else:
            named.append((f"{field}.{key}", source))
    for field, reference in named:
        if reference is not None:
            path = resolve_file(reference, spec, field)
            if field.startswith(_SENT):
                hold_to_size(path, _MOST_SENT_MIB, f"{spec.file} {field}")
            elif field == "network.onnx":
                hold_to_size(path, _MOST_ONNX_MIB, f"{spec.file} {field}", _SPLIT)
