"""The pages of the cookbook, as text."""

from __future__ import annotations

import pytest

from bench.families.kitchen import FOLDER, PAGES, Page, changed
from tests.conftest import PROJECT
from tritonkit.errors import UsageError

MOST_LINES = 30
"""YAML and Python that a reader writes."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short(name: str) -> None:
    """A page is short in what a reader has to write."""
    assert 0 < Page.read(name).lines <= MOST_LINES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_listed_and_tested(name: str) -> None:
    """The list of pages has it, and a test runs it."""
    assert f"({name}.md)" in (FOLDER / "README.md").read_text()
    tests = (PROJECT / "tests" / "server").rglob("test_*.py")
    assert any(f'Page.read("{name}")' in path.read_text() for path in tests)


def test_a_page_changes_lines_of_a_file() -> None:
    """Lines with - are replaced by those with +, and all others stay."""
    assert changed("a: 1\n  b: 2\nc: 3\n", "# m.yaml\n-  b: 2\n+  b: 4\n+  d: 5\n") == "a: 1\n  b: 4\n  d: 5\nc: 3\n"


@pytest.mark.parametrize(
    "difference", ["-b: 2\n+b: 3\n", "-a: 1\n+a: 2\n", "+a: 2\n", "-c: 1\n", " c: 1\n-c: 1\n+c: 2\n"]
)
def test_a_change_that_does_not_fit_the_file_is_refused(difference: str) -> None:
    """Lines that are not there, or twice, and lines that are neither old nor new."""
    with pytest.raises(UsageError):
        changed("a: 1\na: 1\nc: 1\n", f"# m.yaml\n{difference}")
