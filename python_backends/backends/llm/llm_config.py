"""Settings of the engine from a model's configuration and files; settings that cannot be served are refused here.

The engine keeps keys and values in blocks of 32 tokens. With `f16` each token is stored independently. With `u8` they
take about half the memory, but the keys of a block share one scale for each channel, so an answer depends slightly on
the other sequences that the engine computes, which is visible in greedy answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend_config import ModelError, cores, text_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BLOCK = 32
"""Tokens of a block of the cache."""
_SCALE_BYTES = 8  # a scale and an offset
_LARGEST = 2**31 - 1
_FILES = ("openvino_model.xml", "openvino_model.bin", "config.json", "tokenizer.json")


@dataclass(frozen=True)
class Settings:
    """Settings for serving one model.

    Args:
        context: tokens of prompt and answer together.
        max_tokens: limit on answer tokens for requests without one.
        blocks: blocks of the cache, of 32 tokens each.
        max_sequences: most sequences that run concurrently; more wait.
        max_batched_tokens: most tokens in one step of the engine, prompts included.
        cache_precision: type of keys and values, `f16` or `u8`.
        precision: type of the computation, `f32` or `bf16`.
        prefix_cache: whether blocks of equal beginnings are computed once.
        threads: threads of the engine.
        max_waiting: most requests that may wait; one more is refused.
        static: whether a batch runs until its last sequence has ended.
        stop_tokens: tokens that end an answer; may be empty.
        vocabulary: number of tokens that the network knows.
    """

    context: int
    max_tokens: int
    blocks: int
    max_sequences: int
    max_batched_tokens: int
    cache_precision: str
    precision: str
    prefix_cache: bool
    threads: int
    max_waiting: int
    static: bool
    stop_tokens: frozenset[int]
    vocabulary: int

    @property
    def longest(self) -> int:
        """Most tokens of one sequence: those of the context for which the cache has room."""
        return min(self.context, self.blocks * BLOCK)


def read_settings(config: Mapping[str, Any], folder: Path) -> Settings:
    """The settings from `parameters` of the configuration and the files of the version's folder.

    Raises:
        ModelError: a file is missing, or a parameter has a wrong value.
    """
    _check_shape(config)
    for name in _FILES:
        if not (folder / name).is_file():
            raise ModelError(f"no file {folder / name}; a language model needs {', '.join(_FILES)}")
    network = read_json(folder / "config.json")
    knows = number_of(network, "max_position_embeddings")
    context = _number(config, "context", knows)
    if context > knows:
        raise _unfit("context", context, f"at most the {knows} of config.json's max_position_embeddings")
    precision = _choice(config, "cache_precision", ("f16", "u8"))
    sequences = _number(config, "max_sequences", 32)
    batched = _number(config, "max_batched_tokens", 256)
    if batched < sequences:
        raise _unfit("max_batched_tokens", batched, f"at least max_sequences, {sequences}")
    settings = Settings(
        context=context,
        max_tokens=_number(config, "max_tokens", min(256, context - 1)),
        blocks=_blocks(_number(config, "cache_mib", 512), block_bytes(network, precision)),
        max_sequences=sequences,
        max_batched_tokens=batched,
        cache_precision=precision,
        precision=_choice(config, "inference_precision", ("f32", "bf16")),
        prefix_cache=_choice(config, "prefix_cache", ("true", "false")) == "true",
        threads=_number(config, "threads", cores()),
        max_waiting=_number(config, "max_waiting", 256, least=0),
        static=_choice(config, "batching", ("continuous", "static")) == "static",
        stop_tokens=_stop_tokens(folder, network),
        vocabulary=number_of(network, "vocab_size"),
    )
    if settings.max_tokens >= settings.longest:
        room = f"fewer than the {settings.longest} tokens of context and cache"
        raise _unfit("max_tokens", settings.max_tokens, room)
    return settings


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty without a file."""
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ModelError(f"{path}: {error}; wanted JSON") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: found {type(value).__name__}, wanted a JSON object")
    return value


def number_of(network: Mapping[str, Any], key: str) -> int:
    """A whole number above 0 of config.json."""
    value = network.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"config.json: {key} is {value!r}, wanted a whole number above 0")
    return value


def block_bytes(network: Mapping[str, Any], precision: str) -> int:
    """Bytes of one block of the cache: keys and values of 32 tokens in every layer."""
    heads = number_of(network, "num_attention_heads")
    shared = number_of(network, "num_key_value_heads") if "num_key_value_heads" in network else heads
    size = network.get("head_dim") or number_of(network, "hidden_size") // heads
    values = 2 * BLOCK * size
    # In bytes, a scale for each channel of the keys, and one for each token of the values.
    one = 2 * values if precision == "f16" else values + _SCALE_BYTES * (size + BLOCK)
    return number_of(network, "num_hidden_layers") * shared * one


def _blocks(mib: int, one: int) -> int:
    """Number of blocks of `one` bytes for which there is room."""
    blocks = mib * 2**20 // one
    if blocks < 2:
        raise _unfit("cache_mib", mib, f"room for two blocks, {2 * one / 2**20:.1f} MiB")
    return blocks


def _check_shape(config: Mapping[str, Any]) -> None:
    """Refuse a configuration whose answers could not be streamed."""
    if int(config.get("max_batch_size", 0)):
        raise ModelError("max_batch_size: found above 0, wanted 0: each request is one sequence")
    if not config.get("model_transaction_policy", {}).get("decoupled"):
        raise ModelError("model_transaction_policy: found not decoupled, wanted decoupled: true")
    count = sum(int(group.get("count", 1)) for group in config.get("instance_group", []))
    if count > 1:
        raise ModelError(f"instance_group: found {count} instances, wanted one: it runs all sequences")


def _stop_tokens(folder: Path, network: Mapping[str, Any]) -> frozenset[int]:
    """`eos_token_id` of generation_config.json, else of config.json: a number, a list or nothing."""
    given = read_json(folder / "generation_config.json").get("eos_token_id")
    if given is None:
        given = network.get("eos_token_id")
    tokens = given if isinstance(given, list) else [] if given is None else [given]
    if not all(type(token) is int and token >= 0 for token in tokens):
        raise ModelError(f"eos_token_id: found {given!r}, wanted token IDs")
    return frozenset(tokens)


def _number(config: Mapping[str, Any], key: str, default: int, least: int = 1) -> int:
    text = text_parameter(config, key)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= _LARGEST:
        raise _unfit(key, text, f"a whole number from {least} to {_LARGEST}")
    return int(text)


def _choice(config: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    """One of the known words; the first if the configuration gives none."""
    text = text_parameter(config, key) or choices[0]
    if text not in choices:
        raise _unfit(key, text, " or ".join(choices))
    return text


def _unfit(key: str, found: object, wanted: str) -> ModelError:
    return ModelError(f"parameter {key}: found {found}, wanted {wanted}")
