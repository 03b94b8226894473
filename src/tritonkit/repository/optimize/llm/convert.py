"""A checkpoint as the folder that a server reads: the network with its weights in few bits, and the tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.checkpoint import Checkpoint
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.optimize.llm.stateful import make_stateful
from tritonkit.repository.optimize.llm.traced import trace
from tritonkit.repository.optimize.openvino_core import PRECISION, PRECISION_ENTRY, Precision, first_reason, open_nncf
from tritonkit.repository.optimize.openvino_half import half_precision_notes, halve_weights

__all__ = ["FILE", "WEIGHTS", "Weights", "convert_checkpoint"]

Weights = Literal["fp32", "bf16", "int8", "int4"]
WEIGHTS: tuple[Weights, ...] = get_args(Weights)
FILE = "openvino_model.xml"
"""The network; its weights lie next to it in openvino_model.bin."""
_GROUP = 64
"""Number of INT4 weights that share a scale."""


def convert_checkpoint(checkpoint: Checkpoint, out: Path, weights: Weights = "fp32") -> tuple[str, ...]:
    """Write the network and the other files that a server needs into a folder; return notes for people.

    Args:
        weights: the form of the weights. "fp32" leaves them as they are, and "bf16" also computes in BF16 where the
            processor can; all others compute in FP32. "int8" has one scale for each row. "int4" has one for each 64
            weights of a row, with the first and last layers in INT8.

    Raises:
        BuildError: the network cannot be converted, or the engine cannot run it.
    """
    where = str(checkpoint.folder)
    model = trace(checkpoint.load(), where)
    make_stateful(model)
    model, notes = _compressed(model, weights, where)
    precision: Precision = "bf16" if weights == "bf16" else "f32"
    model.set_rt_info(precision, PRECISION_ENTRY)
    need("openvino", "optimize").save_model(model, out / FILE, compress_to_fp16=False)
    for file in checkpoint.carried:
        copy_file(file, out / file.name)
    (out / "config.json").write_text(checkpoint.configuration, encoding="utf-8")
    _check_runs(out, where, precision)
    return notes


def _compressed(model: Any, weights: Weights, where: str) -> tuple[Any, tuple[str, ...]]:
    if weights == "fp32":
        return model, ()
    if weights == "bf16":
        halve_weights(model)
        return model, half_precision_notes()
    nncf = open_nncf()
    modes = nncf.CompressWeightsMode
    options: dict[str, Any] = {"mode": modes.INT8_ASYM}
    if weights == "int4":
        # Rows whose size is not a multiple of the group's have smaller groups.
        fallback = nncf.AdvancedCompressionParameters(group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST)
        options = {"mode": modes.INT4_SYM, "group_size": _GROUP, "ratio": 1.0, "advanced_parameters": fallback}
    try:
        with quiet():
            return nncf.compress_weights(model, **options), ()
    except Exception as error:
        raise BuildError(
            where,
            found=f"its weights cannot be made {weights.upper()}: {first_reason(error)}",
            wanted="matrices that nncf compresses",
            todo="choose another variant",
        ) from error


def _check_runs(folder: Path, where: str, precision: Precision) -> None:
    """Let the engine read the files and generate a token, because some converted architectures have no paged form."""
    genai, ov = need("openvino_genai", "llm"), need("openvino", "optimize")
    import numpy as np

    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = 4
    try:
        pipeline = genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", {PRECISION: precision})
        options = genai.GenerationConfig()
        options.max_new_tokens, options.eos_token_id, options.stop_token_ids = 1, 0, {0}
        handle = pipeline.add_request(0, ov.Tensor(np.zeros((1, 2), np.int64)), options)
        while pipeline.has_non_finished_requests():
            pipeline.step()
        tokens = [token for output in handle.read_all() for token in output.generated_ids]
    except Exception as error:
        raise BuildError(
            where,
            found=f"the engine cannot run it: {first_reason(error)}",
            wanted="an architecture that OpenVINO GenAI runs with paged attention",
        ) from error
    if len(tokens) != 1:
        raise BuildError(where, found=f"the engine gave {len(tokens)} tokens for 1", wanted="1")
