"""Small causal language models with random weights, as folders of Hugging Face."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 300
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
CONFIGURATIONS: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**SIZES, num_key_value_heads=2),
    "mistral": transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=None),
    "qwen2": transformers.Qwen2Config(**SIZES, num_key_value_heads=2),
    "qwen3": transformers.Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=16),
    "gptneox": transformers.GPTNeoXConfig(**SIZES),
    "opt": transformers.OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        ffn_dim=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        word_embed_proj_dim=64,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    ),
    "phi": transformers.PhiConfig(**SIZES),
    "phi3": transformers.Phi3Config(**SIZES, sliding_window=None),
    "olmo2": transformers.Olmo2Config(**SIZES),
    "granite": transformers.GraniteConfig(**SIZES),
    "gpt2": transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=128, bos_token_id=0, eos_token_id=0
    ),
}


def write_checkpoint(folder: Path, name: str = "llama") -> Path:
    """A network whose answers do not settle on one token immediately, and a byte-level tokenizer."""
    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(CONFIGURATIONS[name]).eval()
    for weight in network.parameters():
        weight.data *= 3 if weight.dim() > 1 else 1
    network.save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the cat sat on the mat, and then the dog came"] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def change(folder: Path, **keys: object) -> None:
    """Change keys of config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))
