"""Changes of the network itself, in a table: another module, trained, from which any form can be made."""

from __future__ import annotations

from tritonkit.export.transform import Transform
from tritonkit.optimize.transforms import distilled, pruned, teacher

__all__ = ["TRANSFORMS", "Transform"]

TRANSFORMS: dict[str, Transform] = {
    **teacher.TRANSFORMS,
    **pruned.TRANSFORMS,
    **distilled.TRANSFORMS,
}
