"""Facts about an ONNX file from parsing alone: the file is not checked or run, and files that it names are not read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.external_data import locations
from tritonkit.repository.export.number_format import number_format
from tritonkit.repository.export.onnx_file import graphs, parse, tensors
from tritonkit.repository.export.onnx_kinds import custom_operators, explain_unreadable, kind_of

__all__ = ["OnnxFacts", "read_onnx"]


@dataclass(frozen=True)
class OnnxFacts:
    """Facts about one ONNX file.

    `custom_operators` belong to domains other than ONNX's and ONNX Runtime's. They run only where a library of
    the spec has them (`network.op_library`).
    """

    producer: str
    opsets: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: int
    numbers: str
    """Number format if it is not FP32, such as `INT8 (QDQ)`."""
    custom_operators: tuple[str, ...]
    external_files: tuple[str, ...]
    """Names of the files with its weights, as the ONNX file has them."""


def read_onnx(file: Path, where: str) -> tuple[OnnxFacts, Any]:
    """The facts, and the parsed model; BuildError for a file that is not ONNX or too large."""
    onnx = need("onnx", "build")
    try:
        model = parse(file, where)
    except BuildError:
        raise
    except Exception as error:
        raise explain_unreadable(file, where, str(error)) from error
    nodes = [node for graph in graphs(model) for node in graph.node]
    external = locations(tensors(model))
    initial = {tensor.name for tensor in model.graph.initializer}
    facts = OnnxFacts(
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        opsets={opset.domain or "ai.onnx": opset.version for opset in model.opset_import},
        inputs=tuple(_describe(v, onnx) for v in model.graph.input if v.name not in initial),
        outputs=tuple(_describe(v, onnx) for v in model.graph.output),
        operators=len(nodes),
        numbers=number_format(model),
        custom_operators=custom_operators(model, graphs(model)),
        external_files=tuple(sorted(external)),
    )
    return facts, model


def _describe(value: Any, onnx: Any) -> str:
    """Text for an input or output: `pixels FLOAT [batch,1,8,8]`, `scores: a sequence of maps`."""
    if kind := kind_of(value):
        return f"{value.name}: {kind}"
    tensor = value.type.tensor_type
    kinds = {number: name for name, number in onnx.TensorProto.DataType.items()}
    dims = ",".join(
        str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim
    )
    return f"{value.name} {kinds.get(tensor.elem_type, tensor.elem_type)} [{dims}]"
