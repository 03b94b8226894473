"""Triton's containers and the servers in them."""

from __future__ import annotations

import pytest

from tritonkit.releases import EMBEDDED, release_of_server, release_text, to_release


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.30.0", (23, 1)),
        ("2.41.0", (23, 12)),
        ("2.51.0", (24, 10)),
        ("2.53.0", (24, 12)),
        ("2.54.0", (25, 1)),
        ("2.59.0", (25, 6)),
        ("2.59.1", (25, 7)),
        ("2.60.0", (25, 8)),
        ("2.63.0", (25, 11)),
        ("2.72.0", (26, 8)),
        ("2.19.0", (23, 1)),
        ("3.0.0", None),
        ("", None),
    ],
)
def test_a_server_s_version_names_its_container(version: str, release: tuple[int, int] | None) -> None:
    """The table agrees with TRITON_VERSION in the branch of each release."""
    assert release_of_server(version) == release


def test_a_release_is_written_as_nvidia_writes_it() -> None:
    """Year and month, two digits each."""
    assert to_release("24.10") == EMBEDDED
    assert release_text(EMBEDDED) == "24.10"
    assert release_text((25, 1)) == "25.01"
    for text in ("2.51", "24.13", "24.1", "2024.10", "24.10-py3", ""):
        with pytest.raises(ValueError, match=r"24\.10"):
            to_release(text)
