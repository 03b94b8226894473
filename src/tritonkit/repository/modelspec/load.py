"""Read a model's folder: its file, the files it names, and the steps of its pipeline."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tritonkit.errors import SpecError, TritonkitError, UsageError
from tritonkit.repository.modelspec.base import FileReference, Target
from tritonkit.repository.modelspec.document import nearest, read_document
from tritonkit.repository.modelspec.files import hold_to_size, resolve_file, resolve_folder
from tritonkit.repository.modelspec.model import ModelFile
from tritonkit.repository.modelspec.step import ResolvedStep
from tritonkit.repository.modelspec.steps import resolve_step

__all__ = [
    "Spec",
    "find_root",
    "kept_specs",
    "load",
    "load_all",
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

    `steps` are the resolved parts of the pipeline in order; None stands for the network.
    """

    folder: Path
    model: ModelFile
    steps: tuple[ResolvedStep | None, ...] = ()
    target_places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The places of settings that the target has of its own, by those that they replace."""

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

    @property
    def keeps_sequences(self) -> bool:
        """Whether the network or a step keeps state between the requests of a sequence."""
        by_step = any(step.contract.keeps_sequences for step in self.steps if step)
        return by_step or self.model.serving.sequence_batching is not None

    @contextlib.contextmanager
    def places_in_errors(self) -> Iterator[None]:
        """Errors that name a setting of all targets name the target's own instead, if that one holds."""
        try:
            yield
        except TritonkitError as error:
            for setting, place in self.target_places.items():
                if re.match(rf"{re.escape(f'{self.file} {setting}')}(?!\w)", error.where):
                    error.where = error.where.replace(f" {setting}", f" {place}", 1)
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
    """The named specs, or every one below `models/` that is built by default, sorted by name.

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
    specs: list[Spec] = []
    failed: dict[str, SpecError] = {}
    for name, folder in folders.items():
        try:
            model = _read(folder)
            # The files of a model that is not built may be missing.
            if names or every or model.default:
                specs.append(resolve(folder, model, root, target))
        except SpecError as error:
            failed[name] = error
    return specs, failed


def kept_specs(root: Path, built: Iterable[Spec]) -> frozenset[str]:
    """The specs whose published models a build of all others leaves alone: those that are built only when they
    are named, and those that cannot be read.

    Args:
        built: the specs that could be read, of those that are built by default.
    """
    return frozenset(_folders(root)) - {spec.name for spec in built}


def _chosen_folders(root: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """The named folders, or all, in the order of their names."""
    folders = _folders(root)
    if not folders:
        raise UsageError(str(root / "models"), found="it holds no model", todo="see `tritonkit new --help`")
    for name in names:
        if name not in folders:
            raise UsageError(
                f"model {name!r}", found=f"there is no models/{name}/{FILE_NAME}", wanted=nearest(name, list(folders))
            )
    return {name: folders[name] for name in sorted(set(names or folders))}


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


def resolve(folder: Path, model: ModelFile, root: Path, target: Target = "cpu") -> Spec:
    """The `Spec` of a `model.yaml` for a target, with its steps and files; SpecError if one does not exist."""
    spec = Spec(folder, model.on(target), target_places=model.places_on(target))
    with spec.places_in_errors():
        _check_files(spec)
        return replace(
            spec,
            steps=tuple(None if part == "network" else resolve_step(part, spec, root) for part in spec.model.pipeline),
        )


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
