"""A language model of a real one's size with random weights: nonsense takes as long as sense."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.programs import ROOT
from tritonkit.repository.pipeline import build_repository

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CONTINUOUS", "MAX_SEQUENCES", "MAX_TOKENS", "STATIC", "built"]

CONTINUOUS, STATIC = "continuous", "static"
MAX_SEQUENCES, MAX_TOKENS, CACHE_MIB = 32, 256, 1024
_CONTEXT = 2048
_SHAPE: Mapping[str, int] = {
    "hidden_size": 960,
    "intermediate_size": 2560,
    "num_hidden_layers": 32,
    "num_attention_heads": 15,
    "num_key_value_heads": 5,
    "max_position_embeddings": _CONTEXT,
}
"""The shape of SmolLM2-360M, which also has a vocabulary of 49,152 (config.json of HuggingFaceTB/SmolLM2-360M)."""
_VOCABULARY = 49_152
_TEXTS = '''"""Texts for the gate: with random weights it can only say that INT8 changes little."""


def few():
    """Two texts."""
    return [" ".join(f"w{3 * k + first}" for k in range(64)) for first in (5, 6)]
'''
_SPEC = """name: {name}
network: {{llm: {{checkpoint: checkpoint}}}}
quality: {{samples: "texts:few", max_drop: 0.1}}
serving:
  variant: llm-int8
  generation:
    {{context: {context}, max_tokens: {max_tokens}, cache_mib: {cache}, max_sequences: {sequences}, batching: {name}}}
"""


def built() -> Path:
    """The repository with the network twice: with continuous and with static batching; it is made on first use."""
    shape = f"{_SHAPE['hidden_size']}x{_SHAPE['num_hidden_layers']}"
    project = ROOT / ".tritonkit" / "bench" / f"generate-{shape}"
    for name in (CONTINUOUS, STATIC):
        folder = project / "models" / name
        # Written last, so it exists only if everything else does.
        if not (folder / "checkpoint" / "tokenizer.json").exists():
            _write_checkpoint(folder / "checkpoint")
        (folder / "texts.py").write_text(_TEXTS)
        (folder / "model.yaml").write_text(
            _SPEC.format(name=name, context=_CONTEXT, max_tokens=MAX_TOKENS, cache=CACHE_MIB, sequences=MAX_SEQUENCES)
        )
    return build_repository(project).path


def _write_checkpoint(folder: Path) -> None:
    """Seeded random weights, and a tokenizer of whole words: w0, w1, ... are a token each."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=_VOCABULARY, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=0, **_SHAPE
    )
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    words = {f"w{number}": number for number in range(_VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))  # noqa: S106 - a word
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
