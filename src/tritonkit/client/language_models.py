"""Language models as their tensors show them: the project's own, Triton's vLLM backend, TensorRT-LLM's LLM API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tritonkit.client.wire.signature import ModelSignature

__all__ = ["KINDS", "OWN", "TENSORRT_LLM", "VLLM", "TextTensors", "text_tensors"]


@dataclass(frozen=True, slots=True)
class TextTensors:
    """Tensors of one kind of language model.

    Args:
        inputs, outputs: names by which a model of the kind is recognized.
        text: the name of its input for a prompt.
        messages: the name of its input for a chat; empty: a template has to turn the chat into a prompt first.
    """

    inputs: frozenset[str]
    outputs: frozenset[str]
    text: str
    messages: str = ""

    def completes(self, signature: ModelSignature) -> bool:
        """Whether the model takes a prompt as text."""
        return self.text in signature.inputs and signature.inputs[self.text].datatype == "BYTES"


OWN: Final = TextTensors(
    frozenset(), frozenset({"text", "tokens", "finish_reason", "prompt_tokens"}), "text", "messages"
)
VLLM: Final = TextTensors(
    frozenset({"text_input", "stream", "sampling_parameters", "exclude_input_in_output", "return_finish_reason"}),
    frozenset({"text_output", "finish_reason"}),
    "text_input",
)
"""Triton's vLLM backend: src/model.py of triton-inference-server/vllm_backend."""
TENSORRT_LLM: Final = TextTensors(
    frozenset({"text_input", "streaming", "sampling_param_max_tokens", "return_finish_reason"}),
    frozenset({"text_output", "finish_reason"}),
    "text_input",
)
"""NVIDIA's model for TensorRT-LLM's LLM API: triton_backend/all_models/llmapi of NVIDIA/TensorRT-LLM."""
KINDS: Final = (OWN, VLLM, TENSORRT_LLM)


def text_tensors(signature: ModelSignature) -> TextTensors | None:
    """The kind of a language model; None for any other model."""
    for kind in KINDS:
        if signature.inputs.keys() >= kind.inputs and signature.outputs.keys() >= kind.outputs:
            return kind
    return None
