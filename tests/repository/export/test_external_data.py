"""ONNX files whose weights lie in other files: taken with them, and held to their own folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import LINEAR, TORCH, built, refused
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache, external_data, torch_onnx
from tritonkit.repository.export.external_data import flat_names, save_apart
from tritonkit.repository.export.onnx_file import check_file, open_session, run_session, tensors
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.optimize import plan
from tritonkit.repository.optimize.variants import onnx_graph
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish.integrity import verify

FILE = "name: net\nnetwork: {onnx: m.onnx}\n"
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def external(file: Path, data: Path, locations: tuple[str, ...] = ("m.data",)) -> Path:
    """y = x * 2, * 3 ...: a matrix in each of these locations, whose content lies where `data` is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    nodes, weights, name = [], [], "x"
    for place, location in enumerate(locations):
        matrix = np.eye(4, dtype=np.float32) * (place + 2)
        weight = numpy_helper.from_array(matrix, f"w{place}")
        path = data / location
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(weight.raw_data)
        point(weight, location=location)
        weights.append(weight)
        out = "y" if place + 1 == len(locations) else f"t{place}"
        nodes.append(helper.make_node("MatMul", [name, f"w{place}"], [out]))
        name = out
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    file.write_bytes(model.SerializeToString())
    return file


def point(tensor: Any, **entries: str) -> None:
    """Let a tensor name another file."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def test_both_files_are_built_published_and_checked(root: Path) -> None:
    """`new` copies both; the version folder has both, with their hashes; a changed one is found."""
    file = external(root / "given" / "m.onnx", root / "given")
    assert tritonkit("new", "net", "--onnx", str(file), "--root", str(root)).returncode == 0
    assert {path.name for path in (root / "models/net").iterdir()} == {"m.onnx", "m.data", "model.yaml"}
    out = build_repository(root, ("net",), out=root / "out").path
    version = out / "net" / "1"
    files = json.loads((version / "manifest.json").read_text())["files"]
    assert set(files) == {"model.onnx", "m.data"}
    assert verify(out) == []
    session = open_session(version / "model.onnx", "test")
    np.testing.assert_array_equal(run_session(session, {"x": X}, "test")["y"], X * 2)
    assert [c.action for c in build_repository(root, ("net",), out=out).changes] == ["unchanged"]
    # A build copies: what is served does not follow the person's file, however it is written.
    (root / "models/net/m.data").write_bytes((np.eye(4, dtype=np.float32) * 5).tobytes())
    assert verify(out) == []
    assert [c.action for c in build_repository(root, ("net",), out=out).changes] == ["new version"]
    (out / "net/2/m.data").write_bytes(bytes(64))
    assert [str(finding.file.name) for finding in verify(out)] == ["m.data"]


def test_locations_with_folders_and_odd_names_become_plain_ones(root: Path) -> None:
    """ONNX allows any relative path; a version folder has plain names, and so has the model's folder."""
    odd = ("weights/a.bin", "weights/A.bin", "b", "ü ß\n.bin", "model.yaml", ".hidden", "steps/s.py")
    file = external(root / "given" / "m.onnx", root / "given", odd)
    assert tritonkit("new", "net", "--onnx", str(file), "--root", str(root)).returncode == 0
    folder = root / "models" / "net"
    names = {path.name for path in folder.iterdir()}
    assert names == {"b", "m.onnx", "model.yaml", "m.onnx.data"} | {f"m.onnx.{n}.data" for n in range(1, 6)}
    assert (folder / "model.yaml").read_text().startswith("name: net")
    out = build_repository(root, ("net",), out=root / "out").path
    session = open_session(out / "net" / "1" / "model.onnx", "test")
    output = run_session(session, {"x": X}, "test")["y"]
    np.testing.assert_array_equal(output, X * (2 * 3 * 4 * 5 * 6 * 7 * 8))


def test_names_collide_with_none() -> None:
    """Neither with each other, whatever the case of their letters, nor with the ONNX file."""
    given = ("a/b", "model.onnx.data", "model.onnx", "MODEL.onnx", "c.json", "..hidden")
    names = flat_names(given, "model.onnx")
    assert names["model.onnx.data"] == "model.onnx.data"
    lower = [name.lower() for name in names.values()]
    assert len({*lower, "model.onnx"}) == len(given) + 1


def test_two_tensors_may_share_a_file(write_model: WriteModel, cache: BuildCache, tmp_path: Path) -> None:
    """Each at its offset, as torch.onnx.export writes them."""
    file = external(tmp_path / "m.onnx", tmp_path, ("a", "b"))
    model = onnx.load(file, load_external_data=False)
    point(model.graph.initializer[0], location="d", offset="8", length="64")
    point(model.graph.initializer[1], location="d", offset="40")
    eye = np.eye(4, dtype=np.float32)
    both = np.concatenate([np.zeros(2, np.float32), (eye * 2).ravel()[:8], (eye * 3).ravel()])
    spec = write_model(FILE, m__onnx=model.SerializeToString(), d=both.tobytes())
    outputs = run_session(open_session(built(spec, cache).folder / "model.onnx", "t"), {"x": X}, "t")
    first = np.concatenate([(eye * 2).ravel()[:8], (eye * 3).ravel()[:8]]).reshape(4, 4)
    np.testing.assert_array_equal(outputs["y"], X @ first @ (eye * 3))


def link_out(folder: Path) -> str:
    """A link to a file of another folder."""
    (folder.parent / "private").write_bytes(bytes(64))
    (folder / "link").symlink_to(folder.parent / "private")
    return "link"


def folder_link_out(folder: Path) -> str:
    """A link to another folder."""
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "d").write_bytes(bytes(64))
    (folder / "link").symlink_to(folder.parent / "other")
    return "link/d"


def pipe(folder: Path) -> str:
    """A file that nobody writes to."""
    os.mkfifo(folder / "pipe")
    return "pipe"


def loop(folder: Path) -> str:
    """A link to itself."""
    (folder / "loop").symlink_to("loop")
    return "loop"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("/etc/passwd", "not a path in its own folder"),
        ("../m.data", "not a path in its own folder"),
        ("x/../../m.data", "not a path in its own folder"),
        ("", "not a path in its own folder"),
        ("a\0b", "not a path in its own folder"),
        ("m.onnx", "the ONNX file itself"),
        ("./m.onnx", "the ONNX file itself"),
        (".", "not a path in its own folder"),
        ("missing", "no such file"),
        ("inner", "not a regular file"),
        ("n" * 300, "cannot be read"),
        (link_out, "a link that leads out"),
        (folder_link_out, "a link that leads out"),
        (pipe, "not a regular file"),
        (loop, "cannot be read"),
    ],
)
def test_a_location_that_leads_elsewhere_is_refused(
    tmp_path: Path, location: str | Callable[[Path], str], message: str
) -> None:
    """Before anything reads it: refused by name, without waiting for a pipe."""
    folder = tmp_path / "given"
    file = external(folder / "m.onnx", folder)
    (folder / "inner").mkdir()
    model = onnx.load(file, load_external_data=False)
    point(model.graph.initializer[0], location=location if isinstance(location, str) else location(folder))
    file.write_bytes(model.SerializeToString())
    with pytest.raises(BuildError) as caught:
        check_file(file, "--onnx")
    assert message in caught.value.found


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "1"}, "64 bytes"),
        ({"offset": "4096"}, "64 bytes"),
        ({"offset": str(2**63)}, "64 bytes"),
        ({"offset": "-4"}, "offset is '-4'"),
        ({"offset": "1" * 5000}, "offset is"),
        ({"offset": "\u0663"}, "offset is"),
        ({"length": "60"}, "length is 60 bytes"),
        ({"length": str(2**62)}, "length is"),
    ],
)
def test_offset_and_length_lie_within_the_file(tmp_path: Path, entries: dict[str, str], message: str) -> None:
    """A file cut short, or a number that no file can have."""
    file = external(tmp_path / "m.onnx", tmp_path)
    model = onnx.load(file, load_external_data=False)
    point(model.graph.initializer[0], location="m.data", **entries)
    file.write_bytes(model.SerializeToString())
    with pytest.raises(BuildError) as caught:
        check_file(file, "--onnx")
    assert message in caught.value.found


def test_a_shape_beyond_the_file_is_refused(tmp_path: Path) -> None:
    """Nothing of its size is read or made."""
    file = external(tmp_path / "m.onnx", tmp_path)
    model = onnx.load(file, load_external_data=False)
    model.graph.initializer[0].dims[:] = [2**40, 2**40]
    file.write_bytes(model.SerializeToString())
    with pytest.raises(BuildError, match="64 bytes"):
        check_file(file, "--onnx")


def test_a_folder_of_links_as_hugging_face_keeps_it_is_taken(root: Path) -> None:
    """Both files are links into one folder of blobs: `new` copies what they lead to."""
    blobs, here = root / "blobs", root / "snapshot"
    external(here / "m.onnx", blobs)
    (here / "m.onnx").rename(blobs / "abc")
    (here / "m.onnx").symlink_to(blobs / "abc")
    (here / "m.data").symlink_to(blobs / "m.data")
    done = tritonkit("new", "net", "--onnx", str(here / "m.onnx"), "--root", str(root))
    assert done.returncode == 0, done.stderr
    assert not (root / "models/net/m.data").is_symlink()
    assert (root / "models/net/m.data").read_bytes() == (np.eye(4, dtype=np.float32) * 2).tobytes()


def test_an_incomplete_pair_leaves_no_folder(root: Path) -> None:
    """A person who copied the .onnx alone reads which file belongs to it."""
    file = external(root / "given" / "m.onnx", root / "elsewhere")
    done = tritonkit("new", "net", "--onnx", str(file), "--root", str(root))
    assert "'m.data'" in failed(done, 3)
    assert not list((root / "models").iterdir())


def test_a_wrong_location_in_a_model_s_folder_is_refused(
    write_model: WriteModel, cache: BuildCache, tmp_path: Path
) -> None:
    """The build looks again: the folder may have come from anywhere. `inspect` says the same."""
    file = external(tmp_path / "m.onnx", tmp_path)
    spec = write_model(FILE, m__onnx=file.read_bytes())
    (spec.folder / "m.data").symlink_to(tmp_path / "m.data")
    assert "a link that leads out" in refused(spec, cache, BuildError).found
    done = tritonkit("inspect", "net", "--root", str(tmp_path))
    assert "a link that leads out" in done.stderr


def test_every_change_of_the_data_is_another_build(write_model: WriteModel, cache: BuildCache, tmp_path: Path) -> None:
    """The weights count for the fingerprint, in whichever file they lie."""
    file = external(tmp_path / "m.onnx", tmp_path)
    data = (tmp_path / "m.data").read_bytes()
    spec = write_model(FILE, m__onnx=file.read_bytes(), m__data=data)
    before = plan(spec, cache).source_hash
    assert plan(spec, cache).source_hash == before
    write_model(FILE, m__data=data[:-4] + b"\0\0\0\1")
    assert plan(spec, cache).source_hash != before


def test_a_package_s_file_brings_its_data(
    write_model: WriteModel, cache: BuildCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec names the ONNX file of an installed package: what lies next to it there is taken and counts, too."""
    package = tmp_path / "packages" / "own_package"
    external(package / "m.onnx", package, ("inner/w.bin",))
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(package.parent))
    spec = write_model("name: net\nnetwork: {onnx: {package: own_package, file: m.onnx}}\n")
    artifact = built(spec, cache)
    assert set(artifact.files) == {"model.onnx", "model.onnx.data"}
    (package / "inner" / "w.bin").write_bytes(bytes(64))
    assert plan(spec, cache).source_hash != artifact.source_hash


@pytest.mark.parametrize("variant", ["onnx-int8-dynamic", "onnx-bf16", "openvino-fp32"])
def test_variants_are_made_of_both_files(
    write_model: WriteModel, cache: BuildCache, tmp_path: Path, variant: str
) -> None:
    """Each form reads the weights where they lie; what it writes stands alone."""
    file = external(tmp_path / "m.onnx", tmp_path, ("a.bin", "w/b.bin"))
    text = FILE + f"serving: {{variant: {variant}}}\nquality: {{max_drop: 0.2}}\n"
    spec = write_model(text, m__onnx=file.read_bytes(), a__bin=(tmp_path / "a.bin").read_bytes())
    (spec.folder / "w").mkdir()
    (spec.folder / "w" / "b.bin").write_bytes((tmp_path / "w" / "b.bin").read_bytes())
    artifact = built(spec, cache)
    assert artifact.quality is not None
    assert artifact.quality.value > 0.99
    assert not {"a.bin", "model.onnx.data"} & set(artifact.files)


@pytest.mark.slow
def test_a_torch_network_too_large_for_one_file_is_written_as_two(
    write_model: WriteModel, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is protobuf's 2 GiB; here it is some bytes."""
    monkeypatch.setattr(torch_onnx, "MAX_WEIGHT_BYTES", 16)
    layer = LINEAR.replace("Linear(4, 2)", "Linear(4, 512)")
    spec = write_model(TORCH.replace("[2]", "[512]"), network__py=layer)
    artifact = built(spec, cache)
    assert set(artifact.files) == {"model.onnx", "model.onnx.data"}
    assert artifact.quality is not None
    assert artifact.quality.max_difference < 1e-5
    assert (artifact.folder / "model.onnx").stat().st_size < 2000


def test_a_graph_too_large_for_one_file_is_saved_as_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants are written so, too; the model in memory stays whole."""
    monkeypatch.setattr(onnx_graph, "MAX_WEIGHT_BYTES", 16)
    weight = numpy_helper.from_array(np.eye(40, dtype=np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 40]) for n in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx_graph.save(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size >= 6400
    assert len(model.graph.initializer[0].raw_data) == 6400
    assert not [t for t in tensors(model) if t.external_data]
    simple = onnx_graph.simplified(model, "test")
    assert len(simple.graph.initializer[0].raw_data) == 6400
    save_apart(model, tmp_path / "again.onnx")
    x = np.ones((1, 40), np.float32)
    session = open_session(tmp_path / "again.onnx", "test")
    np.testing.assert_array_equal(run_session(session, {"x": x}, "test")["y"], x)


def test_what_torch_writes_by_default_is_taken(root: Path) -> None:
    """torch.onnx.export writes two files since PyTorch 2.9."""
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 300).eval()
    (root / "given").mkdir()
    file = root / "given" / "net.onnx"
    with quiet():
        program = torch.onnx.export(
            module, (torch.ones(2, 4),), dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
    assert program is not None
    program.save(str(file), external_data=True)
    assert file.with_name("net.onnx.data").is_file()
    assert tritonkit("new", "net", "--onnx", str(file), "--root", str(root)).returncode == 0
    out = build_repository(root, ("net",), out=root / "out").path
    session = open_session(out / "net" / "1" / "model.onnx", "test")
    name = session.get_inputs()[0].name
    [output] = run_session(session, {name: X}, "test").values()
    expected = module(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_large_files_are_linked_from_the_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository takes no room for what the cache has, and its own copy for what a person may edit."""
    monkeypatch.setattr("tritonkit.repository.publish.publish._LINKED_BYTES", 64)
    folder = root / "models" / "net"
    external(folder / "m.onnx", folder)
    (folder / "model.yaml").write_text(FILE)
    out = build_repository(root, ("net",), out=root / "out").path
    served = out / "net" / "1" / "m.data"
    assert served.stat().st_nlink == 2
    assert served.stat().st_ino != (folder / "m.data").stat().st_ino
    assert external_data.MAX_WEIGHT_BYTES < 2**31
