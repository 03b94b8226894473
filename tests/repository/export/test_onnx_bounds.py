"""ONNX files of strangers: each command answers them with words and its exit code, and none reads without end."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper

from tests.cli.running import failed, tritonkit_here

FLOAT = TensorProto.FLOAT
IDENTITY = helper.make_node("Identity", ["x"], ["y"])
CALL = helper.make_node("F0", ["x"], ["y"], domain="own")


def network(
    *,
    shape: list[Any] | None = None,
    names: tuple[str, ...] = ("x",),
    outputs: tuple[str, ...] = ("y",),
    nodes: tuple[NodeProto, ...] = (IDENTITY,),
    functions: list[FunctionProto] | None = None,
) -> ModelProto:
    """A file that takes and gives tensors of one shape."""
    sizes = ["batch", 4] if shape is None else shape
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, FLOAT, sizes) for name in names],
        [helper.make_tensor_value_info(name, FLOAT, sizes) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions or [], ir_version=9)


def chain(length: int, calls: int) -> list[FunctionProto]:
    """Functions, each of which calls the next a given number of times."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = []
    for place in range(length):
        steps = ["a", *(f"c{k}" for k in range(1, calls)), "b"]
        last = place == length - 1
        kind, domain = ("Identity", "") if last else (f"F{place + 1}", "own")
        body = [helper.make_node(kind, [given], [made], domain=domain) for given, made in itertools.pairwise(steps)]
        functions.append(helper.make_function("own", f"F{place}", ["a"], ["b"], body, opsets))
    return functions


def branching(length: int, depth: int) -> list[FunctionProto]:
    """Functions that call each other, each from a branch within branches."""
    functions = chain(length, 1)
    for function in functions:
        node = function.node[0]
        for _ in range(depth):
            branch = helper.make_graph([node], "branch", [], [])
            node = helper.make_node("If", ["a"], ["b"], then_branch=branch)
        function.node[0].CopyFrom(node)
    return functions


def endless() -> list[FunctionProto]:
    """A function that calls itself."""
    [one] = chain(1, 1)
    one.node[0].op_type, one.node[0].domain = "F0", "own"
    return [one]


def raw(model: ModelProto, old: bytes, new: bytes) -> bytes:
    """A file with other bytes in it than onnx would write."""
    return model.SerializeToString().replace(old, new)


FILES: dict[str, tuple[ModelProto | bytes, str]] = {
    "axis of 2^40": (network(shape=["batch", 1 << 40]), "too large for a request"),
    "axis of 2^63-1": (network(shape=["batch", (1 << 63) - 1]), "too large for a request"),
    "2^62 elements": (network(shape=["batch", 1 << 31, 1 << 31]), "too large for a request"),
    "axis of 0": (network(shape=["batch", 0]), "without elements"),
    "name with a null": (
        network(names=("x\0y",), nodes=(helper.make_node("Identity", ["x\0y"], ["y"]),)),
        "an input of model.onnx is called 'x\\x00y'",
    ),
    "no name": (network(names=("x", "")), "an input of model.onnx has no name"),
    "input twice": (network(names=("x", "x")), "two inputs of model.onnx are called 'x'"),
    "output twice": (network(outputs=("y", "y")), "two outputs of model.onnx are called 'y'"),
    "many inputs": (network(names=tuple(f"x{k}" for k in range(1001))), "has 1001 inputs"),
    "2^28 operators": (
        network(nodes=(CALL,), functions=chain(29, 2)),
        f"has {(1 << 30) - 1} operators with its functions expanded",
    ),
    "function without an end": (network(nodes=(CALL,), functions=endless()), "calls itself"),
    "1000 functions deep": (network(nodes=(CALL,), functions=chain(1000, 1)), "deeper than 100"),
    "branches of functions": (network(nodes=(CALL,), functions=branching(99, 20)), "deeper than can be"),
    "operator not in UTF-8": (raw(network(), b"Identity", b"Iden\xff\xfety"), "is not UTF-8"),
    "axis not in UTF-8": (raw(network(), b"batch", b"b\xff\xfech"), "is not UTF-8"),
}


@pytest.fixture(params=FILES)
def hostile(request: pytest.FixtureRequest, root: Path) -> tuple[Path, str]:
    """A project with one such file, and the words about it."""
    content, words = FILES[request.param]
    folder = root / "models" / "net"
    folder.mkdir()
    data = content if isinstance(content, bytes) else content.SerializeToString()
    (folder / "model.onnx").write_bytes(data)
    (folder / "model.yaml").write_text("name: net\nnetwork: {onnx: model.onnx}\n")
    return root, words


def test_every_command_has_words_for_a_hostile_file(hostile: tuple[Path, str]) -> None:
    """`inspect` notes them, a dry run reads nothing of the file, `build` and `new` refuse it."""
    root, words = hostile
    file = root / "models" / "net" / "model.onnx"
    looked = tritonkit_here("inspect", "models/net", cwd=root)
    assert looked.returncode == 0, looked.stderr
    assert words in looked.stderr
    assert tritonkit_here("build", "--dry-run", cwd=root).returncode == 0
    assert words in failed(tritonkit_here("build", cwd=root), 3)
    made = tritonkit_here("new", "other", "--onnx", str(file), cwd=root)
    assert words in failed(made, 3)
    assert not (root / "models" / "other").exists()


def test_functions_within_the_bounds_are_built(root: Path) -> None:
    """Nested functions alone are nothing to refuse."""
    folder = root / "models" / "net"
    folder.mkdir()
    model = network(nodes=(CALL,), functions=chain(20, 1))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "model.yaml").write_text("name: net\nnetwork: {onnx: model.onnx}\n")
    assert tritonkit_here("build", cwd=root).returncode == 0


def test_a_size_of_minus_5_is_free(root: Path) -> None:
    """The bounds read such a size as ONNX Runtime and the build do."""
    folder = root / "models" / "net"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(network(shape=["batch", -5]).SerializeToString())
    (folder / "model.yaml").write_text("name: net\nnetwork: {onnx: model.onnx}\n")
    looked = tritonkit_here("inspect", "models/net", cwd=root)
    assert looked.returncode == 0, looked.stderr
    assert "x FP32 [-1]" in looked.stdout


LABELS = "pipeline: [network, {step: top_k, parameters: {k: 2, labels: big.bin}}]\n"
SPARSE = {
    "labels": (LABELS, "pipeline.top_k.parameters.labels: big.bin has", "at most 64 MiB"),
    "example": ("example: {x: {file: big.bin}}\n", "example.x.file: big.bin has", "at most 256 MiB"),
}


@pytest.mark.parametrize("which", SPARSE)
@pytest.mark.parametrize("words", [["inspect", "models/net"], ["build", "--dry-run"], ["build"]])
def test_a_file_larger_than_any_of_its_purpose_is_not_read(root: Path, which: str, words: list[str]) -> None:
    """8 GB that take no room on the disk: refused by their size."""
    more, where, limit = SPARSE[which]
    folder = root / "models" / "net"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(network().SerializeToString())
    (folder / "model.yaml").write_text(f"name: net\nnetwork: {{onnx: model.onnx}}\n{more}")
    with (folder / "big.bin").open("wb") as file:
        file.truncate(8 << 30)
    error = failed(tritonkit_here(*words, cwd=root), 2)
    assert where in error
    assert limit in error


@pytest.mark.parametrize("words", [["inspect", "models/net"], ["build", "--dry-run"], ["build"]])
def test_an_onnx_file_beyond_protobuf_is_not_read(root: Path, words: list[str]) -> None:
    """The same for the network itself."""
    folder = root / "models" / "net"
    folder.mkdir()
    (folder / "model.yaml").write_text("name: net\nnetwork: {onnx: model.onnx}\n")
    with (folder / "model.onnx").open("wb") as file:
        file.truncate(8 << 30)
    assert "network.onnx: model.onnx has 8589934592 bytes" in failed(tritonkit_here(*words, cwd=root), 2)


def test_new_takes_no_pipe_and_no_device(root: Path, tmp_path: Path) -> None:
    """Neither waits nor reads without end."""
    os.mkfifo(tmp_path / "pipe.onnx")
    for file in (tmp_path / "pipe.onnx", Path("/dev/zero")):
        done = tritonkit_here("new", "net", "--onnx", str(file), cwd=root)
        failed(done, 2)
