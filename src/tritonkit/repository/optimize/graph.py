"""The artifact of a pipeline without a network of its own, whose networks are other specs."""

from __future__ import annotations

from dataclasses import replace

from tritonkit.repository.export.artifact import Artifact, Signature, sha256_json
from tritonkit.repository.export.cache import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.fingerprint import folder_digests

__all__ = ["GRAPH", "graph_artifact"]

GRAPH = "graph"
"""The variant's name."""


def graph_artifact(spec: Spec, cache: BuildCache, *, dry_run: bool = False) -> Artifact:
    """An artifact without files. Its place in the cache has the records of earlier builds, and its hash covers the
    spec's folder. A dry run does not keep it."""
    source_hash = sha256_json(folder_digests(spec.folder, skip={spec.file.name}))
    made = cache.find(spec.name, GRAPH, source_hash)
    if made is not None:
        return made
    planned = Artifact(spec.name, GRAPH, cache.folder, {}, Signature((), (), True), None, source_hash, {})
    if dry_run:
        return planned
    with cache.workplace(spec.name) as folder:
        return cache.store(replace(planned, folder=folder))
