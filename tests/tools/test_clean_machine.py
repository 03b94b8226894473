"""The container of a clean machine: it gets README's packages and the settings of pip on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT
from tests.tools.loading import load_tool


@pytest.fixture
def tool() -> Any:
    """The tool, which is no package."""
    return load_tool("clean_machine")


def test_the_packages_are_those_that_readme_names(tool: Any) -> None:
    """They stand in its "Needed"; a README without them is refused."""
    assert {"make", "python3-venv"} <= set(tool.packages((PROJECT / "README.md").read_text()))
    with pytest.raises(SystemExit, match="Needed"):
        tool.packages("# x\n\nNeeded: Linux.\n\nElsewhere: `apt-get install git`\n")


def test_pips_settings_go_along_as_variables(tool: Any, tmp_path: Path) -> None:
    """Settings of files and of the environment go along; the certificates are those of the base."""
    index, wheels = tmp_path / "index" / "simple", tmp_path / "wheels"
    for folder in (index, wheels):
        folder.mkdir(parents=True)
    (tmp_path / "constraints.txt").write_text("numpy<3\n")
    listed = (
        f"global.constraint='{tmp_path}/constraints.txt'\n:env:.find-links='{wheels}'\nglobal.cert='/etc/cert.pem'\ninstall.no-compile='true'\n"
        f"global.extra-index-url='file://{index} https://example.org/simple'\n"
    )
    settings = tool.pip_settings(listed)
    assert settings == {
        "PIP_CONSTRAINT": f"{tmp_path}/constraints.txt",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_COMPILE": "true",
        "PIP_EXTRA_INDEX_URL": f"file://{index} https://example.org/simple",
    }
    # The pages of an index name files next to their own folder.
    assert tool.local_places(settings) == {index.parent, wheels, tmp_path / "constraints.txt"}
