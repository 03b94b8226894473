"""Facts about a model folder from reading it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.repository.modelspec.contents import build_python, imported_modules, list_files, python_uses

ONNX = "name: net\nnetwork: {onnx: m.onnx}\nquality: {samples: data:samples}\n"


def test_links_and_other_oddities_are_remarked(write_model: WriteModel, tmp_path: Path) -> None:
    """Remarks name the target of a link, a file that is not regular, a possible pickle, and a hidden module."""
    spec = write_model(ONNX, m__onnx=b"", data__py="", random__py="", yaml__py="", w__pt=b"", w__pt2=b"")
    (spec.folder / "inner").symlink_to("m.onnx")
    (spec.folder / "outer").symlink_to(tmp_path)
    (spec.folder / "itself").symlink_to("itself")
    os.mkfifo(spec.folder / "pipe")
    remarks = {file.path: file.remark for file in list_files(spec)}
    assert remarks["inner"] == "a link to m.onnx"
    assert remarks["outer"] == f"a link to {tmp_path}, out of the folder"
    assert remarks["itself"].startswith("a link to itself")
    assert remarks["pipe"] == "not a regular file"
    assert remarks["w.pt"].startswith("may be a pickle")
    assert remarks["w.pt2"].startswith("may have code or a pickle")
    assert remarks["random.py"] == "hides Python's own random from the folder's code"
    assert remarks["yaml.py"] == "hides the installed yaml from the folder's code"
    assert remarks["data.py"] == remarks["m.onnx"] == ""


def test_imports_are_followed_and_the_rest_is_said_too(write_model: WriteModel) -> None:
    """A hook's imports run with it, also in a circle; code that nothing imports by name is listed."""
    spec = write_model(
        ONNX,
        m__onnx=b"",
        data__py="import first, numpy",
        first__py="from second import x",
        second__py="import data",
        other__py="",
        native__so=b"",
    )
    assert build_python(spec) == ("data.py", "first.py", "second.py")
    uses = {use.file: (use.when, use.what) for use in python_uses(spec)}
    assert uses["data.py"] == ("build", "quality.samples: samples()")
    assert uses["second.py"] == ("build", "imported by first.py")
    assert uses["other.py"] == uses["native.so"] == ("if imported", "nothing names it")


@pytest.mark.parametrize(
    ("given", "runs"),
    [
        ("", False),
        ("quality: {samples: data:samples}\n", True),
        ("example: {x: {text: one}}\n", False),
        ("example: {x: {text: one, more: [two]}}\n", True),
        ("quality: {samples: data:samples}\nserving: {independent_items: true}\n", False),
    ],
)
def test_a_python_model_runs_at_build_where_several_items_are_known(
    given: str, runs: bool, write_model: WriteModel
) -> None:
    """A server then tries it in batches; what is declared independent is copied and not run, nor are its hooks."""
    spec = write_model(
        "name: net\nnetwork:\n  python: server.py\n  files: [more.py]\n"
        "  inputs: {x: {dtype: BYTES, shape: [1]}}\n  outputs: {y: {dtype: FP32, shape: [1]}}\n" + given,
        server__py="",
        more__py="",
        data__py="",
    )
    samples = ("data.py",) if runs and "samples" in given else ()
    assert build_python(spec) == ((*samples, "server.py", "more.py") if runs else ())
    when = {use.file: use.when for use in python_uses(spec)}
    data = "build" if samples else "if imported"
    assert when == {"server.py": "server", "more.py": "server", "data.py": data}


def test_what_cannot_be_parsed_imports_nothing(tmp_path: Path) -> None:
    """Bad syntax, null bytes and depths beyond the parser are not errors here."""
    file = tmp_path / "x.py"
    for text in ("import (", "\0", "-" * 100_000 + "1", "a" + ".a" * 100_000):
        file.write_text(text)
        assert imported_modules(file) == set()
    assert imported_modules(tmp_path / "none.py") == set()
