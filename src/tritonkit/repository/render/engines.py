"""The files that an engine on GPUs reads in addition to its config.pbtxt, and the model that Triton sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Artifact, TensorInfo
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.engines import ENGINES, Engine, EngineName
from tritonkit.repository.modelspec.language import Generation
from tritonkit.resources import shipped

__all__ = [
    "BACKENDS",
    "KINDS",
    "engine_files",
    "engine_of",
    "engine_parameters",
    "engine_tensors",
    "engine_texts",
    "weights_at",
]

BACKENDS: Mapping[EngineName, str] = {"vllm": "vllm", "tensorrt-llm": "python"}
"""The engine's backend in Triton. TensorRT-LLM's LLM API comes as a model of the Python backend."""
KINDS: Mapping[EngineName, Literal["cpu", "model"]] = {"vllm": "model", "tensorrt-llm": "cpu"}
"""Kind of the only instance: both engines place the network on the GPUs themselves."""
_PARAMETERS: Mapping[EngineName, Mapping[str, str]] = {"vllm": {"REPORT_CUSTOM_METRICS": "true"}, "tensorrt-llm": {}}
_FILES: Mapping[EngineName, str] = {"vllm": "model.json", "tensorrt-llm": "model.yaml"}
"""Files that hold JSON in both cases, which is also YAML."""
_LLMAPI = "python_backends/tensorrt_llm/model.py"
_NGRAM = 4
"""Number of tokens that must match before earlier text is used as a guess."""


def engine_of(artifact: Artifact) -> EngineName | None:
    """The engine that the variant is for."""
    return next((name for name in ENGINES if name == artifact.variant), None)


def engine_tensors(name: EngineName) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Inputs and outputs of the engine's model."""
    tensors = ENGINES[name]
    inputs = tuple(TensorInfo(*tensor, optional=index > 0) for index, tensor in enumerate(tensors.inputs))
    return inputs, tuple(TensorInfo(*tensor) for tensor in tensors.outputs)


def engine_parameters(name: EngineName) -> Mapping[str, str]:
    """Parameters of the engine's config.pbtxt."""
    return _PARAMETERS[name]


def engine_files(name: EngineName) -> Mapping[str, Path]:
    """Files of the version that are the same for every model."""
    return {"model.py": shipped(_LLMAPI)} if name == "tensorrt-llm" else {}


def engine_texts(spec: Spec, artifact: Artifact, name: EngineName) -> dict[str, bytes]:
    """Files of the version with the spec's settings, without those that the spec leaves open.

    Raises:
        RenderError: the engine cannot do what the spec requests.
    """
    generation = spec.model.serving.generation
    _check(spec, artifact, generation)
    arguments = _ARGUMENTS[name](generation, generation.gpu) | {"model": weights_at(spec)}
    text = json.dumps(arguments, indent=1, sort_keys=True) + "\n"
    return {_FILES[name]: text.encode()}


def weights_at(spec: Spec) -> str:
    """The place where the server finds the checkpoint."""
    return spec.model.serving.generation.gpu.checkpoint or f"/checkpoints/{spec.name}"


def _check(spec: Spec, artifact: Artifact, generation: Generation) -> None:
    where = f"{spec.file} serving.generation"
    if generation.batching == "static":
        raise RenderError(
            f"{where}.batching",
            found="static, with a target that has GPUs",
            wanted="continuous, the engine's only mode",
            todo="remove it, or leave --target out",
        )
    gpu = generation.gpu
    one_gpu = any(group.kind == "gpu" for group in spec.model.serving.instance_group)
    if one_gpu and gpu.tensor_parallel * gpu.pipeline_parallel > 1:
        raise RenderError(
            f"{spec.file} serving.instance_group",
            found="kind gpu, which is one GPU for each instance",
            wanted=f"kind {KINDS[gpu.name]}: {gpu.tensor_parallel} x {gpu.pipeline_parallel} GPUs share it",
            todo="remove kind",
        )
    if "config.json" not in artifact.files:
        return
    positions = json.loads((artifact.folder / "config.json").read_text()).get("max_position_embeddings")
    if generation.context and isinstance(positions, int) and generation.context > positions:
        raise RenderError(
            f"{where}.context",
            found=str(generation.context),
            wanted=f"at most {positions}: the network was made for {positions} tokens",
        )


def _chosen_settings(generation: Generation, names: Mapping[str, str]) -> dict[str, Any]:
    """The spec's settings by the engine's names. Settings that it leaves open stay the engine's, because our defaults
    are made for CPUs."""
    chosen = generation.model_fields_set
    return {
        theirs: getattr(generation, ours)
        for ours, theirs in names.items()
        if ours in chosen and getattr(generation, ours) is not None
    }


def _vllm(generation: Generation, gpu: Engine) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs (docs.vllm.ai, Engine Arguments)."""
    names = {
        "context": "max_model_len",
        "max_sequences": "max_num_seqs",
        "max_batched_tokens": "max_num_batched_tokens",
    }
    arguments = _chosen_settings(generation, names) | {
        "disable_log_stats": False,  # of which the backend makes its metrics
        "dtype": gpu.dtype,
        "enable_chunked_prefill": gpu.chunked_prefill,
        "enable_prefix_caching": generation.prefix_cache,
        "gpu_memory_utilization": gpu.cache_fraction,
        "pipeline_parallel_size": gpu.pipeline_parallel,
        "tensor_parallel_size": gpu.tensor_parallel,
    }
    if guess := gpu.speculation:
        how = (
            {"method": "draft_model", "model": guess.draft}
            if guess.draft
            else {"method": "ngram", "prompt_lookup_max": _NGRAM}
        )
        arguments["speculative_config"] = {"num_speculative_tokens": guess.tokens, **how}
    return arguments


def _tensorrt_llm(generation: Generation, gpu: Engine) -> dict[str, Any]:
    """Arguments of tensorrt_llm.LLM, and of NVIDIA's model for it (its model.yaml)."""
    names = {"context": "max_seq_len", "max_sequences": "max_batch_size", "max_batched_tokens": "max_num_tokens"}
    arguments = _chosen_settings(generation, names) | {
        "backend": "pytorch",
        "dtype": gpu.dtype,
        "enable_chunked_prefill": gpu.chunked_prefill,
        "kv_cache_config": {
            "enable_block_reuse": generation.prefix_cache,
            "free_gpu_memory_fraction": gpu.cache_fraction,
        },
        "pipeline_parallel_size": gpu.pipeline_parallel,
        "tensor_parallel_size": gpu.tensor_parallel,
        "triton_config": {"decoupled": True, "max_batch_size": 0},
    }
    if guess := gpu.speculation:
        how = (
            {"decoding_type": "Draft_Target", "speculative_model": guess.draft}
            if guess.draft
            else {"decoding_type": "NGram", "max_matching_ngram_size": _NGRAM}
        )
        arguments["speculative_config"] = {"max_draft_len": guess.tokens, **how}
    return arguments


_ARGUMENTS: Mapping[EngineName, Callable[[Generation, Engine], dict[str, Any]]] = {
    "vllm": _vllm,
    "tensorrt-llm": _tensorrt_llm,
}
