"""Settings in `model.yaml` of a language model on GPUs, where an engine of NVIDIA's images serves the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tritonkit.datatypes import DataType
from tritonkit.repository.modelspec.base import Strict

__all__ = ["ENGINES", "Engine", "EngineName", "EngineTensors", "Speculation"]

EngineName = Literal["vllm", "tensorrt-llm"]
Count = Annotated[int, Field(ge=1, le=1024, strict=True)]
Path = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f]+$")]


@dataclass(frozen=True)
class EngineTensors:
    """Inputs and outputs of the engine's model: name, dtype, shape. All inputs but the first are optional."""

    inputs: tuple[tuple[str, DataType, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, DataType, tuple[int, ...]], ...]


_TEXT: tuple[str, DataType, tuple[int, ...]] = ("text_output", "BYTES", (-1,))
_REASON: tuple[str, DataType, tuple[int, ...]] = ("finish_reason", "BYTES", (-1,))
_LIKELIHOOD: tuple[str, DataType, tuple[int, ...]] = ("cumulative_logprob", "FP32", (-1,))

# src/model.py of triton-inference-server/vllm_backend; triton_backend/all_models/llmapi of NVIDIA/TensorRT-LLM.
ENGINES: Mapping[EngineName, EngineTensors] = {
    "vllm": EngineTensors(
        inputs=(
            ("text_input", "BYTES", (1,)),
            ("stream", "BOOL", (1,)),
            ("sampling_parameters", "BYTES", (1,)),
            ("exclude_input_in_output", "BOOL", (1,)),
            ("return_finish_reason", "BOOL", (1,)),
            ("return_cumulative_logprob", "BOOL", (1,)),
            ("return_logprobs", "BOOL", (1,)),
            ("return_num_input_tokens", "BOOL", (1,)),
            ("return_num_output_tokens", "BOOL", (1,)),
        ),
        outputs=(
            _TEXT,
            _REASON,
            _LIKELIHOOD,
            ("logprobs", "BYTES", (-1,)),
            ("num_input_tokens", "UINT32", (1,)),
            ("num_output_tokens", "UINT32", (-1,)),
        ),
    ),
    "tensorrt-llm": EngineTensors(
        inputs=(
            ("text_input", "BYTES", (-1,)),
            ("streaming", "BOOL", (1,)),
            ("sampling_param_best_of", "INT32", (1,)),
            ("sampling_param_temperature", "FP32", (1,)),
            ("sampling_param_top_k", "INT32", (1,)),
            ("sampling_param_top_p", "FP32", (1,)),
            ("sampling_param_frequency_penalty", "FP32", (1,)),
            ("sampling_param_presence_penalty", "FP32", (1,)),
            ("sampling_param_max_tokens", "INT32", (1,)),
            ("sampling_param_stop", "BYTES", (-1,)),
            ("sampling_param_seed", "UINT64", (1,)),
            ("sampling_param_exclude_input_from_output", "BOOL", (1,)),
            ("return_finish_reason", "BOOL", (1,)),
            ("return_stop_reason", "BOOL", (1,)),
            ("return_cumulative_logprob", "BOOL", (1,)),
            ("stop", "BOOL", (1,)),
        ),
        outputs=(_TEXT, _REASON, ("stop_reason", "BYTES", (-1,)), _LIKELIHOOD),
    ),
}


class Speculation(Strict):
    """Guess several tokens and let the network check them in one step."""

    tokens: Annotated[int, Field(ge=1, le=32, strict=True)]
    """Number of tokens guessed in one step."""
    draft: Path | None = None
    """A smaller checkpoint that guesses: a folder on the server, or a name on Hugging Face's Hub. Without it, the guess
    is the text that followed the same tokens earlier in prompt and answer."""


class Engine(Strict):
    """Settings of the engine in NVIDIA's image that serves it on GPUs (`--target nvidia`)."""

    name: EngineName = "vllm"
    checkpoint: Path | None = None
    """The place of the checkpoint on the server; /checkpoints/NAME by default."""
    tensor_parallel: Count = 1
    """Number of GPUs that share each layer."""
    pipeline_parallel: Count = 1
    """Number of groups of GPUs, each of which has a part of the layers."""
    cache_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory: with vllm for weights, activations and cache; with tensorrt-llm for the cache, of the
    memory that weights and activations leave."""
    chunked_prefill: bool = True
    """Split a long prompt into several steps, between which other requests continue."""
    dtype: Literal["auto", "bfloat16", "float16"] = "auto"
    """Type in which it computes; auto: the checkpoint's."""
    speculation: Speculation | None = None
