"""From a model folder to a `Spec`: what a person wrote, read strictly and checked."""

from tritonkit.datatypes import DataType
from tritonkit.spec.base import FileReference, PackageFile, Tensor
from tritonkit.spec.load import (
    Spec,
    find_root,
    kept_specs,
    load,
    load_all,
    load_readable,
    read_example,
    read_examples,
    resolve,
    resolve_file,
)
from tritonkit.spec.model import Example, FreeAxis, ModelFile, Network, PipelineStep, Quality
from tritonkit.spec.schema import schema_text
from tritonkit.spec.serving import Serving, VersionPolicy
from tritonkit.spec.step import ResolvedStep, StepContract

__all__ = [
    "DataType",
    "Example",
    "FileReference",
    "FreeAxis",
    "ModelFile",
    "Network",
    "PackageFile",
    "PipelineStep",
    "Quality",
    "ResolvedStep",
    "Serving",
    "Spec",
    "StepContract",
    "Tensor",
    "VersionPolicy",
    "find_root",
    "kept_specs",
    "load",
    "load_all",
    "load_readable",
    "read_example",
    "read_examples",
    "resolve",
    "resolve_file",
    "schema_text",
]
