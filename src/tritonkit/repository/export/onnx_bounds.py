"""Bounds on the ONNX files that are read: a small file whose functions call each other can hold a huge network."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need

__all__ = ["MAX_NODES", "hold_to_bounds", "load_onnx"]

MAX_BYTES = 2**31 - 1
"""Size of one protobuf message; weights beyond that are in other files."""
MAX_NODES = 1_000_000
"""Most operators, with functions expanded. The largest networks that are served have a tenth of that."""
_MAX_VALUES = 1000
_MAX_DEPTH = 100

_Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def load_onnx(file: Path, where: str) -> Any:
    """The parsed model, without the weights in other files.

    BuildError if the file is not a regular file, too large for an ONNX file, or beyond these bounds. For a file that is
    not ONNX, onnx's own error is raised.
    """
    state = file.stat()
    if not stat.S_ISREG(state.st_mode):
        raise BuildError(where, found=f"{file.name} is not a regular file", wanted="an ONNX file", todo="copy it")
    if state.st_size > MAX_BYTES:
        raise BuildError(
            where,
            found=f"{file.name} has {state.st_size} bytes",
            wanted=f"at most {MAX_BYTES}, as ONNX files have",
            todo="keep the weights in another file: onnx.save(model, FILE, save_as_external_data=True)",
        )
    # The format is given because otherwise the file's ending chooses the parser.
    model = need("onnx", "build").load(file, format="protobuf", load_external_data=False)
    hold_to_bounds(model, file.name, where)
    return model


def hold_to_bounds(model: Any, name: str, where: str) -> None:
    """Raise BuildError for more operators, inputs or outputs than can be served, for functions that call themselves,
    and for names that no configuration can hold."""
    _hold_text(model, name, where)
    _hold_values(model, name, where)
    try:
        count = _Counting(model, name, where).of(model.graph.node, ())
    except RecursionError:
        raise BuildError(
            where,
            found=f"{name} has graphs within functions within graphs, deeper than can be followed",
            wanted="functions that can be written out",
            todo="export the network without functions",
        ) from None
    if count > MAX_NODES:
        raise BuildError(
            where,
            found=f"{name} has {count} operators with its functions expanded",
            wanted=f"at most {MAX_NODES}",
            todo="export the network without deeply nested functions",
        )


def _hold_text(model: Any, name: str, where: str) -> None:
    """Raise BuildError for texts that are not UTF-8, which protobuf returns as bytes."""
    for text in _texts(model):
        if isinstance(text, bytes):
            raise BuildError(
                where,
                found=f"{name} holds a text that is not UTF-8: {text[:80]!r}",
                wanted="an ONNX file",
                todo="export the network again",
            )


def _texts(model: Any) -> Iterator[str | bytes]:
    """The texts in a file that a build reads."""
    yield from (model.producer_name, model.producer_version)
    yield from (text for entry in model.metadata_props for text in (entry.key, entry.value))
    yield from (opset.domain for opset in model.opset_import)
    left = [model.graph, *model.functions]
    yield from (text for function in model.functions for text in (function.domain, function.name))
    while left:
        graph = left.pop()
        if graph.DESCRIPTOR.name == "GraphProto":
            for value in (*graph.input, *graph.output):
                yield value.name
                yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
            yield from (tensor.name for tensor in graph.initializer)
        for node in graph.node:
            yield from (node.domain, node.op_type, node.name, *node.input, *node.output)
            for attribute in node.attribute:
                yield attribute.name
                left += [attribute.g, *attribute.graphs]


def _hold_values(model: Any, name: str, where: str) -> None:
    """Check the names and the number of inputs and outputs."""
    initial = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in initial]
    for side, names in (("input", inputs), ("output", [v.name for v in model.graph.output])):
        if len(names) > _MAX_VALUES:
            raise BuildError(
                where,
                found=f"{name} has {len(names)} {side}s",
                wanted=f"at most {_MAX_VALUES}",
                todo="join them into fewer tensors",
            )
        if wrong := next((name for name in names if "\0" in name), None):
            raise _bad_name(where, f"an {side} of {name} is called {wrong!r}")
        if "" in names:
            raise _bad_name(where, f"an {side} of {name} has no name")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise _bad_name(where, f"two {side}s of {name} are called {twice[:80]!r}")


def _bad_name(where: str, found: str) -> BuildError:
    return BuildError(
        where,
        found=found,
        wanted="a distinct name for each input and output, without null characters",
        todo="rename it in the exporter: torch.onnx.export(input_names=[...], output_names=[...])",
    )


class _Counting:
    """A count of operators as if functions were expanded, which reads each function's body only once."""

    def __init__(self, model: Any, name: str, where: str) -> None:
        self._functions: dict[_Key, Any] = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._known: dict[_Key, int] = {}
        self._name, self._where = name, where

    def of(self, nodes: Iterable[Any], inside: tuple[_Key, ...]) -> int:
        """Number of operators in these nodes, which are the body of the last function of `inside`."""
        count = 0
        for node in nodes:
            count += 1
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    count += self.of(graph.node, inside)
            key = (node.domain, node.op_type, node.overload)
            if key in self._functions:
                count += self._of_function(key, inside)
        return count

    def _of_function(self, key: _Key, inside: tuple[_Key, ...]) -> int:
        if key in inside or len(inside) >= _MAX_DEPTH:
            depth = "calls itself" if key in inside else f"is nested deeper than {_MAX_DEPTH} calls"
            raise BuildError(
                self._where,
                found=f"the function {'.'.join(key[:2])[:80]} of {self._name} {depth}",
                wanted="functions that can be written out",
                todo="export the network without functions",
            )
        if key not in self._known:
            self._known[key] = self.of(self._functions[key].node, (*inside, key))
        return self._known[key]
