"""Read a model folder into a `Spec`: the text that a person wrote, read strictly and checked."""

from tritonkit.datatypes import DataType
from tritonkit.repository.modelspec.base import FileReference, PackageFile, Tensor
from tritonkit.repository.modelspec.entries import (
    Example,
    PipelineMap,
    PipelineModel,
    PipelineNetwork,
    PipelineStep,
)
from tritonkit.repository.modelspec.files import resolve_file, resolve_folder
from tritonkit.repository.modelspec.load import (
    Spec,
    child_names,
    find_root,
    kept_specs,
    load,
    load_all,
    load_named,
    load_readable,
    read_example,
    read_examples,
    resolve,
)
from tritonkit.repository.modelspec.model import ModelFile
from tritonkit.repository.modelspec.network import FreeAxis, Network
from tritonkit.repository.modelspec.quality import Quality, SampleFiles
from tritonkit.repository.modelspec.schema import schema_text
from tritonkit.repository.modelspec.serving import Serving, VersionPolicy
from tritonkit.repository.modelspec.step import ResolvedStep, StepContract

__all__ = [
    "DataType",
    "Example",
    "FileReference",
    "FreeAxis",
    "ModelFile",
    "Network",
    "PackageFile",
    "PipelineMap",
    "PipelineModel",
    "PipelineNetwork",
    "PipelineStep",
    "Quality",
    "ResolvedStep",
    "SampleFiles",
    "Serving",
    "Spec",
    "StepContract",
    "Tensor",
    "VersionPolicy",
    "child_names",
    "find_root",
    "kept_specs",
    "load",
    "load_all",
    "load_named",
    "load_readable",
    "read_example",
    "read_examples",
    "resolve",
    "resolve_file",
    "resolve_folder",
    "schema_text",
]
