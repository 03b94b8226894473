"""The artifacts that belong to a spec as it is now, whatever built them: libraries of this machine, or a container."""

from __future__ import annotations

from tritonkit.repository.export.cache import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.container import Container
from tritonkit.repository.optimize.make import BuildPlan, plan
from tritonkit.repository.optimize.variants import Variant, in_container, variant_of

__all__ = ["as_built", "find_built"]


def find_built(spec: Spec, cache: BuildCache, variant: str | Variant) -> BuildPlan:
    """The plan whose artifact is the newest of those that are up to date; without one, the plan of this machine."""
    variant = variant_of(spec, variant)
    for artifact in cache.records(spec.name, variant.name):
        image = artifact.tools.get("image")
        what = plan(spec, cache, variant=in_container(variant, Container(image)) if image else variant)
        if what.cached is not None and what.source_hash == artifact.source_hash:
            return what
    return plan(spec, cache, variant=variant)


def as_built(spec: Spec, cache: BuildCache, variant: str | Variant) -> Variant:
    """The variant, made as its newest artifact was, if that is up to date; else made on this machine."""
    variant = variant_of(spec, variant)
    in_images = any("image" in artifact.tools for artifact in cache.records(spec.name, variant.name))
    return find_built(spec, cache, variant).variant if in_images else variant
