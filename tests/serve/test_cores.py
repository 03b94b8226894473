"""Configurations of a server for the cores that it may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonkit.machine import cores_within
from tritonkit.repository.publish.configurations import config_for


@pytest.mark.parametrize(
    ("own", "name"), [(1, "cores-1"), (3, "cores-3"), (5, "cores-4"), (7, "cores-6"), (8, ""), (9, "")]
)
def test_those_for_the_next_fewer(tmp_path: Path, own: int, name: str) -> None:
    """With at least the cores that the repository was built for, it takes `config.pbtxt`."""
    header = "# Rendered by tritonkit from models/{}/model.yaml (target cpu, cores {})\n"
    for model, cores in (("net", 8), ("other", 2)):
        (tmp_path / model).mkdir()
        (tmp_path / model / "config.pbtxt").write_text(header.format(model, cores))
    assert config_for(tmp_path, own, cores_within(own)) == name


def test_a_repository_of_others_is_served_as_it_is(tmp_path: Path) -> None:
    """There is no such configuration."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "config.pbtxt").write_text('name: "net"\n')
    assert config_for(tmp_path, 1, 1) == ""
