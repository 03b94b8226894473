"""Image names that always mean the same image."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

__all__ = ["Image", "require_pinned", "tagged"]

_IMAGE = re.compile(r"""(?m)^[ -]*image: *(?:\{reference: *)?["']?([^\s"'#,}]+)""")


def require_pinned(image: str) -> str:
    """Raise ValueError for an image name that may later mean another image."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    _, _, digest = image.partition("@")
    if digest.startswith("sha256:") and len(digest) == len("sha256:") + 64:
        return image
    if not name or not tag or tag == "latest" or "@" in image or any(c.isspace() for c in image):
        raise ValueError(f"{image!r}; wanted NAME:TAG with a tag other than latest, or NAME@sha256:...")
    return image


def tagged(texts: Iterable[str]) -> list[str]:
    """The images that manifests name by a tag alone, which a registry can move to another image."""
    images = {name for text in texts for name in _IMAGE.findall(text)}
    return sorted(name for name in images if "@sha256:" not in name)


Image = Annotated[str, AfterValidator(require_pinned)]
