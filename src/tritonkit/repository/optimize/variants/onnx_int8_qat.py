"""`onnx-int8-qat`: fine-tuned with 8-bit rounding in the loop, then written as an ONNX file with QDQ operators.

torch.export traces the network. torchao (PT2E) folds batch normalization and inserts fake quantization where
`qat_quantizer` specifies. Training learns the weights, and ranges are moving averages. The file stores int8 weights.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.hooks import hook_errors
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.export.torch_module import to_tensors
from tritonkit.repository.export.torch_onnx import dynamic_shapes, explain, export_onnx
from tritonkit.repository.optimize.transforms.loop import fit, to_pairs
from tritonkit.repository.optimize.variants.int8_cpu import largest_weight
from tritonkit.repository.optimize.variants.onnx_graph import save, tidy
from tritonkit.repository.optimize.variants.qat_quantizer import Int8Quantizer

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make"]

# The network is trained already: its weights move a little, to where rounding hurts less. On digits, longer or
# larger steps came no closer to the reference. True targets in addition to its outputs led away from it.
_SHARE_OF_EPOCHS = 0.25
_SHARE_OF_LEARNING_RATE = 0.02
_RANGES_STAND_STILL_AFTER = 0.5  # share of those epochs; afterwards weights settle for ranges that no longer move


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx, whose layers have int8 weights and run in ONNX Runtime's integer kernels.

    BuildError for an ONNX file, without `optimize.training`, or if no layer can be quantized.
    """
    spec = job.spec
    pairs = to_pairs(spec, job.training)
    student, rules = _prepared(job)
    given = spec.model.optimize
    # The network is trained already, so it only learns to give the reference's outputs.
    optimize = given.model_copy(
        update={
            "epochs": math.ceil(given.epochs * _SHARE_OF_EPOCHS),
            "learning_rate": given.learning_rate * _SHARE_OF_LEARNING_RATE,
            "alpha": 1.0,
        }
    )
    with hook_errors(spec, "optimize.training", "fine-tuning with 8-bit rounding"):
        fit(
            student,
            job.module(),
            pairs,
            optimize,
            f"{spec.file} optimize",
            job.say,
            lambda epoch: _hold_ranges(student, epoch / optimize.epochs),
        )
    job.say("writing the int8 file")
    with quiet():
        finished = need("torchao.quantization.pt2e.quantize_pt2e", "optimize").convert_pt2e(student)
    export_onnx(spec, finished, job.example, job.batched, folder / "model.onnx")
    _make_small(folder / "model.onnx")
    return (f"{rules.layers} layers in int8, fine-tuned for {optimize.epochs} epochs",)


def _prepared(job: Job) -> tuple[Any, Int8Quantizer]:
    """The network's graph with fake quantization, and the quantizer that placed it."""
    torch = need("torch", "build")
    spec = job.spec
    with quiet():
        pt2e = need("torchao.quantization.pt2e.quantize_pt2e", "optimize")
        rules = Int8Quantizer(largest_weight())
    inputs = to_tensors(spec, job.example)
    shapes = dynamic_shapes(torch, spec, job.batched)
    try:
        with quiet():
            program = torch.export.export(job.module(), inputs, dynamic_shapes=shapes)
            prepared = pt2e.prepare_pt2e(program.module(check_guards=False), rules)
    except Exception as error:
        raise explain(spec, error) from error
    if not rules.layers:
        raise BuildError(
            f"{spec.file} network.torch",
            found="no convolution or linear layer whose weights could be int8",
            wanted="at least one, for this variant",
            todo="choose another variant",
        )
    return prepared, rules


def _make_small(file: Path) -> None:
    """Remove data that no runtime needs: each operator's origin in Python, half of a small int8 file, and the zero
    points of biases, which are zero by definition."""
    model = need("onnx", "build").load(file)
    graph, int32 = model.graph, need("onnx", "build").TensorProto.INT32
    biases = {tensor.name for tensor in graph.initializer if tensor.data_type == int32}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in biases:
            del node.input[2:]
    tidy(model)
    save(model, file)


def _hold_ranges(student: Any, done: float) -> None:
    """Stop the moving averages once the share `done` of the epochs is large enough."""
    if done >= _RANGES_STAND_STILL_AFTER:
        student.apply(need("torchao.quantization.pt2e", "optimize").disable_observer)
