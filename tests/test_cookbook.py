"""The pages of the cookbook, as text."""

from __future__ import annotations

import pytest

from bench.families.kitchen import FOLDER, PAGES, Page
from tests.conftest import PROJECT

MOST_LINES = 30
"""YAML and Python that a reader writes."""
WITH_SAMPLES = {"ocr-fast": 50}
"""The same for pages that make the samples of their gate."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short(name: str) -> None:
    """A page is short in what a reader has to write."""
    assert 0 < Page.read(name).lines <= WITH_SAMPLES.get(name, MOST_LINES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_listed_and_tested(name: str) -> None:
    """The list of pages has it, and a test runs it."""
    assert f"({name}.md)" in (FOLDER / "README.md").read_text()
    tests = (PROJECT / "tests" / "server").rglob("test_*.py")
    assert any(f'Page.read("{name}")' in path.read_text() for path in tests)
