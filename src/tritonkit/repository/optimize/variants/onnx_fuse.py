"""`onnx-fp32-fused`: attention and its neighbors as the single operators that ONNX Runtime has for them.

ONNX Runtime fuses the smaller patterns itself when it loads a file, so only a network with attention is
fused beforehand. The fusions are onnxscript's: onnxruntime.transformers.optimizer (1.31) finds no
attention in files of PyTorch's exporter.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.optimize.variants.onnx_graph import save, tidy, with_shapes

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["fuse", "make"]

_SAME = 1e-4  # largest difference that fusing may make, of the largest output element
_LABELS = {
    "MultiHeadAttention": "attention",
    "Attention": "attention with projections",
    "GroupQueryAttention": "grouped attention",
    "SkipLayerNormalization": "residual + LayerNorm",
    "SkipSimplifiedLayerNormalization": "residual + RMSNorm",
    "BiasGelu": "bias + GELU",
    "Gelu": "GELU",
    "RotaryEmbedding": "rotary embedding",
}


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with attention fused; names, dtypes and free axes of inputs and outputs stay.

    BuildError where there is no attention, or the fused network gives other outputs.
    """
    where = f"{job.spec.file} variant onnx-fp32-fused"
    plain = need("onnx", "build").load(job.onnx)
    job.say("looking for attention")
    fused, counts = fuse(plain)
    if not counts:
        raise BuildError(
            where,
            found="no attention that ONNX Runtime has an operator for",
            wanted="a transformer",
            todo="serve onnx-fp32: of other networks, ONNX Runtime fuses what it can on loading",
        )
    save(fused, folder / "model.onnx")
    given = [job.items(1 if job.one_by_one else 2)]
    if job.spec.model.optimize.calibration is not None:
        given += job.calibration[:1]
    if not _same(job.onnx, folder / "model.onnx", given, where):
        raise BuildError(
            where, found="the fused network gives other outputs than the plain one", todo="serve onnx-fp32"
        )
    return ("fused: " + ", ".join(f"{count} x {label}" for label, count in counts.items()),)


def fuse(model: Any) -> tuple[Any, dict[str, int]]:
    """A tidy copy with attention fused into ONNX Runtime's own operators, and the number of each kind.

    Without attention, or if the fusions cannot process the graph, it is the model itself and no kinds.
    """
    if not _may_attend(model):
        return model, {}
    ir = need("onnx_ir", "build")
    fusions = need("onnxscript.rewriter.ort_fusions", "build")
    with quiet():
        try:
            plain = ir.serde.deserialize_model(with_shapes(model))
            result, _ = fusions.optimize_for_ort(plain)
            fused = ir.serde.serialize_model(result)
        except Exception:  # its passes fail in ways of their own on graphs they do not know
            return model, {}
    kinds = [node.op_type for node in fused.graph.node if node.domain == "com.microsoft"]
    if not any("Attention" in kind for kind in kinds):
        return model, {}
    tidy(fused)
    return fused, {label: kinds.count(kind) for kind, label in _LABELS.items() if kind in kinds}


def _may_attend(model: Any) -> bool:
    """Whether there is a Softmax and a product of two activations; otherwise heavy imports are avoided."""
    constants = {tensor.name for tensor in model.graph.initializer}
    nodes = model.graph.node
    products = [node for node in nodes if node.op_type == "MatMul"]
    softmax = any(node.op_type == "Softmax" for node in nodes)
    return softmax and any(not constants & set(node.input) for node in products)


def _same(plain: Path, fused: Path, batches: Sequence[Batch], where: str) -> bool:
    """Whether both files give the same outputs, except for rounding."""
    import numpy as np

    first, second = open_session(plain, where), open_session(fused, where)
    for batch in batches:
        expected, outputs = run_session(first, batch, where), run_session(second, batch, where)
        for name, array in expected.items():
            if not np.issubdtype(array.dtype, np.floating):
                if not np.array_equal(array, outputs[name]):
                    return False
                continue
            room = _SAME * float(np.abs(array).max(initial=1.0))
            if not np.allclose(outputs[name], array, rtol=0, atol=room, equal_nan=True):
                return False
    return True
