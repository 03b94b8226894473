"""The YAML in the pages can be read as it stands."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.conftest import PROJECT

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```ya?ml\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_yaml_is_yaml(block: str) -> None:
    """A question mark inside of braces needs quotes, for instance."""
    assert all(part is not None for part in yaml.safe_load_all(block))
