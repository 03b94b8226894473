"""The checkpoint of a spec: a folder that the spec names, or one that its function writes into the build's cache."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.artifact import sha256_json
from tritonkit.repository.export.checkpoint import Checkpoint, read_checkpoint
from tritonkit.repository.export.hooks import load_hook
from tritonkit.repository.export.torch_module import seed_all
from tritonkit.repository.modelspec import Spec, resolve_file
from tritonkit.repository.optimize.fingerprint import folder_digests, network_facts, tool_versions

__all__ = ["find_checkpoint"]

_KEPT = "checkpoint"


def find_checkpoint(spec: Spec, cache: Path, *, fresh: bool, say: Callable[[str], None]) -> Checkpoint:
    """The checkpoint that the spec's variants are made from.

    Args:
        cache: the model's folder in the build's cache.
        fresh: whether to train it again even if it is cached.

    Raises:
        BuildError: the checkpoint cannot be read, or the function that writes it fails.
    """
    source = spec.model.network.llm
    assert source is not None  # noqa: S101  the caller has looked
    if source.checkpoint is not None:
        resolve_file(f"{source.checkpoint}/config.json", spec, "network.llm.checkpoint")
        return read_checkpoint((spec.folder / source.checkpoint).resolve())
    place = cache / f"{_KEPT}-{_hash(spec)}"
    if not place.is_dir() or fresh:
        say("training")
        _train(spec, place)
    return read_checkpoint(place)


def _train(spec: Spec, place: Path) -> None:
    """Let the spec's function write the folder, and move it into place once it is complete."""
    hook = str(spec.model.hooks["network.llm.train"])
    for old in place.parent.glob(f"{_KEPT}-*"):
        shutil.rmtree(old, ignore_errors=True)
    unfinished = place.with_name(f".{place.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    seed_all(need("torch", "build"))
    load_hook(spec, hook, "network.llm.train")(unfinished)
    if not (unfinished / "config.json").is_file():
        raise BuildError(
            f"{spec.file} network.llm.train",
            found=f"{hook} wrote no config.json",
            wanted="a folder as save_pretrained of transformers writes it",
        )
    unfinished.rename(place)


def _hash(spec: Spec) -> str:
    tools = tool_versions(spec, ("transformers", "tokenizers"))
    facts = {
        "network": network_facts(spec.model.network),
        "folder": folder_digests(spec.folder, skip={spec.file.name}),
        "tools": {name: tools.get(name) for name in ("python", "torch", "transformers", "tokenizers")},
    }
    return sha256_json(facts)[:16]
