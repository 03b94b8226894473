"""`tritonkit new --onnx --op-library`: an ONNX file with custom operators, and the library that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import tritonkit_here as tritonkit
from tests.custom_operators import LIBRARY, WriteLibrary, scaled_network
from tritonkit.errors import BuildError, UsageError
from tritonkit.repository.modelspec import load
from tritonkit.repository.scaffold import new_from_onnx


def network(folder: Path) -> Path:
    """A file that needs the library."""
    (folder / "net.onnx").write_bytes(scaled_network())
    return folder / "net.onnx"


def test_the_library_comes_along(
    root: Path, tmp_path: Path, write_library: WriteLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is named by a path from the working folder."""
    write_library(tmp_path / "given")
    monkeypatch.chdir(tmp_path / "given")
    folder = new_from_onnx(root, "net", network(tmp_path), libraries=[Path(LIBRARY)])
    assert load(folder, root).model.network.op_library_names == (LIBRARY,)
    assert (folder / LIBRARY).read_bytes() == Path(LIBRARY).read_bytes()


def test_a_file_without_its_library_is_refused(root: Path, tmp_path: Path) -> None:
    """The message names the operator and the option; nothing is written."""
    with pytest.raises(BuildError, match=r"(?s)tests\.Scale.*--op-library"):
        new_from_onnx(root, "net", network(tmp_path))
    with pytest.raises(UsageError, match=r"--op-library: there is no file"):
        new_from_onnx(root, "net", network(tmp_path), libraries=[tmp_path / LIBRARY])
    (tmp_path / LIBRARY).write_text("an archive, perhaps")
    with pytest.raises(BuildError, match=r"--op-library: libscale\.so .* is not a shared library"):
        new_from_onnx(root, "net", network(tmp_path), libraries=[tmp_path / LIBRARY])
    assert not list((root / "models").iterdir())


def test_a_library_with_the_networks_name_is_refused(root: Path, tmp_path: Path, write_library: WriteLibrary) -> None:
    """It would lie in the same place, and neither is left out silently."""
    given = network(tmp_path).rename(tmp_path / LIBRARY)
    with pytest.raises(UsageError, match=rf"--op-library: .*another file of the model is called {LIBRARY}"):
        new_from_onnx(root, "net", given, libraries=[write_library(tmp_path / "a")])
    assert not list((root / "models").iterdir())


def test_the_command_takes_the_option(root: Path, tmp_path: Path, write_library: WriteLibrary) -> None:
    """Once for each library, with --onnx alone."""
    option = ("--op-library", str(write_library(tmp_path)), "--root", str(root))
    made = tritonkit("new", "net", "--onnx", str(network(tmp_path)), *option)
    assert made.returncode == 0, made.stderr
    assert load(root / "models" / "net", root).model.network.op_library_names == (LIBRARY,)
    refused = tritonkit("new", "other", "--tree", str(network(tmp_path)), *option)
    assert refused.returncode == 2
    assert "--op-library together with --tree" in refused.stderr
