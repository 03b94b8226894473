"""Samples in files become the network's input; errors name file, line and column."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WriteModel
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.ready import prepared as module
from tritonkit.repository.export.ready import rows
from tritonkit.repository.export.ready.prepared import PreparedSamples
from tritonkit.repository.export.samples import read_calibration, read_samples
from tritonkit.repository.modelspec import Spec

X = Signature((TensorInfo("x", "FP32", (2,)),), (), batched=True)
IDS = Signature((TensorInfo("ids", "INT64", (-1,)),), (), batched=True)


def text(samples: str, more: str = "") -> str:
    """A spec with these samples."""
    return f"name: net\nnetwork: {{onnx: m.onnx}}\nquality:\n  samples: {samples}\n{more}"


def npz(**arrays: np.ndarray) -> bytes:
    """An .npz file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def refused(spec: Spec, signature: Signature) -> BuildError:
    """The error of samples that cannot be read."""
    with pytest.raises(BuildError) as caught:
        read_samples(spec, signature)
    assert "quality.samples" in caught.value.where
    return caught.value


def values(samples: PreparedSamples, name: str = "x") -> list[list[float]]:
    """All items of an input."""
    return [item.tolist() for batch in samples.batches for item in batch[name]]


@pytest.mark.parametrize(
    ("key", "file", "content"),
    [
        ("csv", "a.csv", 'x,label\n"[1, 2]",0\n"[3, 4]",1\n'),
        ("csv", "a.csv", "\ufeffwidth,height,label\r\n1,2,0\r\n\r\n3,4,1\r\n"),
        ("csv", "a.tsv", "width\theight\tlabel\n1\t2\t0\n3\t4\t1\n"),
        ("jsonl", "a.jsonl", '{"x": [1, 2]}\n\n{"x": [3, 4]}\n'),
        ("npz", "a.npz", npz(x=np.array([[1, 2], [3, 4]], np.int16), labels=np.arange(2))),
    ],
)
def test_the_same_rows_from_each_kind_of_file(
    write_model: WriteModel, key: str, file: str, content: str | bytes
) -> None:
    """Columns are elements of a vector, or a cell holds all of it; a byte order mark and empty lines do not count."""
    spec = write_model(text(f"{{{key}: {file}}}"), m__onnx=b"", **{file.replace(".", "__"): content})
    assert values(read_samples(spec, X)) == [[1, 2], [3, 4]]


def test_columns_of_other_names_in_another_order(write_model: WriteModel) -> None:
    """`inputs` says which columns are the elements, and in which order."""
    samples = "{csv: a.csv, inputs: {x: [b, a]}}"
    spec = write_model(text(samples), m__onnx=b"", a__csv="a,b,c\n1,2,3\n")
    assert values(read_samples(spec, X)) == [[2, 1]]


def test_items_of_one_size_share_a_batch(write_model: WriteModel) -> None:
    """Sizes of a free axis are not mixed, and each item keeps its row."""
    lines = "".join(f'{{"ids": {list(range(1 + i % 2))}}}\n' for i in range(70))
    spec = write_model(text("{jsonl: a.jsonl}"), m__onnx=b"", a__jsonl=lines)
    samples = read_samples(spec, IDS)
    assert [batch["ids"].shape for batch in samples.batches] == [(32, 1), (3, 1), (32, 2), (3, 2)]
    assert [row for row, _ in samples.item_rows] == [*range(0, 70, 2), *range(1, 70, 2)]


def test_max_samples_takes_rows_from_the_whole(write_model: WriteModel) -> None:
    """A file that is sorted by class would otherwise give the first class alone."""
    lines = "x\n" + "".join(f'"[{i}, 0]"\n' for i in range(101))
    spec = write_model(text("{csv: a.csv}", "  max_samples: 3\n"), m__onnx=b"", a__csv=lines)
    assert values(read_samples(spec, X)) == [[0, 0], [50, 0], [100, 0]]


@pytest.mark.parametrize("most", [2, 3, 4, 10])
def test_max_samples_of_a_folder_takes_all_classes(write_model: WriteModel, root: Path, most: int) -> None:
    """The files are in turns already, so every second one would be of one class."""
    for name in ("a", "b"):
        (root / "models" / "net" / "test" / name).mkdir(parents=True)
        for file in range(4):
            (root / "models" / "net" / "test" / name / f"{file}.bin").write_bytes(b"x")
    spec = write_model(text("{folder: test}", f"  max_samples: {most}\n"), m__onnx=b"")
    samples = read_samples(spec, Signature((TensorInfo("data", "BYTES", (1,)),), (), batched=True))
    assert samples.rows is not None
    taken = [samples.rows.rows[row].values["class"] for row, _ in samples.item_rows]
    assert taken == ["a", "b", "a", "b", "a", "b", "a", "b"][:most]


def test_max_samples_takes_whole_groups(write_model: WriteModel) -> None:
    """The documents of a query belong together."""
    lines = "x,q\n" + "".join(f'"[{i}, 0]",{i // 3}\n' for i in range(12))
    spec = write_model(text("{csv: a.csv, group: q}", "  max_samples: 7\n"), m__onnx=b"", a__csv=lines)
    assert [x for x, _ in values(read_samples(spec, X))] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", "x,label\n", "a.csv is empty"),
        ("a.csv", "a,a\n1,2\n", "a.csv:1 cannot be read: two columns are called 'a'"),
        ("a.csv", "u,v,label\n1,2,0\n1,2\n", "a.csv:3 cannot be read: it has 2 cells"),
        ("a.csv", 'u,v\n1,2\n"1,2\n', "a.csv:3 cannot be read: unexpected end of data"),
        ("a.csv", "u,v\n1,2\n1,two\n", "a.csv:3, u, v for input x: could not convert string to float: 'two'"),
        ("a.csv", "u,v,w\n1,2,3\n", "a.csv has no column 'x' for the input of that name; it has 'u', 'v', 'w'"),
        ("a.csv", "x\n[1]\n", "a.csv:2, x for input x: the shape is [1]"),
        ("a.csv", "x\n \n", "a.csv:2, x for input x: the cell is empty"),
        ("a.csv", "x\nabc\n", "a.csv:2, x for input x: found 'abc'"),
        ("a.csv", b"x\n\xff\n", "a.csv cannot be read: byte 2 is not UTF-8"),
        ("a.jsonl", '{"x": [1, 2]}\n{"x": \n', "a.jsonl:2 cannot be read"),
        ("a.jsonl", "[1, 2]\n", "a.jsonl:1 cannot be read: it is a list"),
        ("a.jsonl", '{"x": [1, 2]}\n{"y": 1}\n', "a.jsonl:2, x for input x: it has no 'x'"),
        ("a.jsonl", '{"x": [1, null]}\n', "a.jsonl:1, x for input x: found [1, None]"),
        ("a.jsonl", '{"x": [[1, 2], [3]]}\n', "a.jsonl:1, x for input x: found [[1, 2], [3]]"),
        ("a.npz", b"PK", "a.npz cannot be read"),
        ("a.npz", npz(x=np.zeros((2, 2)), labels=np.zeros(3)), "its arrays are x [2, 2], labels [3]"),
        ("a.npz", npz(x=np.array(1)), "its arrays are x []"),
        ("a.npz", npz(x=np.zeros((0, 2))), "a.npz is empty"),
        ("a.npz", npz(x=np.array([{}], object)), "a.npz cannot be read: Object arrays"),
    ],
)
def test_what_cannot_be_read(write_model: WriteModel, file: str, content: str | bytes, message: str) -> None:
    """The error names file, line and column; a pickle is refused before it is read."""
    spec = write_model(text(f"{{{file.partition('.')[2]}: {file}}}"), m__onnx=b"", **{file.replace(".", "__"): content})
    assert message in refused(spec, X).found


def changed_npz(method: int = zipfile.ZIP_STORED, flags: int = 0, header: bytes | None = None) -> bytes:
    """An .npz file with one array, changed by hand."""
    stream = io.BytesIO()
    np.save(stream, np.zeros((64, 2), np.float32))
    content = stream.getvalue()
    if header is not None:
        content = np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little") + header
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("x.npy", content)
    data = bytearray(packed.getvalue())
    entry = data.index(b"PK\x01\x02")
    data[6] |= flags
    data[entry + 8] |= flags
    return bytes(data)


def damaged(data: bytes, place: int) -> bytes:
    """A file whose bytes from a place on are other ones."""
    return data[:place] + bytes(255 - byte for byte in data[place : place + 8]) + data[place + 8 :]


HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1024), }\n"
NO_VALUES = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 0), }\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (damaged(changed_npz(zipfile.ZIP_DEFLATED), 40), "a.npz cannot be read: Error -3"),
        (damaged(changed_npz(zipfile.ZIP_LZMA), 50), "a.npz cannot be read"),
        (changed_npz(flags=1), "a.npz cannot be read: File 'x.npy' is encrypted"),
        (changed_npz(flags=0x40), "a.npz cannot be read: strong encryption"),
        (changed_npz(header=HUGE), "a.npz cannot be read"),
        (changed_npz(header=NO_VALUES), "its array x [1099511627776, 0] has rows without values"),
        (changed_npz(header=b"{'descr': '<f4', \n"), "a.npz cannot be read"),
    ],
)
def test_a_damaged_or_hostile_file_of_arrays(write_model: WriteModel, content: bytes, message: str) -> None:
    """Neither a library's error nor a process without memory, whatever the file says of itself."""
    spec = write_model(text("{npz: a.npz}"), m__onnx=b"", a__npz=content)
    assert message in refused(spec, X).found


def test_arrays_that_would_fill_the_memory(write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes in the file's directory are added up before anything is uncompressed."""
    monkeypatch.setattr(rows, "_MOST_ARRAYS", 10_000)
    stream = io.BytesIO()
    np.savez_compressed(stream, x=np.zeros((1000, 2), np.float32), y=np.zeros((1000, 1), np.float32))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was opened"))
    spec = write_model(text("{npz: a.npz}"), m__onnx=b"", a__npz=stream.getvalue())
    assert len(stream.getvalue()) < 1000
    error = refused(spec, X)
    assert re.fullmatch(r"a\.npz has 12\d\d\d bytes", error.found)
    assert error.wanted == "at most 10000"


@pytest.mark.parametrize(("key", "content"), [("csv", "x\n" + "1\n" * 50), ("jsonl", '{"x": [1, 2]}\n' * 10)])
def test_a_table_that_would_fill_the_memory(
    write_model: WriteModel, monkeypatch: pytest.MonkeyPatch, key: str, content: str
) -> None:
    """Python's objects take several times the bytes of the file."""
    monkeypatch.setattr(rows, "_MOST_TABLE", 100)
    spec = write_model(text(f"{{{key}: a.{key}}}"), m__onnx=b"", **{f"a__{key}": content})
    assert refused(spec, X).found == f"a.{key} has {len(content)} bytes"


@pytest.mark.parametrize("layout", ["next to it", "labels"])
def test_a_text_that_is_a_link_or_too_long(write_model: WriteModel, root: Path, layout: str) -> None:
    """A link could lead out of the folder, and half of a text is another one."""
    folder = root / "models" / "net" / "test"
    files, texts = (folder, folder) if layout == "next to it" else (folder / "images", folder / "labels")
    files.mkdir(parents=True)
    texts.mkdir(exist_ok=True)
    (files / "one.wav").write_bytes(b"x")
    (root / "secret").write_text("secret\n")
    (texts / "one.txt").symlink_to(root / "secret")
    spec = write_model(text("{folder: test}"), m__onnx=b"")
    data = Signature((TensorInfo("data", "BYTES", (1,)),), (), batched=True)
    assert refused(spec, data).found.endswith("one.txt cannot be read: it is a link")
    (texts / "one.txt").unlink()
    (texts / "one.txt").write_text("é" * (1 << 19))
    samples = read_samples(spec, data)
    assert samples.rows is not None
    assert samples.rows.rows[0].values["text"] == "é" * (1 << 19)
    with (texts / "one.txt").open("a") as stream:
        stream.write("!")
    assert refused(spec, data).found.endswith(f"one.txt has {(1 << 20) + 1} bytes")


@pytest.mark.parametrize(
    ("cell", "shown"), [('["a", null]', "None"), ('[["a"], ["b"]]', "['a']"), ('{"a": 1}', "{'a': 1}")]
)
def test_texts_are_texts(write_model: WriteModel, cell: str, shown: str) -> None:
    """JSON's null is not the text None, nor is a list its Python."""
    spec = write_model(text("{jsonl: a.jsonl}"), m__onnx=b"", a__jsonl=f'{{"t": {cell}}}\n')
    error = refused(spec, Signature((TensorInfo("t", "BYTES", (-1,)),), (), batched=True))
    assert error.found == f"a.jsonl:1, t for input t: found {shown}"


def test_whole_numbers_stay_whole(write_model: WriteModel) -> None:
    """An id of 1.5, or one that its datatype cannot hold, is no id."""
    for cell, fits in (("[1, 2]", True), ("[1.0]", True), ("[1.5]", False), ("[1e30]", False), ("[9999999999]", True)):
        spec = write_model(text("{jsonl: a.jsonl}"), m__onnx=b"", a__jsonl=f'{{"ids": {cell}}}\n')
        if fits:
            assert read_samples(spec, IDS).batches[0]["ids"].dtype == np.int64
        else:
            assert refused(spec, IDS).wanted == "numbers of INT64"


def test_too_much_for_memory(write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how many items would fit."""
    monkeypatch.setattr(module, "_MOST_BYTES", 100)
    spec = write_model(text("{npz: a.npz}"), m__onnx=b"", a__npz=npz(x=np.zeros((50, 2), np.float32)))
    error = refused(spec, X)
    assert "more than 12 items" in error.found
    assert "max_samples: 6" in error.todo


AFTER = """
description: Adds numbers
inputs: {y: {dtype: FP32, shape: [2]}, more: {dtype: FP32, shape: [100]}}
outputs: {z: {dtype: FP32, shape: [1]}}
"""


def test_tensors_for_later_steps_count_too(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step after the network takes 400 bytes of each row, and the network 8."""
    monkeypatch.setattr(module, "_MOST_BYTES", 1000)
    (root / "models" / "net" / "steps" / "add").mkdir(parents=True)
    (root / "models" / "net" / "steps" / "add" / "step.yaml").write_text(AFTER)
    (root / "models" / "net" / "steps" / "add" / "model.py").write_text("")
    more = "pipeline: [network, {step: add}]\n"
    data = npz(x=np.zeros((5, 2), np.float32), more=np.zeros((5, 100), np.float32))
    spec = write_model(text("{npz: a.npz}", more), m__onnx=b"", a__npz=data)
    error = refused(spec, Signature(X.inputs, (TensorInfo("y", "FP32", (2,)),), batched=True))
    assert "more than 2 items" in error.found


def test_texts_count_as_the_memory_that_they_take(write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of texts has a pointer to each, whose size says nothing of the text."""
    monkeypatch.setattr(module, "_MOST_BYTES", 10_000)
    lines = "".join(f'{{"t": "{"x" * 2000}"}}\n' for _ in range(10))
    spec = write_model(text("{jsonl: a.jsonl}"), m__onnx=b"", a__jsonl=lines)
    error = refused(spec, Signature((TensorInfo("t", "BYTES", (1,)),), (), batched=True))
    assert "more than 4 items" in error.found


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ("{}", "found none of folder, csv, jsonl and npz"),
        ("{csv: a.csv, npz: b.npz}", "found csv and npz of folder, csv, jsonl and npz"),
        ("{csv: ../a.csv}", "leaves the model's folder"),
        ("{csv: b.csv}", "there is no file 'b.csv'"),
        ("{folder: nowhere}", "there is no folder 'nowhere'"),
        ("{folder: outside}", "leads out of"),
        ("{csv: a.csv, classes: names.txt}", "there is no file 'names.txt'"),
        ("{csv: a.csv, inputs: {x: a}, pairs: {x: [a, b]}}", "pairs and inputs both have x"),
        ("{cvs: a.csv}", "unknown key 'cvs'"),
    ],
)
def test_a_spec_that_names_no_data(write_model: WriteModel, root: Path, samples: str, message: str) -> None:
    """Found when the spec is read, before anything is built."""
    (root / "models" / "net").mkdir()
    (root / "elsewhere").mkdir()
    (root / "models" / "net" / "outside").symlink_to(root / "elsewhere")
    with pytest.raises(SpecError, match=re.escape(message)):
        write_model(text(samples), m__onnx=b"", a__csv="x\n")


def test_calibration_is_read_from_files_too(write_model: WriteModel) -> None:
    """Variants with fixed ranges need no Python either; what is not finite is refused."""
    calibration = "optimize: {calibration: {npz: c.npz}}\n"
    spec = write_model(
        "name: net\nnetwork: {onnx: m.onnx}\n" + calibration, m__onnx=b"", c__npz=npz(x=np.ones((3, 2), np.float32))
    )
    assert read_calibration(spec, X)[0]["x"].shape == (3, 2)
    write_model("name: net\nnetwork: {onnx: m.onnx}\n" + calibration, c__npz=npz(x=np.full((3, 2), np.nan, np.float32)))
    with pytest.raises(BuildError, match="NaN or infinite"):
        read_calibration(spec, X)
