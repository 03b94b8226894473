"""docs/observe.md says what the panels and the alerts are."""

from __future__ import annotations

from tests.operate.observe.docs import PAGE, written


def test_the_page_is_current() -> None:
    """Its tables are those that `python -m tests.operate.observe.docs` writes."""
    page = PAGE.read_text()
    assert written(page) == page
