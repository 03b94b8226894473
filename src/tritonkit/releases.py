"""Triton's releases: the number of a container (24.10), the version of its server (2.51), and their features."""

from __future__ import annotations

import re

__all__ = [
    "BOUNDED_QUEUES_WAKE",
    "EMBEDDED",
    "NVIDIA_IMAGE",
    "NVIDIA_IMAGE_VARIABLE",
    "Release",
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
"""The variable that chooses another image, for compose and for `tritonkit build --in-container`."""

BOUNDED_QUEUES_WAKE: Release = (26, 8)
"""The first release whose batcher of a bounded queue always notices an instance that becomes free."""

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
