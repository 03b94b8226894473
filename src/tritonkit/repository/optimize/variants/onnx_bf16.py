"""`onnx-bf16`: weights in BF16, products in FP32.

ONNX Runtime's CPU provider (1.31) has BF16 kernels only for LayerNormalization and for operators that
just move values: a network with BF16 products does not load. So weights are BF16 in the file and become FP32
when it is loaded; rows of an embedding do so when they are looked up. On a GPU it is the same network, and the
GPU's provider chooses how to compute it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.extras import need
from tritonkit.repository.optimize.variants.onnx_graph import name_nodes, save
from tritonkit.repository.optimize.variants.onnx_search import LayerSearch
from tritonkit.repository.optimize.variants.onnx_weights import WeightLayers, weight_layers

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make"]

_WANTED = 0.999


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with the layers' weights in BF16.

    With `optimize.calibration`, the weights that cost most closeness stay FP32 until closeness reaches 0.999.
    BuildError if the network has no layer with weights.
    """
    model = need("onnx", "build").load(job.onnx)
    name_nodes(model)
    layers = weight_layers(job, model, "BF16")
    notes = ["weights BF16, products FP32: ONNX Runtime's CPU provider has no BF16 products"]
    floats: tuple[str, ...] = ()
    if job.spec.model.optimize.calibration is not None:
        search = LayerSearch(job, _WANTED)
        closeness = search.closeness(_written(layers, ()))
        if closeness < _WANTED:
            floats = search.layers_to_exclude(layers.names, lambda out: _written(layers, out)) or ()
            closeness = search.closeness(_written(layers, floats))
        notes.append(search.reached(closeness))
    if floats:
        notes.append(f"weights left FP32, because they cost most closeness: {', '.join(floats)}")
    save(_written(layers, floats), folder / "model.onnx")
    return tuple(notes)


def _written(layers: WeightLayers, floats: Collection[str]) -> Any:
    """The model with the weights of all layers but `floats` in BF16."""
    onnx = need("onnx", "build")
    graph, nodes, constants = layers.graph, [], {}
    bf16 = need("ml_dtypes", "build").bfloat16  # to the nearest, ties to even
    make_node, to = onnx.helper.make_node, onnx.TensorProto.FLOAT
    for node in graph.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        nodes.append(copy)
        if node.name not in layers.names or node.name in floats:
            continue
        place = 0 if node.op_type == "Gather" else 1
        name = f"{node.input[place]}/half"
        constants[name] = onnx.numpy_helper.from_array(graph.float_weight(node.input[place]).astype(bf16), name)
        if node.op_type == "Gather":
            copy.input[place], copy.output[0] = name, f"{node.output[0]}/half"
            nodes.append(make_node("Cast", [copy.output[0]], [node.output[0]], to=to))
        else:
            copy.input[place] = f"{node.name}/weights"
            nodes.insert(-1, make_node("Cast", [name], [copy.input[place]], to=to))
    return graph.with_nodes(nodes, constants.values())
