"""Triton's releases: the number of a container (24.10), the version of its server (2.51), and their features."""

from __future__ import annotations

import re

__all__ = [
    "BOUNDED_QUEUES_WAKE",
    "EMBEDDED",
    "NVIDIA_IMAGE",
    "NVIDIA_IMAGE_VARIABLE",
    "Release",
    "python_of",
    "release_of_image",
    "release_of_server",
    "release_text",
    "to_release",
]

Release = tuple[int, int]
"""Year and month of a container: (24, 10)."""

EMBEDDED: Release = (24, 10)
"""The release of the embedded server, and of the images that `deploy/docker` builds on."""

NVIDIA_IMAGE = f"nvcr.io/nvidia/tritonserver:{EMBEDDED[0]}.{EMBEDDED[1]:02}-py3"
"""NVIDIA's image of that release, from which `deploy/docker` makes the stage server-nvidia."""

NVIDIA_IMAGE_VARIABLE = "TRITONKIT_NVIDIA_BASE"
"""The variable that chooses another image, for compose and for `tritonkit build`."""

BOUNDED_QUEUES_WAKE: Release = (26, 8)
"""The first release whose batcher of a bounded queue always notices an instance that becomes free."""

_NEWER_PYTHON: Release = (24, 11)
"""The first release on Ubuntu 24.04 with Python 3.12; those before have Ubuntu 22.04 with 3.10 (NVIDIA's Frameworks
Support Matrix)."""

# A server's minor version a month from 2.30 in 23.01 on; 25.07 has 2.59.1 and no minor of its own (TRITON_VERSION in
# the branches of triton-inference-server/server).
_FIRST_MONTH, _FIRST_MINOR = 23 * 12, 30
_WITHOUT_A_MINOR = 25 * 12 + 6


def to_release(text: str) -> Release:
    """`24.10` as a value; ValueError for any other text."""
    match = re.fullmatch(r"([2-9]\d)\.(0[1-9]|1[0-2])", text)
    if match is None:
        raise ValueError(f"found {text!r}; wanted a release of Triton as NVIDIA numbers its containers, such as 24.10")
    return int(match[1]), int(match[2])


def release_text(release: Release) -> str:
    """A release as NVIDIA writes it."""
    return f"{release[0]}.{release[1]:02}"


def release_of_image(image: str) -> Release | None:
    """The release in the tag of one of NVIDIA's images (`tritonserver:24.10-py3`, `...:24.10-trtllm-python-py3`), also
    of a copy in another registry; None for any other tag."""
    match = re.search(r":(\d\d\.\d\d)(?:\.\d+)?(?=-|$|@)", image)
    try:
        return to_release(match[1]) if match else None
    except ValueError:
        return None


def python_of(release: Release | None) -> str:
    """The Python of NVIDIA's image of a release, X.Y; that of `NVIDIA_IMAGE` where the release is unknown."""
    return "3.12" if (release or EMBEDDED) >= _NEWER_PYTHON else "3.10"


def release_of_server(version: str) -> Release | None:
    """The container that had a server of this version (`2.51.0`); None for any other text.

    Servers older than 2.30 count as 23.01: nothing here depends on the difference.
    """
    match = re.match(r"2\.(\d+)", version)
    if match is None:
        return None
    month = _FIRST_MONTH + max(0, int(match[1]) - _FIRST_MINOR)
    month += month >= _WITHOUT_A_MINOR or version.startswith("2.59.1")
    return month // 12, month % 12 + 1
