"""What the pages of the cookbook share: a place to run them, and callers at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.families.kitchen import Kitchen, Page, kitchen
from bench.families.recipes import Answer as Expected
from bench.families.recipes import Item, compared, recipes
from tests.waiting import PATIENCE_S
from tritonkit.client import Client, Reply

CALLERS = 16

Answer = Callable[[Kitchen, str, list[dict[str, Any]]], list[Reply]]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Kitchen]:
    """An empty project."""
    with kitchen(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def answers() -> Answer:
    """The replies to these items from 16 callers at the same time, in the items' order."""

    def ask(made: Kitchen, model: str, items: list[dict[str, Any]]) -> list[Reply]:
        with Client(made.address, timeout_s=PATIENCE_S) as client, ThreadPoolExecutor(CALLERS) as pool:
            called = client.model(model)
            return list(pool.map(lambda inputs: called.predict(inputs=inputs), items))

    return ask


def batches_of_one(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Requests as the client takes them."""
    return [{name: [value] for name, value in item.items()} for item in items]


def assert_equal(made: Kitchen, ask: Answer, page: Page) -> list[Expected]:
    """Run a page and return its reference; names are equal to it, and numbers as near as the recipe says."""
    recipe = recipes()[page.name]
    items = recipe.prepare(made, True)
    made.cook(page)
    replies = [recipe.served(reply) for reply in ask(made, recipe.model, batches_of_one(items))]
    expected = recipe.reference(made.folder, items)
    share, largest = compared(replies, expected)
    assert share == 1
    assert largest <= recipe.at_most
    return expected
