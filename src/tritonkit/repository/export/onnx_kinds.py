"""Errors for ONNX files that cannot be served as they are: each names the kind of file and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.op_library import libraries_in_use
from tritonkit.text import first_line

__all__ = [
    "BUILT_IN_DOMAINS",
    "custom_operators",
    "explain_refusal",
    "explain_unreadable",
    "kind_of",
    "needs_trial",
    "refuse_kinds",
]

BUILT_IN_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"}
"""Domains of the operators that ONNX and ONNX Runtime define."""

_KINDS = {
    "sequence_type": "a sequence",
    "optional_type": "optional",
    "map_type": "a map",
    "sparse_tensor_type": "a sparse tensor",
    "opaque_type": "an opaque value",
}


def kind_of(value: Any) -> str:
    """Kind of an input or output of a graph that is not a tensor: `a sequence of maps`; empty for a tensor."""
    return _described(value.type)


def _described(kind: Any) -> str:
    which = kind.WhichOneof("value")
    if which in (None, "tensor_type"):
        return ""
    inner = _described(kind.sequence_type.elem_type) if which == "sequence_type" else ""
    if which == "sequence_type":
        return f"a sequence of {inner.removeprefix('a ') + 's' if inner else 'tensors'}"
    return _KINDS[which]


def refuse_kinds(model: Any, where: str) -> None:
    """Raise BuildError for the first input or output that is not a tensor: Triton carries only tensors."""
    for side, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            if kind := _described(value.type):
                raise BuildError(
                    where,
                    found=f"{side} {value.name} is {kind}",
                    wanted="tensors: Triton carries nothing else",
                    todo=_instead(model, value),
                )
    # ONNX Runtime reports such an input as it reports a scalar: without axes.
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name not in constants and not value.type.tensor_type.HasField("shape"):
            raise BuildError(
                where,
                found=f"input {value.name} has no shape: not even its number of axes is known",
                wanted="a shape for each input; sizes may be free",
                todo="export it with shapes; or write one with onnx: type.tensor_type.shape.dim.add() for each axis",
            )


def _instead(model: Any, value: Any) -> str:
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    if makers.get(value.name) == "ZipMap" or "map" in _described(value.type):
        return (
            "export with zipmap=False: convert_sklearn(..., options={'zipmap': False}) of skl2onnx,"
            " convert_lightgbm(..., zipmap=False) of onnxmltools; probabilities are a tensor then"
        )
    if makers.get(value.name) == "SplitToSequence":
        return "give the tensor that is split, or each part as an output of its own"
    if _described(value.type) == "optional":
        return "export with a plain tensor in its place; a value that means none can stand for a missing one"
    return "export with a tensor in its place: stacked or filled up to one shape, with a count"


def custom_operators(model: Any, graphs: Iterator[Any]) -> tuple[str, ...]:
    """Operators that neither ONNX, nor ONNX Runtime, nor a function of the file defines, as `domain.name`."""
    own = {(function.domain, function.name) for function in model.functions}
    return tuple(
        sorted(
            {
                f"{node.domain}.{node.op_type}"
                for graph in graphs
                for node in graph.node
                if node.domain not in BUILT_IN_DOMAINS and (node.domain, node.op_type) not in own
            }
        )
    )


def needs_trial(model: Any, custom: tuple[str, ...]) -> bool:
    """Whether only a trial in ONNX Runtime shows that a file is supported: it has custom operators, or a newer
    operator set than onnx."""
    newest = need("onnx", "build").defs.onnx_opset_version()
    return bool(custom) or any(
        opset.version > newest for opset in model.opset_import if opset.domain in ("", "ai.onnx")
    )


def explain_refusal(name: str, where: str, reason: str) -> BuildError:
    """The error for a file that ONNX Runtime does not open, from ONNX Runtime's message."""
    version = need("onnxruntime", "build").__version__
    engine = f"ONNX Runtime {version}"
    if newest := re.search(r"model IR version: (\d+), max supported IR version: (\d+)", reason):
        return BuildError(
            where,
            found=f"{name} has IR version {newest[1]}, which is newer than {engine}",
            wanted=f"IR version {newest[2]} or an older one",
            todo="export with an older onnx package, or set model.ir_version and save it again",
        )
    if newest := re.search(r"Opset (\d+) .*domain ([\w.]+) is till opset (\d+)", reason, re.DOTALL):
        return BuildError(
            where,
            found=f"{name} has operator set {newest[1]} of {newest[2]}, which is newer than {engine}",
            wanted=f"operator set {newest[3]} or an older one",
            todo="export with a lower opset (torch.onnx.export(opset_version=...)), or convert it:"
            f" onnx.version_converter.convert_version(model, {newest[3]})",
        )
    if unknown := re.search(r"([\w.]+):(\w+)\(-?\d+\) is not a registered function", reason):
        searched = " nor in ".join((engine, *(library.name for library in libraries_in_use())))
        neither = "neither in" if libraries_in_use() else "not in"
        return BuildError(
            where,
            found=f"{name} has the custom operator {unknown[1]}.{unknown[2]}, which is {neither} {searched}",
            wanted="operators of ONNX, of ONNX Runtime, or of a library that the spec names",
            todo="name the library that has it: network: {op_library: FILE.so} (tritonkit new: --op-library FILE.so);"
            " or export without it",
        )
    if missing := re.search(r"Could not find an implementation for (\w+)\(\d+\)", reason):
        return BuildError(
            where,
            found=f"{engine} refuses {name}: {_own_words(reason)}",
            wanted=f"operators that it has on the CPU: it has {missing[1]}, but not for the type of these tensors",
            todo="compute in float32: export from a float32 network, or cast BF16 and FP16 values inside of it",
        )
    if locale := re.search(r"construct locale with name:\s*([\w.@-]+?):", reason):
        return BuildError(
            where,
            found=f"{name} changes the case of texts by the locale {locale[1]}, which this machine does not have",
            wanted="a locale that is installed, here and where it is served",
            todo=f"install it (Debian: apt-get install locales, then localedef -i en_US -f UTF-8 {locale[1]}); or"
            " export with the locale C: options={id(model): {'locale': 'C'}} of skl2onnx's convert_sklearn",
        )
    return BuildError(where, found=f"ONNX Runtime refuses {name}: {_own_words(reason)}")


def _own_words(reason: str) -> str:
    """ONNX Runtime's message without the error number, the model's path and ONNX Runtime's source file."""
    words = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", first_line(RuntimeError(reason)))
    words = re.sub(r"^Load model from .*? failed: ?", "", words)
    return re.sub(r"^/onnxruntime_src/\S+ .*?\) (?=[A-Z])", "", words)


_FORMATS = (
    (b"version https://git-lfs", 0, "a pointer of Git LFS", "fetch the file: git lfs pull"),
    (b"<?xml", 0, "an XML file, such as OpenVINO's", "give the ONNX file"),
    (b"<", 0, "a web page", "download the file itself"),
    (b"PK", 0, "a zip archive, as PyTorch's files are", "export it: torch.onnx.export, or tritonkit new --torch"),
    (b"\x80", 0, "a pickle", "export it: torch.onnx.export, or tritonkit new --torch"),
    (b'{"learner"', 0, "XGBoost's JSON", "give it to tritonkit new --tree"),
    (b"learner", 10, "XGBoost's UBJSON", "give it to tritonkit new --tree"),
    (b"tree\nversion=", 0, "LightGBM's text", "give it to tritonkit new --tree"),
    (b"TFL3", 4, "a TensorFlow Lite file", "convert it with tf2onnx"),
    (b"ORTM", 4, "a file in ONNX Runtime's own format", "give the ONNX file it was made from"),
)
_FIRST_FIELD = b"\x08"
"""An ONNX file begins with its IR version."""


def explain_unreadable(file: Path, where: str, reason: str) -> BuildError:
    """The error for a file that is not ONNX, or only a part of an ONNX file."""
    with file.open("rb") as stream:
        head = stream.read(32).lstrip()
    what = "not a whole ONNX file"
    todo = "export it again, or copy it again: a truncated download looks like this"
    if head[:1] not in (b"", _FIRST_FIELD):
        what, todo = "not an ONNX file", "give the file that the exporter wrote, as it wrote it"
    for mark, place, name, advice in _FORMATS:
        if head[place:].startswith(mark):
            what, reason, todo = "not an ONNX file", f"it is {name}", advice
            break
    return BuildError(
        where, found=f"{file.name} ({file.stat().st_size} bytes) is {what}: {reason}", wanted="an ONNX file", todo=todo
    )
