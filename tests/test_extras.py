"""Heavy libraries: one that is missing, and one that is there and does not load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tritonkit.errors import BuildError
from tritonkit.extras import need

OPENS_A_MODEL = """from tritonkit.extras import need
onnx = need("onnx", "build")
node = onnx.helper.make_node("Identity", ["x"], ["y"])
x, y = (onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy")
graph = onnx.helper.make_graph([node], "net", [x], [y])
model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
need("onnxruntime", "build").InferenceSession(model.SerializeToString())
"""


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
    """The extra is named also for a module inside the package."""
    error = refused("no_such_engine.inside")
    assert error.found == "the package no_such_engine is not installed"
    assert "pip install 'tritonkit[optimize]'" in error.todo


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise OSError('libtbb.so: cannot open shared object file')", "OSError: libtbb.so"),
        ("raise ImportError('undefined symbol: x')", "ImportError: undefined symbol"),
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("raise AttributeError('of another version')", "AttributeError: of another version"),
    ],
)
def test_a_broken_package_is_installed_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    """A library that does not load is no missing one, and its OSError no full disk."""
    package(tmp_path, monkeypatch, code)
    error = refused("broken_engine")
    assert error.found.startswith("broken_engine is installed and broken: ")
    assert words in error.found
    assert "reinstall it" in error.todo
    assert "broken_engine" in error.todo


def test_a_package_without_the_module_asked_for_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older version that lacks a part is installed all the same."""
    package(tmp_path, monkeypatch, "")
    assert "is installed and broken" in refused("broken_engine.newer").found


def test_the_version_to_reinstall_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the package's name for pip, which may differ from the module's."""
    assert "'PyYAML==" in refused("yaml.no_such_part").todo


def test_no_library_reports_what_is_built(tmp_path: Path) -> None:
    """ONNX Runtime keeps what it tells its makers in the user's cache; under `CI` it says nothing by itself."""
    quiet = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in quiet}
    subprocess.run([sys.executable, "-c", OPENS_A_MODEL], env=environment | {"HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*onnxruntime*")) == []
