"""Convert a SavedModel of TensorFlow to ONNX by tf2onnx, in a process of its own, because both take hundreds of MB.

`python -m tritonkit.repository.scaffold.saved_model_process FOLDER TARGET` writes into the folder TARGET (`exporting`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import open_session
from tritonkit.repository.modelspec.files import SAVED_MODEL
from tritonkit.repository.scaffold.exporting import hold_to_answers, made_up, refusing
from tritonkit.text import first_line

__all__ = ["export"]

_OPSET = "18"
"""The newest operator set that tf2onnx 1.17 writes."""
_USUAL = "serving_default"
_TAG = "serve"
_REFUSED = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "ReadFile", "WriteFile", "MatchingFiles"}
"""Operators of TensorFlow that run Python, or read or write files, when the network is run."""


def export(source: Path, target: Path) -> None:
    """Write the ONNX file of a SavedModel's signature.

    BuildError where TensorFlow or tf2onnx cannot, or the file's answers are not TensorFlow's.
    """
    tf, converter = need("tensorflow", "tensorflow"), need("tf2onnx.convert", "tensorflow")
    _hold_to_operators(source)
    try:
        model = tf.saved_model.load(str(source), tags=[_TAG])
    except Exception as error:  # of any class, by the part that is wrong
        raise BuildError(
            "",
            found=f"TensorFlow {tf.__version__} cannot load it: {first_line(error)}",
            wanted="a folder that tf.saved_model.save or Keras's model.export wrote, with its variables",
            todo="copy the whole folder, or save it again",
        ) from error
    name = _signature_name(model)
    try:
        _convert(converter, source, name, target)
        _compare(tf, model.signatures[name], target)
    except Exception as error:  # of any class, by the operator
        target.unlink(missing_ok=True)
        raise BuildError(
            "",
            found=f"tf2onnx {_version()} cannot convert its signature {name}: {first_line(error)}",
            wanted="operators that ONNX has, at every size of a free axis, and TensorFlow's own answers",
            todo="take what is no tensor computation (texts, tables, random numbers) out of the signature; or fix the"
            " sizes of its inputs",
        ) from error


def _hold_to_operators(source: Path) -> None:
    """BuildError for a network that would run Python or touch files; it is parsed and not loaded."""
    saved = need("tensorflow.core.protobuf.saved_model_pb2", "tensorflow").SavedModel()
    try:
        saved.ParseFromString((source / SAVED_MODEL).read_bytes())
    except Exception as error:
        raise BuildError(
            "", found=f"{SAVED_MODEL} is damaged: {first_line(error)}", todo="copy the folder again"
        ) from error
    if operators := sorted(set(_operators(saved)) & _REFUSED):
        raise BuildError(
            "",
            found=f"it has the operators {', '.join(operators)}, which run Python or touch files",
            wanted="a network of tensors alone",
            todo="take tf.py_function and the reading of files out of it, and save it again",
        )


def _operators(saved: Any) -> Iterator[str]:
    for graph in (meta.graph_def for meta in saved.meta_graphs):
        yield from (node.op for node in graph.node)
        yield from (node.op for function in graph.library.function for node in function.node_def)


def _signature_name(model: Any) -> str:
    """The usual signature, or the only one."""
    names = list(model.signatures)
    if _USUAL in names:
        return _USUAL
    if len(names) == 1:
        return str(names[0])
    raise BuildError(
        "",
        found=f"signatures {', '.join(names)}" if names else "no signature",
        wanted=f"the signature {_USUAL}, or a single one",
        todo="save it with one: tf.saved_model.save(model, FOLDER, signatures={'serving_default': function})",
    )


def _convert(converter: Any, source: Path, name: str, target: Path) -> None:
    """Run tf2onnx as its command line does: it keeps the names of the signature's tensors."""
    before = sys.argv
    sys.argv = [
        "tf2onnx",
        *("--saved-model", str(source), "--tag", _TAG, "--signature_def", name),
        *("--opset", _OPSET, "--output", str(target)),
    ]
    try:
        converter.main()
    finally:
        sys.argv = before


def _compare(tf: Any, signature: Any, target: Path) -> None:
    """ValueError where the file's answers are not those of the signature."""
    session = open_session(target, target.name)
    inputs = [entry.name for entry in session.get_inputs()]
    outputs = [entry.name for entry in session.get_outputs()]
    specs = signature.structured_input_signature[1]
    if unknown := [name for name in inputs if name not in specs or specs[name].shape.rank is None]:
        raise ValueError(f"input {unknown[0]} has no shape in the signature")
    if other := {*outputs} ^ {*signature.structured_outputs}:
        raise ValueError(f"output {min(other)} is in one of the two alone")
    tensors = [(tuple(specs[name].shape), specs[name].dtype.name) for name in inputs]
    expected: list[tuple[Sequence[Any], Sequence[Any]]] = []
    for given in made_up(tensors):
        answers = signature(**{name: tf.constant(array) for name, array in zip(inputs, given, strict=True)})
        expected.append((given, [answers[name].numpy() for name in outputs]))
    hold_to_answers(target, expected, "TensorFlow")


def _version() -> str:
    return str(need("tf2onnx", "tensorflow").__version__)


if __name__ == "__main__":
    refusing(export, Path(sys.argv[1]), Path(sys.argv[2]))
