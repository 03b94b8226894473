"""Damaged networks for the native backends: files of every kind that an engine may be handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper
from openvino import opset13 as op

Files = dict[str, bytes]
OUTSIDE = ("/etc/hostname", "../../../../../../etc/hostname", "../../secret/weights.bin", "/dev/zero")


@dataclass(frozen=True)
class Damaged:
    """A model's folder: its configuration without the name, and the files of version 1."""

    kind: str
    config: str
    files: Files


def _io(batched: bool) -> str:
    size, free = ("max_batch_size: 4\n", "") if batched else ("", "-1, ")
    return (
        f'{size}input {{ name: "x" data_type: TYPE_FP32 dims: [{free}4] }}\n'
        f'output {{ name: "y" data_type: TYPE_FP32 dims: [{free}3] }}\n'
        'parameters { key: "ENABLE_BATCH_PADDING" value { string_value: "YES" } }\n'
    )


def _network() -> onnx.ModelProto:
    """y = softmax(relu(x w + b) v), with nodes, weights and attributes to damage."""
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((4, 8)), "b": random.standard_normal(8), "v": random.standard_normal((8, 3))}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["relu"]),
        helper.make_node("MatMul", ["relu", "v"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@cache
def _sound(backend: str) -> tuple[tuple[str, bytes], ...]:
    """The same network before damage, as the backend's own files."""
    if backend == "onnxruntime":
        return (("model.onnx", _network().SerializeToString()),)
    x = op.parameter([-1, 4], np.float32, "x")
    x.output(0).set_names({"x"})
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    y = op.softmax(op.relu(op.matmul(x, op.constant(weights), False, False)), 1)
    y.output(0).set_names({"y"})
    with TemporaryDirectory() as folder:
        openvino.save_model(openvino.Model([y], [x]), Path(folder) / "model.xml", compress_to_fp16=False)
        return tuple((name, (Path(folder) / name).read_bytes()) for name in ("model.xml", "model.bin"))


def _bytes_changed(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 8)):
        place = random.randrange(len(changed))
        length = random.randint(1, 16)
        kind = random.randrange(4)
        if kind == 0:
            changed[place] ^= 1 << random.randrange(8)
        elif kind == 1:
            changed[place] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif kind == 2:
            del changed[place : place + length]
        else:
            changed[place:place] = changed[place : place + length]
        if not changed:
            break
    return bytes(changed)


def changed(random: Random, files: Files) -> Files:
    """Bits, bytes and pieces of one of the files."""
    name = random.choice(sorted(files))
    return {**files, name: _bytes_changed(random, files[name])}


def truncated(random: Random, files: Files) -> Files:
    """Cut off anywhere, to nothing even."""
    name = random.choice(sorted(files))
    return {**files, name: files[name][: random.randrange(len(files[name]))]}


def no_model(random: Random, files: Files) -> Files:
    """Text, noise, another format."""
    name = sorted(files)[-1]
    noise = random.randbytes(random.randint(0, 400))
    page = b"<html><body>404 Not Found</body></html>"
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
    return {**files, name: random.choice([noise, page, pointer, b"PK\x03\x04" + noise, b"{}", b"<net></net>"])}


def numbers_changed(random: Random, files: Files) -> Files:
    """An IR's sizes, offsets, identifiers and types, or the text of an ONNX file's names."""
    name = sorted(files)[-1]
    text = files[name]
    odd = [b"-1", b"0", b"99999999999999999999", b"4294967296", b"f64", b"i4", b"string", b"NaN", b"", b"\xff"]
    words = [b"4", b"3", b"0", b"1", b"f32", b"FP32", b"Relu", b"MatMul", b"x", b"y", b"w"]
    for _ in range(random.randint(1, 3)):
        word = random.choice([candidate for candidate in words if candidate in text] or [text[:1]])
        places = [at for at in range(len(text)) if text.startswith(word, at)]
        at = random.choice(places or [0])
        text = text[:at] + random.choice(odd) + text[at + len(word) :]
    return {**files, name: text}


def graph_changed(random: Random, files: Files) -> Files:
    """A whole ONNX file that is wrong: versions, types, shapes, edges, weights that are not there."""
    model = _network()
    graph = model.graph
    kind = random.randrange(9)
    if kind == 0:
        # Not 2**62: OpenVINO 2026.4 goes through the versions one by one, and its load never returns.
        model.opset_import[0].version = random.choice([-1, 0, 1, 6, 99, 100_000])
    elif kind == 1:
        model.ir_version = random.choice([-1, 0, 1, 99, 2**62])
    elif kind == 2:
        tensor = random.choice([*graph.input, *graph.output])
        tensor.type.tensor_type.elem_type = random.randrange(30)
    elif kind == 3:
        weight = random.choice(graph.initializer)
        weight.data_type = random.randrange(30)
    elif kind == 4:
        weight = random.choice(graph.initializer)
        weight.dims[0] = random.choice([-1, 0, 3, 2**31, 2**40, 2**62])
    elif kind == 5:
        node = random.choice(graph.node)
        node.input[0] = random.choice(["", "y", node.output[0], "nothing", "\n\"'"])
    elif kind == 6:
        node = random.choice(graph.node)
        # No Conv: with one input OpenVINO 2026.4's reader of ONNX files ends the process.
        node.op_type = random.choice(["Loop", "If", "Reshape", "NoSuchOperator", "", "Constant", "Gather"])
        node.domain = random.choice(["", "com.microsoft", "no.such.domain"])
    elif kind == 7:
        node = random.choice(graph.node)
        node.attribute.append(helper.make_attribute("axis", random.choice([-(2**62), -9, 9, 2**62])))
    else:
        repeated = [node for node in graph.node for _ in range(random.randint(0, 2))]
        del graph.node[:]
        graph.node.extend(repeated)
    return {"model.onnx": model.SerializeToString()}


def data_outside(random: Random, files: Files) -> Files:
    """An ONNX file whose weights are said to lie in another folder."""
    model = _network()
    weight = random.choice(model.graph.initializer)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entries = {"location": random.choice(OUTSIDE)}
    if random.random() < 0.5:
        entries |= {"offset": str(random.choice([0, 1, -1, 2**62])), "length": str(random.choice([1, 32, -1, 2**62]))}
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    return {"model.onnx": model.SerializeToString()}


Change = Callable[[Random, Files], Files]
ANY: tuple[Change, ...] = (changed, changed, truncated, no_model, numbers_changed)
OF_ONNX: tuple[Change, ...] = (graph_changed, graph_changed, data_outside)


def damaged(random: Random, backend: str) -> Damaged:
    """One network, damaged; the OpenVINO backend gets ONNX files too."""
    onnx_file = backend == "onnxruntime" or random.random() < 0.4
    files = dict(_sound("onnxruntime" if onnx_file else backend))
    change = random.choice(ANY + OF_ONNX if onnx_file else ANY)
    config = f'backend: "{backend}"\n{_io(random.random() < 0.2)}'
    if onnx_file and backend == "openvino":
        config += 'default_model_filename: "model.onnx"\n'
    return Damaged(change.__name__, config, change(random, files))


def is_outside(kind: str) -> bool:
    """Whether such a network may never load, whatever it is worth."""
    return kind == data_outside.__name__
