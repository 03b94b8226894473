"""`make audit` believes a service of advisories only where it names what is known, and says what it did not check."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.loading import load_tool

FLAW = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3.0"]}


@pytest.fixture
def audit() -> Any:
    """The tool, which is no package."""
    return load_tool("audit")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A folder like that of a virtual environment."""
    (tmp_path / "env" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    return tmp_path / "env"


def program(folder: Path, canary: list[Any], packages: list[Any]) -> list[str]:
    """A program in pip-audit's place that answers so about the canary, and so about an environment."""
    file = folder / "answers.py"
    file.write_text(
        "import json, sys\n"
        f"canary, packages = {json.dumps([canary, packages])}\n"
        "found = canary if '--requirement' in sys.argv else packages\n"
        "print(json.dumps({'dependencies': found}))\n"
        "sys.exit(1 if any(p.get('vulns') for p in found) else 0)\n"
    )
    return [sys.executable, str(file)]


KNOWN = [{"name": "jinja2", "version": "2.4.1", "vulns": [FLAW]}]
UNKNOWN = [{"name": "jinja2", "skip_reason": "Dependency not found on PyPI"}]


def test_an_index_without_advisories_is_not_believed(
    audit: Any, environment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It finds nothing in the canary either: nothing was checked, which is said, and is no failure."""
    nothing = [{"name": "a", "version": "1", "vulns": []}]
    for canary in (UNKNOWN, [{"name": "jinja2", "version": "2.4.1", "vulns": []}]):
        assert audit.audit(program(tmp_path, canary, nothing), [environment]) == 0
        assert capsys.readouterr().out.startswith("NOT CHECKED for known vulnerabilities: ")


def test_a_program_that_breaks_off_has_not_checked(
    audit: Any, environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback of pip-audit, as without a network, is no finding and no all-clear."""
    assert audit.audit([sys.executable, "-c", "raise OSError"], [environment]) == 0
    assert "NOT CHECKED" in capsys.readouterr().out


def test_a_vulnerability_fails_with_its_fix(
    audit: Any, environment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and a line with the package, the advisory and the release that is better."""
    packages = [
        {"name": "old", "version": "1.0", "vulns": [FLAW]},
        {"name": "own", "skip_reason": "not on PyPI"},
        {"name": "good", "version": "2.0", "vulns": []},
    ]
    assert audit.audit(program(tmp_path, KNOWN, packages), [environment]) == 1
    printed = capsys.readouterr().out
    assert "2 packages checked by pypi, 1 vulnerabilities" in printed
    assert "old 1.0: PYSEC-1, CVE-1; fixed in 3.0" in printed
    assert "NOT CHECKED, unknown to pypi: own" in printed


def test_an_environment_without_findings_passes(
    audit: Any, environment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, with how many packages were looked at."""
    packages = [{"name": "good", "version": "2.0", "vulns": []}]
    assert audit.audit(program(tmp_path, KNOWN, packages), [environment]) == 0
    assert "1 packages checked by pypi, 0 vulnerabilities" in capsys.readouterr().out
