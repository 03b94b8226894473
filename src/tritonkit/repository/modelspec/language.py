"""Settings in `model.yaml` of a causal language model: the source of its weights, and how it generates."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tritonkit.datatypes import DataType
from tritonkit.repository.modelspec.base import Hook, InnerPath, Strict
from tritonkit.repository.modelspec.engines import Engine

__all__ = ["LANGUAGE_INPUTS", "LANGUAGE_OUTPUTS", "Generation", "LanguageModel"]

LANGUAGE_INPUTS: tuple[tuple[str, DataType, tuple[int, ...]], ...] = (
    ("text", "BYTES", (1,)),
    ("messages", "BYTES", (1,)),
    ("max_tokens", "INT32", (1,)),
    ("min_tokens", "INT32", (1,)),
    ("temperature", "FP32", (1,)),
    ("top_p", "FP32", (1,)),
    ("top_k", "INT32", (1,)),
    ("repetition_penalty", "FP32", (1,)),
    ("presence_penalty", "FP32", (1,)),
    ("frequency_penalty", "FP32", (1,)),
    ("seed", "INT64", (1,)),
    ("stop", "BYTES", (-1,)),
    ("ignore_eos", "BOOL", (1,)),
    ("logprobs", "BOOL", (1,)),
    ("response_format", "BYTES", (1,)),
    ("tools", "BYTES", (1,)),
    ("tool_choice", "BYTES", (1,)),
)
"""Inputs of every language model. A request gives text or messages, and any of the others."""
LANGUAGE_OUTPUTS: tuple[tuple[str, DataType, tuple[int, ...]], ...] = (
    ("text", "BYTES", (1,)),
    ("tokens", "INT64", (-1,)),
    ("logprobs", "FP32", (-1,)),
    ("finish_reason", "BYTES", (1,)),
    ("prompt_tokens", "INT32", (1,)),
)
"""Outputs of each answer in the stream. Only the last answer has the last two; logprobs come on request."""

_MAX_TOKENS = 128
Tokens = Annotated[int, Field(ge=1, le=1 << 24, strict=True)]


class LanguageModel(Strict):
    """The source of the checkpoint: exactly one of these."""

    checkpoint: InnerPath | None = None
    """A folder as Hugging Face's save_pretrained writes it, with safetensors and a fast tokenizer."""
    train: Hook | None = None
    """Function that takes a pathlib.Path and writes such a folder there; the build seeds every generator."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.checkpoint is None) == (self.train is None):
            raise ValueError("wanted exactly one of checkpoint and train")
        return self


class Generation(Strict):
    """Settings of generation, in which requests join and leave the running batch at every token."""

    context: Annotated[int, Field(ge=2, le=1 << 24, strict=True)] | None = None
    """Tokens of prompt and answer together; by default as many as the network was made for."""
    max_tokens: Tokens | None = None
    """Default limit on answer tokens, for requests without one; if unset, 128, or half the context if that is less."""
    cache_mib: Annotated[int, Field(ge=1, le=1 << 20, strict=True)] = 256
    """Memory for keys and values of all sequences, in pages that they share."""
    max_sequences: Annotated[int, Field(ge=1, le=4096, strict=True)] = 64
    """Most sequences in the running batch."""
    max_batched_tokens: Annotated[int, Field(ge=1, le=1 << 20, strict=True)] = 512
    """Most tokens in one step: a longer prompt takes several steps, between which other requests continue."""
    max_waiting: Annotated[int, Field(ge=0, le=1 << 20, strict=True)] = 1024
    """Most requests that may wait for a place; further ones are refused as UNAVAILABLE."""
    prefix_cache: bool = True
    """Keep the keys and values of prompts, for other prompts with the same beginning."""
    batching: Literal["continuous", "static"] = "continuous"
    """static: run each batch until its last sequence has ended, and only then the next; for comparison."""
    gpu: Engine = Engine()
    """Settings of the engine in NVIDIA's image that serves it on GPUs (`--target nvidia`)."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.context and self.max_tokens and self.max_tokens >= self.context:
            raise ValueError(
                f"max_tokens is {self.max_tokens}, context is {self.context}; wanted fewer, for a prompt too"
            )
        if self.max_batched_tokens < self.max_sequences:
            raise ValueError(
                f"max_batched_tokens is {self.max_batched_tokens}, max_sequences is {self.max_sequences};"
                " wanted one for each sequence"
            )
        given = "max_batched_tokens" in self.model_fields_set
        if given and not self.gpu.chunked_prefill and self.max_batched_tokens < (self.context or 0):
            raise ValueError(
                f"max_batched_tokens is {self.max_batched_tokens}, context is {self.context};"
                " wanted room for a whole prompt, or gpu.chunked_prefill: true"
            )
        return self

    def resolved(self, positions: int) -> Generation:
        """The settings with `context` and `max_tokens` filled in, for a network with this many positions."""
        context = self.context or positions
        max_tokens = self.max_tokens or min(_MAX_TOKENS, context // 2)
        return self.model_copy(update={"context": context, "max_tokens": max_tokens})

    def parameters(self) -> dict[str, str]:
        """Parameters of the backend `llm`, as Triton carries them."""
        facts = self.model_dump(mode="json", exclude_none=True, exclude={"gpu"})
        return {key: _text(value) for key, value in facts.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
