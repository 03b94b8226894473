"""The page about rendering shows specs that can be read."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.conftest import PROJECT
from tritonkit.repository.modelspec import Serving
from tritonkit.repository.render import DEFAULT_MAX_BATCH_SIZE

PAGE = (PROJECT / "docs" / "render.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_are_valid(snippet: str) -> None:
    """Each YAML snippet is a `serving:` section that the spec accepts."""
    Serving.model_validate(yaml.safe_load(snippet))


def test_snippets_show_every_field() -> None:
    """Together the snippets show each field of `serving:` but the variant, which the build reads."""
    shown = {key for snippet in SNIPPETS for key in yaml.safe_load(snippet)}
    assert shown == set(Serving.model_fields) - {"variant"}


def test_default_batch_size_is_the_one_in_the_table() -> None:
    """The table of defaults names the size the code has."""
    assert f"| `max_batch_size` | {DEFAULT_MAX_BATCH_SIZE}," in PAGE
