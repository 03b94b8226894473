"""Settings of a language model's answers, completed from its network and checked against it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.language import Generation

__all__ = ["cached_tokens", "generation_of", "token_bytes"]

_CONFIG = "config.json"
_CACHE_SETTINGS = {"cache_mib", "cache_precision", "context", "max_tokens"}
"""Keys of `serving.parameters` that leave the check of the cache's size to the server."""
_BLOCK = 32
"""Tokens of a page of the cache, in OpenVINO GenAI on a CPU."""


def generation_of(spec: Spec, artifact: Artifact) -> Generation:
    """The spec's settings, completed from the built network.

    Raises:
        RenderError: the network or the cache has fewer tokens than the spec requests.
    """
    generation = spec.model.serving.generation
    if _CONFIG not in artifact.files:
        return generation
    network = json.loads((artifact.folder / _CONFIG).read_text())
    positions = network["max_position_embeddings"]
    resolved = generation.resolved(positions)
    of_network = f"the network was made for {positions} tokens"
    _check(spec, "context", resolved.context, positions, of_network)
    _check(spec, "max_tokens", resolved.max_tokens, positions - 1, of_network)
    if not _CACHE_SETTINGS & spec.model.serving.parameters.keys():
        held = cached_tokens(network, generation.cache_mib)
        of_cache = f"serving.generation.cache_mib {generation.cache_mib} holds {held} tokens"
        _check(spec, "max_tokens", resolved.max_tokens, held - 1, of_cache)
    return resolved


def cached_tokens(network: Mapping[str, Any], mib: int) -> int:
    """Tokens whose keys and values fit in this many MiB, in whole pages; 0 below the two pages that the engine needs.

    Args:
        network: the config.json of a built network.
    """
    pages = mib * 2**20 // (token_bytes(network) * _BLOCK)
    return pages * _BLOCK if pages > 1 else 0


def token_bytes(network: Mapping[str, Any]) -> int:
    """Bytes of the keys and values of one token, in FP16."""
    heads: int = network["num_attention_heads"]
    size = network.get("head_dim") or network["hidden_size"] // heads
    values = 2 * network["num_hidden_layers"] * network.get("num_key_value_heads", heads) * size
    return 2 * int(values)


def _check(spec: Spec, key: str, value: int | None, most: int, reason: str) -> None:
    if value is not None and value > most:
        raise RenderError(
            f"{spec.file} serving.generation.{key}", found=str(value), wanted=f"at most {max(most, 0)}: {reason}"
        )
