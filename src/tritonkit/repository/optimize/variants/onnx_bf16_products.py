"""`onnx-bf16-products`: matrix products in BF16, with the operators between them, for GPUs.

BF16 has FP32's range and 8 bits of mantissa. Its operators are those of ONNX Runtime's CUDA provider with a BF16 kernel
(OperatorKernels.md), which a card has from compute capability 8.0 on; the CPU provider cannot open the file. All others
stay FP32. So do convolutions: their BF16 kernel begins with opset 22, and none is listed for channels last, which
target gpu chooses for convolutions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.optimize.variants.onnx_graph import name_nodes, save
from tritonkit.repository.optimize.variants.onnx_half import Half, Number
from tritonkit.repository.optimize.variants.onnx_search import LayerSearch

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["BF16", "make"]

_WANTED = 0.999
"""Required closeness to FP32, as that of FP16."""
_PRODUCTS = ("Gemm", "MatMul")
_BETWEEN = ("Add", "Div", "Erf", "Gelu", "Max", "Min", "Mul", "Neg", "Relu", "Sigmoid", "Sub", "Sum", "Tanh")
_MOVES = ("Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose")
_OPSET, _GELU = 13, 20
BF16 = Number("BFLOAT16", {**dict.fromkeys((*_PRODUCTS, *_BETWEEN, *_MOVES, "Unsqueeze"), _OPSET), "Gelu": _GELU})
"""BF16 and its operators. Sums over many values (Softmax, normalizations, reductions) and powers stay FP32, as in
PyTorch's automatic mixed precision."""


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with FP32 inputs and outputs.

    With `optimize.calibration`, the operators that cost most closeness stay FP32 until it reaches 0.999; it is measured
    on an imitation that rounds each value.
    BuildError if no matrix product can be BF16.
    """
    model = need("onnx", "build").load(job.onnx)
    name_nodes(model)
    half = Half(model, BF16)
    layers = _layers(half, model)
    if not layers:
        raise BuildError(
            f"{job.spec.file} network",
            found="no matrix product that can be BF16",
            wanted=f"{' or '.join(_PRODUCTS)} of FP32 numbers, in opset {_OPSET} or newer",
            todo="choose another variant, such as onnx-fp16",
        )
    others = [name for name in half.operators if name not in layers]
    floats: tuple[str, ...] = ()
    notes = ["for GPUs of compute capability 8.0 or newer: a CPU cannot run it"]
    if job.spec.model.optimize.calibration is not None:
        search = LayerSearch(job, _WANTED)
        closeness = search.closeness(half.write(others, imitated=True))
        if closeness < _WANTED:
            floats = search.layers_to_exclude(layers, lambda out: half.write([*others, *out], imitated=True)) or ()
            closeness = search.closeness(half.write([*others, *floats], imitated=True))
        notes.append(f"imitated on the CPU: {search.reached(closeness)}")
    save(half.write([*others, *floats]), folder / "model.onnx")
    notes.append(f"{len(layers) - len(floats)} operators BF16, all others FP32")
    if floats:
        notes.append(f"FP32, because they cost most closeness: {', '.join(floats)}")
    return tuple(notes)


def _layers(half: Half, model: Any) -> list[str]:
    """The operators that can be BF16 and are joined to a matrix product by others of them: any other would only be
    converted and converted back."""
    kinds = {node.name: node.op_type for node in model.graph.node}
    tensors = {name: set(half.tensors(name)) for name in half.operators}
    joined = {name for name in tensors if kinds[name] in _PRODUCTS}
    reached = set().union(*(tensors[name] for name in joined))
    while more := {name for name in tensors if name not in joined and tensors[name] & reached}:
        joined |= more
        reached |= set().union(*(tensors[name] for name in more))
    return [name for name in half.operators if name in joined]
