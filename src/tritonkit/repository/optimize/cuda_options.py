"""Options of ONNX Runtime and its CUDA provider, with which target gpu judges and serves a variant."""

from __future__ import annotations

from pathlib import Path

from tritonkit.repository.export.artifact import Artifact, Signature
from tritonkit.repository.export.onnx_file import graphs, parse
from tritonkit.repository.modelspec import Spec

__all__ = ["cuda_options", "default_options", "has_convolutions", "session_entries", "takes_graphs"]

_TF32 = "onnx-tf32"
"""The form whose products are computed in TF32."""
_BACKEND = {"cudnn_conv_algo_search": "HEURISTIC"}
"""Defaults of tritonkit's backend, which differ from ONNX Runtime's."""
_PARAMETERS = ("arena_extend_strategy", "cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "gpu_mem_limit")
"""Parameters of a model that NVIDIA's onnxruntime backend reads too."""
_SEARCHES = {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}
_EXTENSIONS = {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"}
_FLOATS = {"session.disable_quant_qdq": "1"}
"""The entry of a session that leaves QDQ pairs as they are. By default ONNX Runtime (1.31) prepares them for integer
kernels, which its CUDA provider lacks: biases become INT32, which CUDA has no DequantizeLinear for, so that the CPU
computes them and no CUDA graph is possible. Weights are also unpacked at each run, and with the entry when loaded."""


def default_options(variant: str, convolutions: bool) -> dict[str, str]:
    """The provider's options that a build chooses for a variant, with or without convolutions.

    Tensor cores compute convolutions with channels last. FP32 is computed as FP32, as on the CPU, unless the variant
    is TF32.
    """
    layout = {"prefer_nhwc": "1"} if convolutions else {}
    return {**layout, "use_tf32": str(int(variant.rpartition("+")[2] == _TF32))}


def cuda_options(spec: Spec, artifact: Artifact) -> dict[str, str]:
    """The provider's options for a variant's model.onnx, by ONNX Runtime's names.

    Those of the spec come last: a model's `parameters` by the names of NVIDIA's backend, then the parameters of the
    accelerator `cuda`.
    """
    serving = spec.model.serving
    own = {name: serving.parameters[name] for name in _PARAMETERS if name in serving.parameters}
    for name, words in (("cudnn_conv_algo_search", _SEARCHES), ("arena_extend_strategy", _EXTENSIONS)):
        if name in own:
            own[name] = words.get(own[name], own[name])
    for accelerator in serving.optimization.gpu_execution_accelerator:
        if accelerator.name == "cuda":
            own |= accelerator.parameters
    convolutions = has_convolutions(artifact.folder / "model.onnx")
    return _BACKEND | default_options(artifact.variant, convolutions) | own


def takes_graphs(signature: Signature) -> bool:
    """Whether a network can have a CUDA graph for each batch size: all its other sizes are fixed."""
    return all(size >= 0 for tensor in (*signature.inputs, *signature.outputs) for size in tensor.shape)


def has_convolutions(file: Path) -> bool:
    """Whether an ONNX file has convolutions."""
    return any("Conv" in operator for operator in _operators(file))


def session_entries(file: Path) -> dict[str, str]:
    """Entries of a session's configuration for an ONNX file on a GPU."""
    return dict(_FLOATS) if "QuantizeLinear" in _operators(file) else {}


def _operators(file: Path) -> set[str]:
    return {node.op_type for graph in graphs(parse(file)) for node in graph.node}
