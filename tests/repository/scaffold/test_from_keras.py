"""`tritonkit new --keras`: networks of Keras 3 as ONNX files with Keras's own answers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tritonkit.errors import BuildError, UsageError
from tritonkit.repository.modelspec import load
from tritonkit.repository.scaffold import from_keras, new_from_keras

NETWORKS = """
import sys

import keras

kind, file = sys.argv[1:]
layers = keras.layers
a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
joined = layers.Concatenate()([a, b])
free = keras.Input((None,), name="ids", dtype="int32")
heads = {name: layers.Dense(size, name=name)(joined) for name, size in (("p", 2), ("q", 1))}
made = {
    "two": lambda: keras.Model({"a": a, "b": b}, heads),
    "recurrent": lambda: keras.Model(free, layers.LSTM(4)(layers.Embedding(9, 4)(free))),
}
made[kind]().save(file)
"""


def archive(config: Any) -> bytes:
    """A .keras file without weights."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        made.writestr("config.json", json.dumps(config))
    return content.getvalue()


def layer(kind: str, name: str, *, module: str | None = "keras.layers", registered: str | None = None) -> Any:
    """A network's description of a layer."""
    return {"module": module, "class_name": kind, "config": {"name": name}, "registered_name": registered}


def saved(folder: Path, kind: str) -> Path:
    """A network as Keras saves it."""
    file = folder / f"{kind}.keras"
    env = os.environ | {"KERAS_BACKEND": "torch"}
    subprocess.run([sys.executable, "-c", NETWORKS, kind, file], check=True, env=env)
    return file


@pytest.mark.slow
@pytest.mark.needs("keras")
def test_a_network_with_named_inputs_becomes_onnx(root: Path, tmp_path: Path) -> None:
    """Inputs and outputs have the names of Keras's layers; its answers were compared with Keras's."""
    import onnx

    folder = new_from_keras(root, "two", saved(tmp_path, "two"))
    spec = load(folder, root)
    assert spec.model.network.onnx == "model.onnx"
    assert spec.model.serving.max_batch_size is None
    graph = onnx.load(folder / "model.onnx").graph
    assert [value.name for value in graph.input] == ["a", "b"]
    assert [value.name for value in graph.output] == ["p", "q"]


@pytest.mark.slow
@pytest.mark.needs("keras")
def test_a_network_that_cannot_be_exported_says_why(root: Path, tmp_path: Path) -> None:
    """No exporter of PyTorch takes recurrent layers of a free length."""
    with pytest.raises(BuildError, match=r"(?s)--keras .*recurrent\.keras.*give keras.Input fixed sizes"):
        new_from_keras(root, "net", saved(tmp_path, "recurrent"))
    assert not list((root / "models").iterdir())


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"layers": [layer("Lambda", "twice")]}, "its layer twice is a Lambda"),
        ({"activation": {"class_name": "__lambda__", "config": {"value": "code"}}}, "is a Lambda"),
        ({"layers": [layer("Own", "own", module=None, registered="mine>Own")]}, "custom objects.*mine>Own"),
        ({"layers": [layer("Own", "own", module="here", registered="here>Own")]}, "custom objects.*here>Own"),
    ],
)
def test_python_in_a_network_is_refused(root: Path, tmp_path: Path, config: Any, found: str) -> None:
    """Nothing of the file is loaded."""
    (tmp_path / "net.keras").write_bytes(archive(config))
    with pytest.raises(UsageError, match=found):
        new_from_keras(root, "net", tmp_path / "net.keras")


def damaged() -> bytes:
    """An archive whose compressed bytes are not what they were."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("config.json", json.dumps(list(range(99))))
    start = 30 + len("config.json")
    return content.getvalue()[:start] + bytes(8) + content.getvalue()[start + 8 :]


def encrypted() -> bytes:
    """An archive that says that it has a password."""
    content = bytearray(archive({}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


@pytest.mark.parametrize("content", [b"\x89HDF\r\n", archive([])[:40], b"", damaged(), encrypted()])
def test_a_file_of_another_kind_is_refused(root: Path, tmp_path: Path, content: bytes) -> None:
    """The message says how Keras 3 writes one."""
    (tmp_path / "net.keras").write_bytes(content)
    with pytest.raises(UsageError, match=r"not a \.keras file of Keras 3"):
        new_from_keras(root, "net", tmp_path / "net.keras")


SAVED = """
import sys

import tensorflow as tf

kind, folder = sys.argv[1:]
number = lambda *shape: tf.TensorSpec(shape, tf.float32)


class Network(tf.Module):
    def __init__(self):
        self.weight = tf.Variable([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.25]])


def two(self, first, second):
    total = first @ self.weight + second
    return {"total": total, "best": tf.argmax(total, 1)}


def python(self, first, second):
    return {"total": tf.py_function(lambda x: x, [second], tf.float32) + first @ self.weight}


def random(self, first, second):
    return {"total": first @ self.weight + second * tf.random.uniform([2])}


Network.answer = tf.function(globals()[kind], input_signature=[number(None, 3), number(None, 2)])
network = Network()
tf.saved_model.save(network, folder, signatures={"serving_default": network.answer})
"""


def saved_model(folder: Path, kind: str) -> Path:
    """The folder of a SavedModel that TensorFlow wrote."""
    made = folder / kind
    subprocess.run(
        [sys.executable, "-c", SAVED, kind, made], check=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    )
    return made


@pytest.mark.slow
@pytest.mark.needs("tensorflow")
def test_a_saved_model_becomes_onnx(root: Path, tmp_path: Path, random: np.random.Generator) -> None:
    """Inputs and outputs have the names of the signature, and the answers are TensorFlow's."""
    folder = new_from_keras(root, "net", saved_model(tmp_path, "two"))
    assert load(folder, root).model.serving.max_batch_size is None
    first, second = random.standard_normal((4, 3), np.float32), random.standard_normal((4, 2), np.float32)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    total, best = session.run(["total", "best"], {"first": first, "second": second})
    weight = np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.25]], np.float32)
    np.testing.assert_allclose(total, first @ weight + second, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(best, total.argmax(1))


@pytest.mark.slow
@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("python", "operators EagerPyFunc, which run Python"),
        ("random", "tf2onnx .* cannot convert its signature serving_default: its answers differ from TensorFlow's"),
    ],
)
def test_a_saved_model_that_is_no_network_of_tensors_is_refused(
    root: Path, tmp_path: Path, kind: str, found: str
) -> None:
    """Python in it is not run, and an answer that cannot be repeated cannot be compared."""
    with pytest.raises(BuildError, match=rf"(?s)--keras .*{kind}.*{found}"):
        new_from_keras(root, "net", saved_model(tmp_path, kind))
    assert not list((root / "models").iterdir())


@pytest.mark.slow
@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("content", [b"", b"no message of protobuf", b"\x08\x01"])
def test_a_damaged_saved_model_is_refused(root: Path, tmp_path: Path, content: bytes) -> None:
    """The message says what TensorFlow found."""
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(BuildError, match=r"is damaged|cannot load it"):
        new_from_keras(root, "net", tmp_path)


def test_a_saved_model_needs_tensorflow(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install, and the way round it."""
    monkeypatch.setattr(from_keras.importlib.util, "find_spec", lambda _: None)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(UsageError, match=r"(?s)tensorflow and tf2onnx not installed.*tritonkit\[tensorflow\]"):
        new_from_keras(root, "net", tmp_path)
