"""Heavy libraries: one that is missing, and one that is there and does not load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonkit.errors import BuildError
from tritonkit.extras import need


def refused(module: str) -> BuildError:
    """The error of a library that cannot be used."""
    with pytest.raises(BuildError) as caught:
        need(module, "optimize")
    return caught.value


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """An importable package `broken_engine` with that code."""
    (folder / "broken_engine").mkdir()
    (folder / "broken_engine" / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))


def test_a_missing_package_names_its_extra() -> None:
    """Also where a module inside of it was asked for."""
    error = refused("no_such_engine.inside")
    assert error.found == "the package no_such_engine is not installed"
    assert "pip install 'tritonkit[optimize]'" in error.todo


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('libtbb.so: cannot open shared object file')", "OSError: libtbb.so"),
        ("raise ImportError('undefined symbol: x')", "ImportError: undefined symbol"),
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("raise AttributeError('of another version')", "AttributeError: of another version"),
    ],
)
def test_a_broken_package_is_installed_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    """A library that does not load is no missing one, and its OSError no full disk."""
    package(tmp_path, monkeypatch, code)
    error = refused("broken_engine")
    assert error.found.startswith("broken_engine is installed and broken: ")
    assert said in error.found
    assert "reinstall it" in error.todo
    assert "broken_engine" in error.todo


def test_a_package_without_the_module_asked_for_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version that lacks a part is installed all the same."""
    package(tmp_path, monkeypatch, "")
    assert "is installed and broken" in refused("broken_engine.newer").found


def test_the_version_to_reinstall_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name pip knows the package under, which need not be the module's."""
    assert "'PyYAML==" in refused("yaml.no_such_part").todo
