"""Names of images that stay the same image."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

__all__ = ["Image", "require_pinned"]


def require_pinned(image: str) -> str:
    """Refuse an image that may be another one tomorrow; ValueError."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    _, _, digest = image.partition("@")
    if digest.startswith("sha256:") and len(digest) == len("sha256:") + 64:
        return image
    if not name or not tag or tag == "latest" or "@" in image or any(c.isspace() for c in image):
        raise ValueError(
            f"{image!r}; wanted NAME:TAG with a tag other than latest, or NAME@sha256:..."
        )
    return image


Image = Annotated[str, AfterValidator(require_pinned)]
