"""`tritonkit new --file` and `--triton`: folders for networks that are served as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository.optimize.ready_files import program, script, write_graph
from tests.repository.optimize.small_specs import built
from tritonkit.errors import BuildError, UsageError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import load
from tritonkit.repository.scaffold import new_from_file, new_from_triton

INPUTS = ["x=FP32:4", "kept=INT64:4"]


@pytest.mark.slow
def test_a_torchscript_folder_builds(root: Path, tmp_path: Path) -> None:
    """The file is run once to learn its outputs."""
    (tmp_path / "net.pt").write_bytes(script())
    spec = load(new_from_file(root, "net", tmp_path / "net.pt", INPUTS), root)
    network = spec.model.network
    assert network.file == "net.pt"
    assert {name: tensor.shape for name, tensor in network.outputs.items()} == {"output_0": (3,), "output_1": ()}
    assert built(spec, BuildCache(root / "cache")).signature.batched


def test_a_torchscript_file_needs_inputs(root: Path, tmp_path: Path) -> None:
    """The message names the arguments that it has."""
    (tmp_path / "net.pt").write_bytes(script())
    with pytest.raises(UsageError, match=r"--input x=FP32:\.\.\. --input kept=FP32"):
        new_from_file(root, "net", tmp_path / "net.pt")


@pytest.mark.slow
def test_a_program_and_a_graph_tell_everything(root: Path, tmp_path: Path) -> None:
    """A file without a free first axis gets max_batch_size 0; a graph's weights come along."""
    (tmp_path / "net.pt2").write_bytes(program())
    assert load(new_from_file(root, "program", tmp_path / "net.pt2"), root).model.serving.max_batch_size is None
    write_graph(tmp_path, "graph.xml", {"x": [2, 4], "kept": [2, 4]})
    folder = new_from_file(root, "graph", tmp_path / "graph.xml")
    assert (folder / "graph.bin").is_file()
    assert load(folder, root).model.serving.max_batch_size == 0


def test_a_file_of_another_kind_is_a_mistake_on_the_command_line(root: Path, tmp_path: Path) -> None:
    """The message names the option, and the one that takes the file."""
    (tmp_path / "net.onnx").write_bytes(b"\x08\x08")
    with pytest.raises(UsageError, match=r"(?s)--file .*net\.onnx.*an ONNX file.*onnx: net\.onnx"):
        new_from_file(root, "net", tmp_path / "net.onnx")
    assert not list((root / "models").iterdir())


def test_a_folder_is_named_with_the_option_for_it(root: Path, tmp_path: Path) -> None:
    """A model in Triton's layout, a SavedModel, and a checkpoint."""
    for file, option in (("config.pbtxt", "--triton"), ("saved_model.pb", "--keras"), ("config.json", "--hf")):
        folder = tmp_path / option
        folder.mkdir()
        (folder / file).write_bytes(b"")
        with pytest.raises(UsageError, match=f"(?s)a folder.*new NAME {option}"):
            new_from_file(root, "net", folder)


def test_a_network_without_an_input_is_refused(root: Path, tmp_path: Path) -> None:
    """Nothing could be sent to it."""
    (tmp_path / "net.xml").write_text('<net name="n" version="11"><layers></layers></net>')
    (tmp_path / "net.bin").write_bytes(b"")
    with pytest.raises(BuildError, match=r"net\.xml has no input"):
        new_from_file(root, "net", tmp_path / "net.xml")


def test_a_plan_is_not_guessed(root: Path, tmp_path: Path) -> None:
    """Only its own TensorRT could tell its inputs."""
    (tmp_path / "net.plan").write_bytes(b"ptrt")
    with pytest.raises(UsageError, match="a TensorRT plan"):
        new_from_file(root, "net", tmp_path / "net.plan")


def test_a_model_of_triton_is_copied(root: Path, tmp_path: Path) -> None:
    """Its newest version, with everything next to the versions."""
    given = tmp_path / "theirs"
    for version in ("1", "2"):
        (given / version).mkdir(parents=True)
        (given / version / "model.py").write_text(f"VERSION = {version}\n")
    (given / "labels.txt").write_text("a\n")
    tensor = 'put [{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }]\n'
    (given / "config.pbtxt").write_text(f'backend: "python"\nin{tensor}out{tensor}')
    folder = new_from_triton(root, "net", given)
    assert load(folder, root).model.network.folder == "triton"
    taken = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert taken == {"model.yaml", "triton/config.pbtxt", "triton/labels.txt", "triton/2/model.py"}
    with pytest.raises(UsageError, match=r"--triton.*no config\.pbtxt"):
        new_from_triton(root, "other", given / "1")
