"""A local Hugging Face folder of a causal language model, read without running any code from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.chat import check_chat
from tritonkit.repository.export.checkpoint_config import SIZES, check_sizes, load_network, read_config, read_facts
from tritonkit.repository.export.checkpoint_files import (
    carried_files,
    check_files,
    check_weights,
    read_json,
    weight_files,
)
from tritonkit.resources import shipped_modules

__all__ = ["CARRIED", "Checkpoint", "read_checkpoint"]

CARRIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""Files that a server needs in addition to the network; the second and the last may be absent."""
_NEEDED = ("config.json", "tokenizer.json")
_MORE_SIZES = ("num_key_value_heads", "head_dim")
"""Further sizes of some networks, which decide the memory of keys and values."""
_WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
"""Kind of layer -> the key with its window size; without `layer_types` all layers are of the first kind."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's folder after its checks.

    Args:
        folder: the folder with its files.
        architecture: transformers' class, such as LlamaForCausalLM.
        sizes: the network's sizes, by the names that most configurations give them.
    """

    folder: Path
    architecture: str
    sizes: Mapping[str, int]

    @property
    def context(self) -> int:
        """Positions to serve, in tokens: as many as the network was made for, but no more than its window."""
        return self.sizes["max_position_embeddings"]

    @property
    def configuration(self) -> str:
        """Its config.json, with the sizes under their usual names too."""
        facts = read_json(self.folder / "config.json") | dict(self.sizes)
        return json.dumps(facts, indent=1, sort_keys=True) + "\n"

    @property
    def carried(self) -> list[Path]:
        """The files that a server needs in addition to the network."""
        return carried_files(self.folder, CARRIED)

    @property
    def files(self) -> list[Path]:
        """Files of the folder that are used: weights, and those that a server needs in addition."""
        return [*self.carried, *weight_files(self.folder)]

    def load(self) -> Any:
        """The network as a transformers module in evaluation mode, in FP32.

        Raises:
            BuildError: the weights cannot be read, or do not fit the configuration.
        """
        module, missing = load_network(self.folder, "AutoModelForCausalLM", attn_implementation="sdpa")
        if missing:
            raise BuildError(
                str(self.folder),
                found=f"no weights for {missing[0]} and {len(missing) - 1} more",
                wanted="all weights that its config.json requires",
            )
        return module


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder, and refuse a checkpoint that cannot be served.

    Raises:
        BuildError: a file is missing, unreadable, or outside the folder; the weights are pickles, or files shorter or
            longer than their header says; the architecture is not one of transformers' causal language models, or
            comes with its own code; the chat template cannot be served.
    """
    check_files(folder, _NEEDED, CARRIED)
    check_weights(folder)
    facts, architecture = read_facts(folder)
    transformers = need("transformers", "models")
    architectures = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if architecture not in architectures.values() or facts.get("is_encoder_decoder"):
        raise BuildError(
            f"{folder / 'config.json'} architectures",
            found=architecture,
            wanted="a causal language model of transformers, such as LlamaForCausalLM",
            todo="for an encoder: tritonkit new NAME --hf FOLDER",
        )
    config = read_config(folder)
    values = {name: getattr(config, name, None) for name in (*SIZES, *_MORE_SIZES)}
    sizes = {name: size for name, size in values.items() if isinstance(size, int)}
    if unknown := [name for name in SIZES if name not in sizes]:
        raise BuildError(
            str(folder / "config.json"),
            found=f"{architecture} without {unknown[0]}",
            wanted="a network whose layers have attention, with keys and values",
        )
    check_sizes(folder / "config.json", sizes)
    _check_tokenizer(folder)
    # The traced network attends to all earlier tokens, which is the same as long as the window holds all of them.
    sizes["max_position_embeddings"] = min([sizes["max_position_embeddings"], *_windows(config)])
    return Checkpoint(folder, architecture, sizes)


def _windows(config: Any) -> Iterator[int]:
    """Window sizes, in tokens, of layers with a bounded window."""
    layers = getattr(config, "layer_types", None)
    for kind, key in _WINDOWS.items():
        window = getattr(config, key, None)
        if isinstance(window, int) and window > 0 and (layers is None or kind in layers):
            yield window


def _check_tokenizer(folder: Path) -> None:
    """Check that the tokenizer and the chat template can be served, whatever their input."""
    [tokenizer] = shipped_modules(["python_backends/backends/llm"], "llm_tokenizer")
    if why := tokenizer.refusal(read_json(folder / "tokenizer.json")):
        raise BuildError(
            str(folder / "tokenizer.json"),
            found=why,
            wanted="a tokenizer whose work is bounded by the length of the text",
            todo="copy the tokenizer again from the original checkpoint",
        )
    file = folder / "tokenizer_config.json"
    check_chat(folder, read_json(file) if file.exists() else {})
