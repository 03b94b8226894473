"""Models in Triton's layout that are taken in as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError, RenderError, SpecError
from tritonkit.repository.export.triton_folder import TritonFolder, read_triton_folder
from tritonkit.repository.pipeline import build_repository

CONFIG = """
name: "theirs"
backend: "python"
max_batch_size: 4
input [{ name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }]
output [{ name: "y" data_type: TYPE_STRING dims: [ 1 ] }]
"""


@pytest.fixture
def folder(root: Path) -> Path:
    """A model with two versions."""
    folder = root / "models" / "net" / "triton"
    for version in ("1", "10"):
        (folder / version).mkdir(parents=True)
        (folder / version / "model.py").write_text(f"VERSION = {version}\n")
    (folder / "config.pbtxt").write_text(CONFIG)
    return folder


def read(folder: Path) -> TritonFolder:
    """The model of a folder."""
    return read_triton_folder(folder, "here")


def test_the_newest_version_is_taken_with_all_its_files(folder: Path) -> None:
    """Versions are compared as numbers; caches of Python stay behind."""
    (folder / "10" / "lib" / "__pycache__").mkdir(parents=True)
    (folder / "10" / "lib" / "code.py").write_text("")
    (folder / "10" / "lib" / "__pycache__" / "code.pyc").write_text("")
    (folder / "warm").mkdir()
    (folder / "warm" / "x").write_text("")
    taken = read(folder)
    assert taken.version == 10
    assert taken.version_files.keys() == {"lib/code.py", "model.py"}
    assert taken.model_files.keys() == {"warm/x"}
    assert taken.left_out == ("version 10 is taken; older ones are not: 1",)
    assert taken.signature.batched
    assert [(one.dtype, one.shape) for one in (*taken.signature.inputs, *taken.signature.outputs)] == [
        ("FP32", (-1, 4)),
        ("BYTES", (1,)),
    ]


def test_the_backend_follows_from_an_older_name_or_the_files(folder: Path) -> None:
    """Triton completes it in the same way."""
    text = CONFIG.replace('backend: "python"', "")
    (folder / "config.pbtxt").write_text(text)
    assert read(folder).config.backend == "python"
    (folder / "10" / "model.py").rename(folder / "10" / "model.onnx")
    (folder / "config.pbtxt").write_text(text + 'platform: "onnxruntime_onnx"')
    assert read(folder).config.backend == "onnxruntime"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CONFIG + "no_such_field: 1", "Triton's schema refuses it"),
        (CONFIG + "ensemble_scheduling {}", "an ensemble"),
        (CONFIG.replace('backend: "python"', 'backend: "onnxruntime"'), "has no model.onnx"),
        (CONFIG.replace("input", "batch_input").partition("batch_input")[0], "it has no input"),
        (CONFIG.replace("TYPE_FP32", "TYPE_INVALID"), "TYPE_INVALID"),
    ],
)
def test_a_configuration_that_is_not_one_models_is_refused(folder: Path, text: str, found: str) -> None:
    """The message says what is wrong with it."""
    (folder / "config.pbtxt").write_text(text)
    with pytest.raises(SpecError, match=found):
        _ = read(folder).signature


def test_a_folder_without_versions_is_refused(tmp_path: Path) -> None:
    """A repository's root is not a model."""
    with pytest.raises(SpecError, match=r"no config\.pbtxt"):
        read(tmp_path)
    (tmp_path / "config.pbtxt").write_text(CONFIG)
    with pytest.raises(SpecError, match="no version"):
        read(tmp_path)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    """A build would publish what it leads to."""
    (tmp_path / "secret").write_text("")
    (folder / "10" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(BuildError, match="out of"):
        read(folder)


def test_python_that_cannot_be_compiled_is_refused(folder: Path) -> None:
    """Nothing of it runs at build."""
    (folder / "10" / "model.py").write_text("def broken(:")
    with pytest.raises(SpecError, match="cannot compile"):
        read(folder)


def test_a_build_keeps_the_configuration_and_runs_no_code(write_model: WriteModel, folder: Path, root: Path) -> None:
    """Files and fields are the author's, under the name of the spec."""
    (folder / "10" / "lib").mkdir()
    (folder / "10" / "lib" / "code.py").write_text("raise SystemExit('it ran')")
    (folder / "10" / "model.py").write_text("raise SystemExit('it ran')")
    write_model("{name: net, network: {folder: triton}}")
    repository = build_repository(root).path
    assert (repository / "net" / "1" / "lib" / "code.py").is_file()
    text = (repository / "net" / "config.pbtxt").read_text()
    assert 'name: "net"' in text
    assert 'backend: "python"' in text
    assert not build_repository(root).changes or {c.action for c in build_repository(root).changes} == {"unchanged"}


@pytest.mark.parametrize(
    ("more", "backend", "found"),
    [
        ("instance_group { kind: KIND_GPU }", "python", "KIND_GPU"),
        ("", "dali", "backend dali"),
    ],
)
def test_a_target_that_cannot_serve_it_is_refused(
    write_model: WriteModel, folder: Path, root: Path, more: str, backend: str, found: str
) -> None:
    """The message names the target that can."""
    (folder / "config.pbtxt").write_text(CONFIG.replace("python", backend) + more)
    write_model("{name: net, network: {folder: triton}}")
    with pytest.raises(RenderError, match=found):
        build_repository(root)
