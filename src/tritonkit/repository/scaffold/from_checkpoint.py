"""`tritonkit new --llm`: a folder for a checkpoint of a language model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tritonkit.repository.export.checkpoint import read_checkpoint
from tritonkit.repository.export.plain_files import require_room
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.render.language import token_bytes
from tritonkit.repository.scaffold.folder import refuse_taken, write_folder

__all__ = ["new_from_checkpoint"]

_CHECKPOINT = "checkpoint"
_CONTEXT = 4096
"""Tokens of prompt and answer that a new language model serves, even if its network was made for more."""
_SEQUENCES = 8
"""Sequences of that length for which the cache has room."""
_MIB = 1 << 20
_CACHE_STEP = 64 * _MIB


def new_from_checkpoint(root: Path, name: str, checkpoint: Path, say: Callable[[str], None] = lambda _: None) -> Path:
    """A folder below `models/` for a Hugging Face checkpoint of a causal language model, with a copy of it.

    The cache of keys and values has room for several sequences of the length that is served.
    """
    refuse_taken(root, name)
    source = read_checkpoint(checkpoint)
    context = min(source.context, _CONTEXT)
    cache = -(-_SEQUENCES * context * token_bytes(source.sizes) // _CACHE_STEP) * _CACHE_STEP
    size = sum(file.stat().st_size for file in source.files)
    require_room(root, size, str(checkpoint))
    say(f"{source.architecture}, {source.context} tokens: copying {format_bytes(size)} ...")
    settings = {
        "network": {"llm": {"checkpoint": _CHECKPOINT}},
        "serving": {"generation": {"context": context, "cache_mib": cache // _MIB}},
    }
    return write_folder(root, name, settings, {f"{_CHECKPOINT}/{f.name}": f for f in source.files})
