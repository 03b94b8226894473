"""Changes of the network itself, in a table: another module, trained, from which any form can be made."""

from __future__ import annotations

from tritonkit.build.transforms import distilled, pruned, teacher
from tritonkit.build.transforms.transform import Transform

__all__ = ["TRANSFORMS", "Transform"]

TRANSFORMS: dict[str, Transform] = {
    **teacher.TRANSFORMS,
    **pruned.TRANSFORMS,
    **distilled.TRANSFORMS,
}
